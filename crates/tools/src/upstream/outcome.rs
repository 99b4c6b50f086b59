//! What came of one request for a call, as the journal keeps it.

use std::collections::BTreeMap;

use protocol::ErrorObject;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Fault;

/// What a result is wrapped in, in the journal (bytes).
const WRAPPING: usize = 64;

/// The end of a call, or what is needed to go on with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The tool's result, as it was sent.
    Result(Box<RawValue>),
    /// There was a result, too long to be kept.
    Long,
    /// The server needs answers (MCP 2026-07-28 §Multi Round-Trip Requests).
    Needs {
        requests: BTreeMap<String, Box<RawValue>>,
        state: Option<String>,
    },
    /// An older server asks in the middle of the call.
    Asks {
        request: Box<RawValue>,
        /// Its connection is held, and waits for the answer.
        held: bool,
    },
    /// The server answered with a task of its own (SEP-2663, or as of 2025-11-25).
    Task {
        id: String,
        #[serde(default)]
        poll_ms: Option<u64>,
        #[serde(default)]
        legacy: bool,
    },
    /// The server's task ended with an error.
    Failed(ErrorObject),
    /// The server does not know its task any more, and why.
    Gone(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    result_type: Option<String>,
    input_requests: Option<BTreeMap<String, Box<RawValue>>>,
    request_state: Option<String>,
    task_id: Option<String>,
    poll_interval_ms: Option<u64>,
    task: Option<LegacyTask>,
}

/// `CreateTaskResult` (MCP 2025-11-25 §Tasks).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyTask {
    task_id: String,
    poll_interval: Option<u64>,
}

impl Outcome {
    /// Reads the result of `tools/call` where a task of 2025-11-25 was asked for.
    pub(super) fn read_legacy_task(result: Box<RawValue>) -> Result<Self, Fault> {
        match serde_json::from_str::<Wire>(result.get()) {
            Ok(Wire {
                task: Some(task), ..
            }) => Ok(Self::Task {
                id: task.task_id,
                poll_ms: task.poll_interval,
                legacy: true,
            }),
            // It went without one.
            _ => Self::read(result),
        }
    }

    /// Reads the result of `tools/call`.
    pub(super) fn read(result: Box<RawValue>) -> Result<Self, Fault> {
        let wire: Wire = serde_json::from_str(result.get())
            .map_err(|error| Fault::Garbage(format!("no result of a tool: {error}")))?;
        match wire.result_type.as_deref() {
            None | Some("complete") => Ok(Self::Result(result)),
            Some("input_required") => {
                let requests = wire.input_requests.unwrap_or_default();
                if requests.is_empty() && wire.request_state.is_none() {
                    let why = "needs input, and says neither what nor where it stands";
                    return Err(Fault::Garbage(why.to_owned()));
                }
                Ok(Self::Needs {
                    requests,
                    state: wire.request_state,
                })
            }
            Some("task") => match wire.task_id {
                Some(id) => Ok(Self::Task {
                    id,
                    poll_ms: wire.poll_interval_ms,
                    legacy: false,
                }),
                None => Err(Fault::Garbage("a task without a taskId".to_owned())),
            },
            Some(other) => Err(Fault::Garbage(format!("a result of type {other:?}"))),
        }
    }

    /// What goes into the journal, which takes so many bytes, and what does not fit there.
    pub(super) fn split(self, bytes_max: usize) -> (Self, Option<Box<RawValue>>) {
        match self {
            Self::Result(result) if result.get().len() + WRAPPING > bytes_max => {
                (Self::Long, Some(result))
            }
            outcome => (outcome, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Outcome, Fault> {
        Outcome::read(RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn each_kind_of_result_is_told_apart() {
        let result = read(r#"{"content":[],"x":1.50}"#).unwrap();
        assert!(matches!(&result, Outcome::Result(raw) if raw.get().contains("1.50")));
        let needs = read(r#"{"resultType":"input_required","requestState":"s"}"#).unwrap();
        assert!(matches!(needs, Outcome::Needs { state: Some(_), .. }));
        let task = read(r#"{"resultType":"task","taskId":"t","pollIntervalMs":5}"#).unwrap();
        assert!(matches!(
            task,
            Outcome::Task {
                poll_ms: Some(5),
                ..
            }
        ));
        for garbage in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"task"}"#,
            r#"{"resultType":"x"}"#,
            "[]",
        ] {
            assert!(matches!(read(garbage), Err(Fault::Garbage(_))), "{garbage}");
        }
    }

    #[test]
    fn the_journal_gives_back_what_it_was_given() {
        let max = 1024;
        let (kept, rest) = read(r#"{"content":[],"x":1.50}"#).unwrap().split(max);
        assert!(rest.is_none());
        let text = serde_json::to_string(&kept).unwrap();
        let Outcome::Result(raw) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(raw.get(), r#"{"content":[],"x":1.50}"#);
        let long = format!("{{\"content\":[],\"x\":\"{}\"}}", "x".repeat(max));
        let (kept, rest) = read(&long).unwrap().split(max);
        assert!(matches!(kept, Outcome::Long) && rest.unwrap().get().len() == long.len());
    }
}
