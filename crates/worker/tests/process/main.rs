//! External commands as real processes: how they run, how they are stopped, and what becomes of
//! them when workers and supervisors die or freeze.
//!
//! The program of these tests is its own supervisor, as a worker's is. The usual harness of tests
//! would take the place of its `main`, so this one has none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_worker as worker;

mod deaths;
mod ends;
mod outputs;
mod runner;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = worker::process::supervise_if_asked() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(held) = world::Held::asked(&arguments) {
        return held.hold();
    }
    runner::run(
        &arguments,
        tests![
            outputs::what_a_command_writes_and_how_it_exits,
            outputs::ten_megabytes_go_through,
            outputs::input_that_nobody_reads_holds_nothing_up,
            outputs::more_than_may_be_kept_is_read_and_counted,
            outputs::a_program_that_is_not_there_is_named,
            outputs::a_folder_that_is_not_there_is_named,
            outputs::secrets_of_the_worker_stay_with_it,
            outputs::outputs_closed_early_end_nothing,
            outputs::an_end_by_a_signal_is_told_from_an_exit,
            ends::a_polite_command_is_asked_and_ends,
            ends::a_deaf_command_is_killed_after_its_grace,
            ends::children_have_the_grace_too,
            ends::a_sleeping_beauty_is_woken_to_end,
            ends::one_that_writes_for_ever_is_stopped,
            ends::twenty_grandchildren_are_gone,
            ends::what_a_command_leaves_behind_is_killed,
            ends::dropped_means_gone,
            ends::the_end_waits_for_dropped_commands,
            ends::nothing_begins_after_the_end,
            ends::nothing_begins_after_a_stop,
            ends::a_relay_is_caught,
            ends::ten_relays_are_caught,
            ends::orphans_that_end_are_not_kept_as_zombies,
            ends::many_at_once_leave_nothing,
            deaths::a_killed_worker_takes_its_commands_along,
            deaths::a_worker_that_ends_takes_its_commands_along,
            deaths::a_frozen_worker_loses_its_commands_before_its_lease,
            deaths::a_lease_that_is_renewed_keeps_the_command,
            deaths::a_lease_that_is_not_renewed_ends_the_command,
            deaths::a_killed_supervisor_is_avenged_by_the_worker,
            deaths::a_command_that_kills_its_supervisor_ends_itself,
            deaths::a_frozen_supervisor_protects_nobody,
            deaths::worker_and_supervisor_killed_are_cleaned_up_by_the_next,
            deaths::signals_for_the_worker_do_not_reach_commands,
            deaths::a_program_that_does_not_supervise_is_found_out,
            deaths::started_by_hand_it_says_what_it_is,
        ],
    )
}
