//! One call makes one task, and so do all calls under one idempotency key.

use std::collections::{BTreeMap, BTreeSet};

use super::expect::Told;
use super::world::{Called, World};
use super::{Found, Rule};
use crate::history::CallAnswer;

pub(super) fn check(world: &World<'_>, found: &mut Found) {
    let acted = world.acted_for();
    for (name, tasks) in &acted {
        if let [first, second, ..] = &tasks[..] {
            let said = format!("tasks {first} and {second} both acted for one call");
            found.push(Rule::OneTask, first, name, said);
        }
    }
    let mut keyed: BTreeMap<(&str, &str, &str), Vec<Called<'_>>> = BTreeMap::new();
    for (_, calls) in world.calls() {
        for called in calls {
            if let Some(key) = called.key {
                let of = (called.event.principal.as_str(), called.tool, key);
                keyed.entry(of).or_default().push(*called);
            }
        }
    }
    for ((_, _, key), calls) in &keyed {
        if let Err((task, call, said)) = one_task(calls, &acted) {
            found.push(Rule::OneTask, &task, &call, format!("key {key}: {said}"));
        }
    }
}

type Said = (String, String, String);

fn one_task(
    calls: &[Called<'_>],
    acted: &std::collections::HashMap<&str, Vec<&str>>,
) -> Result<(), Said> {
    let mut tasks: BTreeMap<String, &str> = BTreeMap::new();
    let mut taken: Vec<&Called<'_>> = Vec::new();
    for called in calls {
        let name = called.arguments["call"].as_str().unwrap_or_default();
        let mut all: BTreeSet<String> = task(called).into_iter().collect();
        all.extend(
            acted
                .get(name)
                .into_iter()
                .flatten()
                .map(|t| (*t).to_owned()),
        );
        for task in all {
            tasks.insert(task, name);
        }
        let accepted = match called.answer {
            CallAnswer::Handle { .. } | CallAnswer::Inline { .. } | CallAnswer::Asked { .. } => {
                true
            }
            CallAnswer::Error(_) => Told::of_call(called.answer).is_some(),
            CallAnswer::NoAnswer(_) => false,
        };
        if accepted {
            taken.push(called);
        }
    }
    let mut made = tasks.iter();
    if let (Some((first, call)), Some((second, _))) = (made.next(), made.next()) {
        let said = format!("tasks {first} and {second}");
        return Err((first.clone(), (*call).to_owned(), said));
    }
    let the_task = tasks.keys().next().cloned().unwrap_or_default();
    let Some(first) = taken.first() else {
        return Ok(());
    };
    let call = first.arguments["call"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if taken.iter().any(|other| other.arguments != first.arguments) {
        let said = "taken with two different arguments".to_owned();
        return Err((the_task, call, said));
    }
    let known_us = taken.iter().map(|called| called.event.until_us).min();
    let refused = calls.iter().find(|called| {
        called.arguments == first.arguments
            && known_us.is_some_and(|known_us| called.event.at_us >= known_us)
            && matches!(called.answer, CallAnswer::Error(error) if error.code == -32602)
    });
    if refused.is_some() {
        let said = "refused though it was taken before with the same arguments".to_owned();
        return Err((the_task, call, said));
    }
    Ok(())
}

fn task(called: &Called<'_>) -> Option<String> {
    match called.answer {
        CallAnswer::Handle { task } => Some(task.clone()),
        other => Told::of_call(other).map(|told| told.task),
    }
}
