//! Programs as tools, as a tools file declares them: real processes, a journal in memory.
//!
//! The program of these tests is its own supervisor, as a worker's is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_tools as tools;

mod asks;
mod examples;
mod lines;
mod plain;
#[path = "../../../worker/tests/process/runner.rs"]
mod runner;
mod undos;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = worker::process::supervise_if_asked() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    runner::run(
        &arguments,
        tests![
            plain::arguments_come_as_json_and_as_words,
            plain::no_value_is_taken_for_a_flag,
            plain::nothing_of_a_call_is_read_by_a_shell,
            plain::what_no_command_line_can_hold_is_refused,
            plain::an_exit_code_is_an_error_with_the_last_words,
            plain::a_signal_is_an_error,
            plain::a_program_may_ask_for_another_try,
            plain::a_flood_is_stopped_where_that_does_no_harm,
            plain::a_flood_of_one_that_acts_is_read_to_its_end,
            plain::json_is_structured_and_fits_its_schema,
            plain::what_is_no_utf8_is_shown_or_refused,
            plain::children_left_behind_are_gone,
            plain::a_program_that_is_gone_is_named,
            plain::the_environment_is_clean,
            plain::nothing_of_a_call_is_left_to_the_next,
            plain::secrets_are_read_at_every_start_and_not_told,
            plain::memory_is_limited,
            plain::memory_of_children_is_limited,
            plain::what_must_not_be_repeated_is_not,
            plain::what_may_be_repeated_is_with_the_same_key,
            lines::half_a_line_is_no_message,
            lines::whoever_breaks_the_rules_is_told_how,
            lines::the_end_in_the_middle_of_a_step_is_in_doubt,
            lines::a_step_that_did_not_happen_says_so,
            lines::a_begun_step_is_come_to_again,
            lines::finished_steps_are_not_done_again,
            lines::checkpoints_outlive_a_failed_try,
            lines::a_refused_step_is_not_done,
            lines::a_default_needs_no_client,
            lines::a_caller_can_be_asked_first,
            lines::a_run_that_has_asked_is_gone_before_its_task_waits,
            lines::results_take_all_forms,
            lines::reports_come_at_a_bearable_pace,
            lines::large_messages_go_both_ways,
            asks::several_questions_are_asked_at_once,
            asks::what_is_no_question_is_told,
            asks::a_program_is_told_whether_its_caller_can_be_asked,
            asks::a_policy_answers_for_who_cannot_be_asked,
            asks::without_an_answer_and_a_default_it_fails_and_never_parks,
            undos::a_finished_step_is_undone_by_the_program,
            undos::a_cancel_is_followed_by_the_undo,
            undos::an_undo_that_did_not_happen_is_named_or_tried_again,
            undos::an_undo_of_unknown_end_is_repeated_only_if_it_may_be,
            undos::a_shell_script_can_undo,
            examples::the_example_file_is_good,
            examples::the_python_example_asks_and_publishes_once,
            examples::the_shell_example_asks_before_it_deletes,
            examples::a_plain_program_is_a_tool,
        ],
    )
}
