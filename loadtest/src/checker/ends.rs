//! A task ends as its plan, the answers and the client's wishes call for.

use serde_json::Value;

use super::expect::{Expected, Told};
use super::world::{Story, World};
use super::{Found, Rule, undo};
use crate::history::{CallAnswer, View};
use crate::ledger::What;
use crate::plan::{End, Item, PLANNED, Plan, Step, TRIES_OF_GIVES_UP};

/// The code of failures of the system itself; their reason says which.
const INTERNAL_ERROR: i64 = -32603;

/// Why no plan of a run may fail.
const NEVER: [&str; 4] = [
    "journal_drift",
    "version_gone",
    "work_limit",
    "task_expired",
];

/// The tool that has three tries.
const GIVES_UP: &str = "chaos_gives_up";

pub(super) fn check(world: &World<'_>, story: &Story<'_>, found: &mut Found) {
    if story.called.is_none() {
        if story.acknowledged_us.is_none() && !story.lines.is_empty() {
            found.add(Rule::RightEnd, story, "acted, and nobody called for it");
        }
        return;
    }
    if let Some(end) = story.end() {
        let problem = match end.view.status.as_str() {
            "completed" => completed(story, end.view.result.as_deref().unwrap_or_default()),
            "failed" => failed(world, story, end.view, end.event.until_us),
            _ if story.cancel_asked(end.event.until_us) => Ok(()),
            _ => Err("cancelled, and nobody asked for it".to_owned()),
        };
        if let Err(problem) = problem {
            found.add(Rule::RightEnd, story, problem);
        }
    }
    for (_, answer) in &story.inline {
        let problem = match answer {
            CallAnswer::Inline { result } => completed(story, result),
            CallAnswer::Error(error) => planned_failure(story, &error.error),
            CallAnswer::Handle { .. } | CallAnswer::Asked { .. } | CallAnswer::NoAnswer(_) => {
                Ok(())
            }
        };
        if let Err(problem) = problem {
            found.add(Rule::RightEnd, story, problem);
        }
    }
}

/// Calls that were answered without a handle.
pub(super) fn check_calls(world: &World<'_>, found: &mut Found) {
    for (name, calls) in world.calls() {
        for called in calls {
            let problem = match called.answer {
                CallAnswer::Inline { result } if Told::of_result(result).is_none() => {
                    format!("answered with {result}")
                }
                CallAnswer::Error(error)
                    if NEVER.contains(&error.reason().as_str()) || is_spoilt(called.answer) =>
                {
                    format!("answered with {}", error.error)
                }
                CallAnswer::Inline { .. }
                | CallAnswer::Error(_)
                | CallAnswer::Handle { .. }
                | CallAnswer::Asked { .. }
                | CallAnswer::NoAnswer(_) => continue,
            };
            found.push(Rule::RightEnd, "", name, problem);
        }
    }
}

/// A planned failure that does not tell what it should.
fn is_spoilt(answer: &CallAnswer) -> bool {
    matches!(answer, CallAnswer::Error(error) if error.code == PLANNED)
        && Told::of_call(answer).is_none()
}

fn completed(story: &Story<'_>, result: &str) -> Result<(), String> {
    let plan = &story.plan;
    let wanted = match plan.end {
        End::Result => false,
        End::ToolError => true,
        End::Failed | End::Exhaust | End::Wait => {
            return Err(format!("completed, but its plan ends with {:?}", plan.end));
        }
    };
    if let Some(step) = plan.steps().find(|step| is_lost(step)) {
        return Err(format!(
            "completed, but step {} never knows its end",
            step.key
        ));
    }
    let told = Told::of_result(result).ok_or_else(|| format!("its result is {result}"))?;
    if told.as_error != wanted {
        return Err(format!("isError is {}, not {wanted}", told.as_error));
    }
    matches_plan(story, &told)
}

/// An act without a known end, which must not be repeated.
fn is_lost(step: &Step) -> bool {
    step.unknown > 0 && !step.idempotent
}

fn planned_failure(story: &Story<'_>, error: &str) -> Result<(), String> {
    if story.plan.end != End::Failed {
        return Err(format!(
            "failed with {error}, which its plan did not ask for"
        ));
    }
    let told = Told::of_error(error).ok_or_else(|| format!("its error is {error}"))?;
    matches_plan(story, &told)
}

/// The digest covers every step's output and every answer; the acts themselves must have had the
/// same to work with.
fn matches_plan(story: &Story<'_>, told: &Told) -> Result<(), String> {
    let plan = &story.plan;
    if told.task != story.id || told.call != plan.call {
        return Err(format!(
            "the result is that of task {} ({})",
            told.task, told.call
        ));
    }
    let asked: Vec<&str> = plan.questions().map(|q| q.key.as_str()).collect();
    let all = asked.iter().all(|key| told.answers.contains_key(*key));
    if !all || told.answers.len() != asked.len() {
        let said = format!("the answers {:?} are not those to {asked:?}", told.answers);
        return Err(said);
    }
    let expected = Expected::of(plan, &told.answers);
    if told.digest != expected.digest {
        let said = format!("digest {} instead of {}", told.digest, expected.digest);
        return Err(said);
    }
    for line in story.lines.iter().filter(|line| line.what == What::Act) {
        if expected.values.get(&line.step) != Some(&line.value) {
            return Err(format!(
                "step {} acted with {} instead of {:?}",
                line.step,
                line.value,
                expected.values.get(&line.step)
            ));
        }
    }
    Ok(())
}

fn failed(world: &World<'_>, story: &Story<'_>, view: &View, seen_us: u64) -> Result<(), String> {
    let text = view.error.as_deref().unwrap_or_default();
    let error: Value = serde_json::from_str(text).unwrap_or_default();
    let cancelled = story.cancel_asked(seen_us);
    let faults = world.disturbed(story.began_us(), seen_us);
    for step in undo::given_up(&error) {
        let undo = story.step(&step).and_then(|step| step.undo.as_ref());
        if !undo.is_some_and(|undo| undo.fails || (faults && !undo.idempotent)) {
            return Err(format!(
                "step {step} was not undone, without a reason: {text}"
            ));
        }
    }
    if error["code"] != INTERNAL_ERROR {
        return planned_failure(story, text);
    }
    let plan = &story.plan;
    let disturbed = cancelled || faults;
    if let Some(said) = contradiction(story, &error) {
        return Err(format!("{said}: {text}"));
    }
    let few = story.called.is_some_and(|called| called.tool == GIVES_UP);
    let allowed = match error["data"]["reason"].as_str().unwrap_or_default() {
        "step_in_doubt" => {
            let step = error["data"]["step"].as_str().and_then(|s| story.step(s));
            // A stop, or the end of all tries, leaves no other try for an idempotent step.
            let last = cancelled || few;
            step.is_some_and(|step| is_lost(step) || (disturbed && (!step.idempotent || last)))
        }
        "attempts_exhausted" => {
            plan.end == End::Exhaust || (few && (disturbed || has_troubles(plan)))
        }
        "input_deadline" => plan.questions().any(|question| {
            let waited_us = seen_us.saturating_sub(story.began_us());
            let wait_us = question.wait_ms.map(|ms| ms * 1000);
            question.default.is_none() && wait_us.is_some_and(|wait| wait <= waited_us)
        }),
        // Which ones is checked below, for all failures.
        "undo_failed" => cancelled && !undo::given_up(&error).is_empty(),
        _ => false,
    };
    if allowed {
        Ok(())
    } else {
        Err(format!("failed with {text}"))
    }
}

/// What the error says and the ledger, or the tool's policy, denies.
fn contradiction(story: &Story<'_>, error: &Value) -> Option<String> {
    let tries = error["data"]["tries"].as_u64();
    if tries.is_some_and(|tries| tries != TRIES_OF_GIVES_UP) {
        return Some(format!("gave up after {tries:?} tries"));
    }
    let in_doubt = error["data"]["step"].as_str()?;
    let mut later = story
        .plan
        .steps()
        .skip_while(|step| step.key != in_doubt)
        .skip(1);
    let acted = later.find(|step| story.of_step(&step.key, What::Act).next().is_some())?;
    Some(format!("step {} acted after the one in doubt", acted.key))
}

/// Tries that a plan itself uses up.
fn has_troubles(plan: &Plan) -> bool {
    plan.items.iter().any(|item| match item {
        Item::Retry(_) | Item::Panic(_) => true,
        Item::Step(step) => step.refuses > 0 || step.unknown > 0,
        Item::Ask(_) | Item::Pause(_) => false,
    })
}
