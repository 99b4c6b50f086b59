//! Answers that do not count as they should, and questions that come back.

use super::{caught, terminal};
use crate::checker::Rule;
use crate::checker::tests::honest::{Fate, Tale};
use crate::history::{Acknowledgement, Kind, TaskAnswer, View};
use crate::plan::Plan;

/// The question that was asked first, and when its answer was certainly in.
fn answered(tale: &Tale) -> Option<(String, u64)> {
    tale.events.iter().find_map(|event| match &event.kind {
        Kind::Updated {
            answers,
            answer: Acknowledgement::Done,
            ..
        } => {
            let key = answers.keys().next()?.clone();
            let shown = tale.events.iter().any(|seen| match &seen.kind {
                Kind::Read {
                    answer: TaskAnswer::Task(view),
                    ..
                } => seen.until_us <= event.at_us && view.keys.contains(&key),
                _ => false,
            });
            shown.then_some((key, event.until_us))
        }
        _ => None,
    })
}

#[test]
fn a_second_answer_that_wins() {
    caught(Rule::FirstAnswer, Fate::Completes, |tale| {
        let Some((key, until_us)) = answered(tale) else {
            return false;
        };
        // The one that is used was sent when another had been acknowledged.
        let mut moved = false;
        let mut used = String::new();
        for event in &mut tale.events {
            if let Some(view) = terminal(&mut event.kind) {
                let result: serde_json::Value =
                    serde_json::from_str(view.result.as_ref().unwrap()).unwrap();
                let told = result["content"][0]["text"].as_str().unwrap();
                let told: serde_json::Value = serde_json::from_str(told).unwrap();
                used = told["answers"][&key].as_str().unwrap().to_owned();
            }
        }
        let used = Plan::response(&used);
        let mut others = false;
        let last_us = tale.events.last().unwrap().at_us;
        for event in &mut tale.events {
            if let Kind::Updated { answers, .. } = &event.kind
                && answers.contains_key(&key)
            {
                if answers[&key] == used {
                    (event.at_us, event.until_us) = (last_us - 1, last_us);
                    moved = true;
                } else if event.until_us <= until_us {
                    others = true;
                }
            }
        }
        moved && others && until_us < last_us - 1 && answered(tale).is_some()
    });
}

#[test]
fn an_answer_that_nobody_gave() {
    caught(Rule::FirstAnswer, Fate::Completes, |tale| {
        let before = tale.events.len();
        tale.events
            .retain(|event| !matches!(event.kind, Kind::Updated { .. }));
        tale.events.len() < before
    });
}

#[test]
fn a_question_that_is_still_asked_when_it_is_answered() {
    caught(Rule::AskedOnce, Fate::Completes, |tale| {
        let Some((key, until_us)) = answered(tale) else {
            return false;
        };
        let mut read = tale.events.last().unwrap().clone();
        (read.at_us, read.until_us) = (until_us, until_us + 1);
        let (id, status, keys) = ("task-0".to_owned(), "input_required".to_owned(), vec![key]);
        let view = View {
            id,
            status,
            keys,
            ..View::default()
        };
        read.kind = Kind::Read {
            task: "task-0".into(),
            answer: TaskAnswer::Task(view),
        };
        tale.events.push(read);
        true
    });
}

#[test]
fn a_question_that_comes_back() {
    caught(Rule::AskedOnce, Fate::Completes, |tale| {
        let shown = tale.events.iter().find(|event| match &event.kind {
            Kind::Read {
                answer: TaskAnswer::Task(view),
                ..
            } => !view.keys.is_empty(),
            _ => false,
        });
        let Some(shown) = shown.cloned() else {
            return false;
        };
        let mut gone = shown.clone();
        (gone.at_us, gone.until_us) = (shown.until_us, shown.until_us + 1);
        if let Kind::Read {
            answer: TaskAnswer::Task(view),
            ..
        } = &mut gone.kind
        {
            *view = View {
                id: view.id.clone(),
                status: "working".into(),
                ..View::default()
            };
        }
        let mut back = shown;
        (back.at_us, back.until_us) = (gone.until_us, gone.until_us + 1);
        // None of it is about answers.
        for event in &mut tale.events {
            if let Kind::Updated { answer, .. } = &mut event.kind {
                *answer = Acknowledgement::NoAnswer(Default::default());
            }
        }
        tale.events.extend([gone, back]);
        true
    });
}
