//! What a plan and its answers come to. Written anew from the tools' description, so that a mistake
//! on either side shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::history::CallAnswer;
use crate::plan::{Item, PLANNED, Plan};

/// What a chaos tool told at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) task: String,
    pub(super) call: String,
    pub(super) digest: String,
    pub(super) answers: BTreeMap<String, String>,
    pub(super) as_error: bool,
}

impl Told {
    fn of(told: &Value, as_error: bool) -> Option<Self> {
        let text = |field: &str| Some(told[field].as_str()?.to_owned());
        let answers = told["answers"].as_object()?.iter();
        Some(Self {
            task: text("task")?,
            call: text("call")?,
            digest: text("digest")?,
            answers: answers
                .map(|(key, answer)| Some((key.clone(), answer.as_str()?.to_owned())))
                .collect::<Option<_>>()?,
            as_error,
        })
    }

    /// From the text of a tool's result.
    pub(super) fn of_result(result: &str) -> Option<Self> {
        let result: Value = serde_json::from_str(result).ok()?;
        let text = result["content"][0]["text"].as_str()?;
        let told: Value = serde_json::from_str(text).ok()?;
        Self::of(&told, result["isError"] == true)
    }

    /// From the text of a JSON-RPC error that a plan asked for.
    pub(super) fn of_error(error: &str) -> Option<Self> {
        let error: Value = serde_json::from_str(error).ok()?;
        if error["code"] != PLANNED {
            return None;
        }
        Self::of(&error["data"], false)
    }

    /// From an answer to `tools/call`.
    pub(super) fn of_call(answer: &CallAnswer) -> Option<Self> {
        match answer {
            CallAnswer::Inline { result } => Self::of_result(result),
            CallAnswer::Error(error) => Self::of_error(&error.error),
            CallAnswer::Handle { .. } | CallAnswer::Asked { .. } | CallAnswer::NoAnswer(_) => None,
        }
    }
}

/// What a plan comes to.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The value of each step.
    pub(super) values: BTreeMap<String, String>,
    /// The digest at the end.
    pub(super) digest: String,
}

impl Expected {
    /// With these answers.
    pub(super) fn of(plan: &Plan, answers: &BTreeMap<String, String>) -> Self {
        let mut values = BTreeMap::new();
        let mut so_far = format!("{}\n", plan.call);
        for item in &plan.items {
            match item {
                Item::Step(step) => {
                    let value = digest(&format!("{so_far}step {}", step.key));
                    let _ = writeln!(so_far, "step {} {value}", step.key);
                    values.insert(step.key.clone(), value);
                }
                Item::Ask(questions) => {
                    for question in questions {
                        let answer = answers.get(&question.key).map_or("", String::as_str);
                        let _ = writeln!(so_far, "answer {} {answer}", question.key);
                    }
                }
                Item::Pause(_) | Item::Retry(_) | Item::Panic(_) => {}
            }
        }
        Self {
            values,
            digest: digest(&format!("{so_far}end")),
        }
    }
}

/// The first 16 hexadecimal digits of the SHA-256.
fn digest(text: &str) -> String {
    let mut hex = String::new();
    for byte in &Sha256::digest(text)[..8] {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
