//! What a call asks a chaos tool to do: the arguments of all of them.
//!
//! Tools: `chaos_quick` (inline if it ends within the gateway's budget), `chaos_steps`,
//! `chaos_ask`, `chaos_undo` (tasks at once; names only, all follow any plan) and
//! `chaos_gives_up` (a task at once, three tries).

use serde::{Deserialize, Serialize};

/// Tries of `chaos_gives_up`.
pub const TRIES_OF_GIVES_UP: u64 = 3;

/// The code of errors that a plan asked for.
pub const PLANNED: i64 = 4711;

/// The arguments of a chaos tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// A name that no other plan of the run has. A call that is repeated under its idempotency
    /// key carries the same; one that is repeated without a key needs another.
    pub call: String,
    /// One after another.
    #[serde(default)]
    pub items: Vec<Item>,
    /// How it ends.
    #[serde(default)]
    pub end: End,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A step with one act.
    Step(Step),
    /// Questions that stand at once. Each is a form with the one text field `value`.
    Ask(Vec<Question>),
    /// Milliseconds between steps; listens to a stop.
    Pause(u64),
    /// So many tries end here with a retryable error (every worker counts for itself).
    Retry(u32),
    /// So many tries panic here (every worker counts for itself).
    Panic(u32),
}

/// A step with one act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Its key, unique in the plan.
    pub key: String,
    /// May act again, under the same idempotency key.
    pub idempotent: bool,
    /// Between permission and act, ms.
    pub before_ms: u64,
    /// Between act and journal, ms.
    pub after_ms: u64,
    /// Does not listen to a stop while it waits for its act.
    pub deaf: bool,
    /// So many tries say, instead of acting, that they did not act.
    pub refuses: u32,
    /// So many tries act and then do not know whether they did. If not idempotent: the task fails.
    pub unknown: u32,
    /// How to undo it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
}

/// How to undo a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Undo {
    /// May be undone again, under the same idempotency key.
    pub idempotent: bool,
    /// Before it is undone, ms.
    pub before_ms: u64,
    /// After it was undone, ms.
    pub after_ms: u64,
    /// So many tries say that they undid nothing.
    pub refuses: u32,
    /// Never undoes anything, and says so for good.
    pub fails: bool,
}

/// A question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    /// Its key, unique in the plan.
    pub key: String,
    /// How long it waits for its answer; a day if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// What stands for the answer after that; without one the task then fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// How a plan ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With a result.
    #[default]
    Result,
    /// With a result that is an error.
    ToolError,
    /// With the JSON-RPC error [`PLANNED`].
    Failed,
    /// Every try with a retryable error; for `chaos_gives_up` only.
    Exhaust,
    /// Not before it is cancelled.
    Wait,
}

impl Plan {
    /// Its steps, in order.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.items.iter().filter_map(|item| match item {
            Item::Step(step) => Some(step),
            Item::Ask(_) | Item::Pause(_) | Item::Retry(_) | Item::Panic(_) => None,
        })
    }

    /// Its questions, in order.
    pub fn questions(&self) -> impl Iterator<Item = &Question> {
        self.items
            .iter()
            .filter_map(|item| match item {
                Item::Ask(questions) => Some(questions),
                Item::Step(_) | Item::Pause(_) | Item::Retry(_) | Item::Panic(_) => None,
            })
            .flatten()
    }

    /// The response that answers one of its questions with this text.
    #[must_use]
    pub fn response(value: &str) -> serde_json::Value {
        serde_json::json!({ "action": "accept", "content": { "value": value } })
    }
}

/// In a line, for timelines: what is as usual is left out.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.call)?;
        for item in &self.items {
            match item {
                Item::Step(step) => write!(f, " {step}")?,
                Item::Ask(questions) => {
                    let keys: Vec<&str> = questions.iter().map(|q| q.key.as_str()).collect();
                    write!(f, " ask({})", keys.join(","))?;
                }
                Item::Pause(ms) => write!(f, " pause({ms})")?,
                Item::Retry(times) => write!(f, " retry({times})")?,
                Item::Panic(times) => write!(f, " panic({times})")?,
            }
        }
        write!(f, " -> {:?}", self.end)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut traits = vec![format!("{}+{}", self.before_ms, self.after_ms)];
        for (told, is) in [("again", self.idempotent), ("deaf", self.deaf)] {
            traits.extend(is.then(|| told.to_owned()));
        }
        for (told, times) in [("refuses", self.refuses), ("unknown", self.unknown)] {
            traits.extend((times > 0).then(|| format!("{told} {times}")));
        }
        if let Some(undo) = &self.undo {
            let how = match (undo.fails, undo.idempotent) {
                (true, _) => "undo fails",
                (false, true) => "undo again",
                (false, false) => "undo",
            };
            traits.push(how.to_owned());
        }
        write!(f, "{}({})", self.key, traits.join(", "))
    }
}
