//! The journal itself: what earlier runs have finished, for tools whose way only a program knows
//! that they run, and how much it takes.

use serde_json::Value;
use store::JournalKind;

use super::{Context, read_output};
use crate::error::ToolError;

/// What an earlier run has finished.
#[derive(Clone, Debug, PartialEq)]
pub enum Recalled {
    /// A step, and what it put out.
    Step {
        /// Its key.
        key: String,
        /// Its output.
        output: Value,
    },
    /// A question and its whole response; or a callback, and what it brought.
    Answer {
        /// Its key.
        key: String,
        /// The response, as the client sent it.
        response: Value,
    },
    /// A last step that began and did not end. It is still to be come to.
    Begun {
        /// Its key.
        key: String,
    },
}

impl Context {
    /// How long the output of a step may be, in bytes of JSON (`worker.step_bytes_max`): one that is
    /// longer is not kept, and its task fails.
    #[must_use]
    pub fn output_bytes_max(&self) -> usize {
        self.about.limits.step_bytes_max
    }

    /// Takes all that earlier runs have finished, in its order, instead of coming to each step and
    /// question of it by name. What follows is new, but for [`Recalled::Begun`], to which the tool
    /// must come before anything else.
    ///
    /// # Errors
    /// That the journal cannot be read. Pass it on with `?`.
    pub fn recall(&mut self) -> Result<Vec<Recalled>, ToolError> {
        let entries = self.replay.recall()?;
        let begun = self.replay.begun().map(|key| Recalled::Begun { key });
        let recalled = entries.into_iter().map(|entry| {
            let value = entry.value.unwrap_or_default();
            let value: Value = read_output(&entry.key, &value)?;
            Ok(match entry.kind {
                JournalKind::Step => Recalled::Step {
                    key: entry.key,
                    output: value,
                },
                JournalKind::Input | JournalKind::Callback => Recalled::Answer {
                    key: entry.key,
                    response: value,
                },
            })
        });
        recalled.chain(begun.map(Ok)).collect()
    }
}
