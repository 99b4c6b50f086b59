//! What is not completed is undone: each finished step once, in reverse order, before the end shows.

use std::collections::BTreeSet;

use serde_json::Value;

use super::world::{Sight, Story};
use super::{Found, Rule};
use crate::ledger::{Line, What};

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    if story.called.is_none() {
        return;
    }
    if let Err(said) = counts(story) {
        found.add(Rule::Undone, story, said);
        return;
    }
    let completed = !story.inline.is_empty();
    match story.end() {
        Some(end) if end.view.status == "completed" => nothing_undone(story, found),
        None if completed && story.plan.end != crate::plan::End::Failed => {
            nothing_undone(story, found);
        }
        Some(end) => {
            let undone = order(story, end)
                .and_then(|()| nothing_done_meanwhile(story, end))
                .and_then(|()| all_undone(story, end));
            if let Err(said) = undone {
                found.add(Rule::Undone, story, said);
            }
        }
        None => {}
    }
}

fn undone<'a>(story: &Story<'a>) -> impl Iterator<Item = &'a Line> {
    story
        .lines
        .iter()
        .copied()
        .filter(|line| line.what == What::Undo)
}

fn nothing_undone(story: &Story<'_>, found: &mut Found) {
    if let Some(line) = undone(story).next() {
        let said = format!("completed, and step {} was undone", line.step);
        found.add(Rule::Undone, story, said);
    }
}

/// Whatever the end: nothing is undone twice, or without having been done.
fn counts(story: &Story<'_>) -> Result<(), String> {
    for step in story.plan.steps() {
        let lines: Vec<_> = story.of_step(&step.key, What::Undo).collect();
        let keys: BTreeSet<&str> = lines.iter().map(|line| line.key.as_str()).collect();
        let idempotent = step.undo.as_ref().is_some_and(|undo| undo.idempotent);
        if (!idempotent && lines.len() > 1) || keys.len() > 1 {
            let said = format!("step {} was undone {} times", step.key, lines.len());
            return Err(said);
        }
        let done = story.of_step(&step.key, What::Act).next();
        let mut others = lines
            .iter()
            .filter(|line| done.is_none_or(|done| done.value != line.value));
        if let Some(other) = others.next() {
            return Err(format!(
                "step {} was undone with the output {}",
                step.key, other.value
            ));
        }
        let done_us = story
            .of_step(&step.key, What::Act)
            .map(|line| line.at_us)
            .min();
        let undone_us = lines.iter().map(|line| line.at_us).min();
        if let Some(undone_us) = undone_us
            && done_us.is_none_or(|done_us| done_us > undone_us)
        {
            return Err(format!("step {} was undone before it acted", step.key));
        }
    }
    Ok(())
}

/// The last step first. An undo whose end is unknown is given up, and may happen at any time.
fn order(story: &Story<'_>, end: Sight<'_>) -> Result<(), String> {
    let given_up = given_up(&error(end));
    let mut later: Option<(&str, u64)> = None;
    for step in story.plan.steps().rev() {
        let undone = story
            .of_step(&step.key, What::Undo)
            .map(|line| line.at_us)
            .min();
        let Some(undone_us) = undone.filter(|_| !given_up.contains(&step.key)) else {
            continue;
        };
        if let Some((name, later_us)) = later
            && undone_us < later_us
        {
            return Err(format!("step {} was undone before step {name}", step.key));
        }
        later = Some((&step.key, undone_us));
    }
    Ok(())
}

/// Nothing new is done once undoing has begun; what is in doubt may happen at any time.
fn nothing_done_meanwhile(story: &Story<'_>, end: Sight<'_>) -> Result<(), String> {
    let Some(begun) = undone(story).map(|line| line.at_us).min() else {
        return Ok(());
    };
    let in_doubt = in_doubt(&error(end));
    let late = story
        .visible()
        .into_iter()
        .find(|line| line.what == What::Act && line.at_us > begun && line.step != in_doubt);
    match late {
        None => Ok(()),
        Some(act) => Err(format!("step {} acted after undoing had begun", act.step)),
    }
}

/// The error that an end shows; `Null` if it is none.
fn error(end: Sight<'_>) -> Value {
    let error = end.view.error.as_deref().unwrap_or_default();
    serde_json::from_str(error).unwrap_or_default()
}

/// The step whose end is unknown; it is left to people.
fn in_doubt(error: &Value) -> String {
    error["data"]["step"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn all_undone(story: &Story<'_>, end: Sight<'_>) -> Result<(), String> {
    let error = error(end);
    let (in_doubt, given_up) = (in_doubt(&error), given_up(&error));
    for step in story.plan.steps() {
        let Some(undo) = &step.undo else { continue };
        let acted = story.of_step(&step.key, What::Act).next().is_some();
        if !acted || step.key == in_doubt || given_up.contains(&step.key) {
            continue;
        }
        let undone = story
            .of_step(&step.key, What::Undo)
            .map(|line| line.at_us)
            .min();
        match undone {
            None if undo.fails => {
                return Err(format!(
                    "{}, and does not say that step {} could not be undone",
                    end.view.status, step.key
                ));
            }
            None => {
                return Err(format!(
                    "{}, and step {} was not undone",
                    end.view.status, step.key
                ));
            }
            Some(undone_us) if undone_us > end.event.until_us => {
                return Err(format!(
                    "step {} was undone after the end was shown",
                    step.key
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The steps of which an error says that they could not be undone.
pub(super) fn given_up(error: &Value) -> Vec<String> {
    let listed = error["data"]["undoFailed"].as_array();
    let steps = listed.into_iter().flatten();
    steps
        .filter_map(|failure| failure["step"].as_str().map(str::to_owned))
        .collect()
}
