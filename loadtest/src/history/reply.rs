//! Reads answers without changing a byte of what they carry.

use std::collections::BTreeMap;

use harness::client::Answer;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Acknowledgement, CallAnswer, ForeignAnswer, NoAnswer, RpcError, TaskAnswer, View};

/// A JSON-RPC answer, its payload untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The text of `result`.
    Result(String),
    /// `error`.
    Error(RpcError),
    /// No answer, or none that can be understood.
    Nothing(NoAnswer),
}

#[derive(Deserialize)]
struct Message<'a> {
    method: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "taskId")]
    id: String,
    status: String,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
    #[serde(rename = "inputRequests", default)]
    requests: BTreeMap<String, Box<RawValue>>,
}

impl Reply {
    /// From what the harness' client got, plain or streamed.
    #[must_use]
    pub fn read(answer: &Result<Answer, harness::Error>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Self::nothing(error.to_string()),
        };
        let Ok(body) = std::str::from_utf8(&answer.body) else {
            return Self::nothing("the answer is not UTF-8".to_owned());
        };
        let found = if answer.is_stream() {
            let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
            data.filter_map(Self::of_message).next_back()
        } else {
            Self::of_message(body)
        };
        found.unwrap_or_else(|| Self::nothing(format!("HTTP {}: {body}", answer.status)))
    }

    /// From the text of one message; `None` if it is no response.
    #[must_use]
    pub fn of_message(text: &str) -> Option<Self> {
        let message: Message<'_> = serde_json::from_str(text).ok()?;
        if message.method.is_some() {
            return None;
        }
        match (message.result, message.error) {
            (Some(result), _) => Some(Self::Result(result.get().to_owned())),
            (None, Some(error)) => {
                let value: Value = serde_json::from_str(error.get()).ok()?;
                Some(Self::Error(RpcError {
                    code: value["code"].as_i64().unwrap_or_default(),
                    error: error.get().to_owned(),
                }))
            }
            (None, None) => None,
        }
    }

    fn nothing(why: String) -> Self {
        Self::Nothing(NoAnswer { why })
    }

    /// As the answer to `tools/call`.
    #[must_use]
    pub fn to_call(self) -> CallAnswer {
        let result = match self {
            Self::Error(error) => return CallAnswer::Error(error),
            Self::Nothing(why) => return CallAnswer::NoAnswer(why),
            Self::Result(result) => result,
        };
        let value: Value = serde_json::from_str(&result).unwrap_or_default();
        match (value["resultType"].as_str(), value["taskId"].as_str()) {
            (Some("task"), Some(task)) => CallAnswer::Handle {
                task: task.to_owned(),
            },
            (Some("input_required"), _) => CallAnswer::Asked { result },
            _ => CallAnswer::Inline { result },
        }
    }

    /// As the answer to `tasks/get`.
    #[must_use]
    pub fn to_task(self) -> TaskAnswer {
        match self {
            Self::Error(error) => TaskAnswer::Error(error),
            Self::Nothing(why) => TaskAnswer::NoAnswer(why),
            Self::Result(result) => match View::of(&result) {
                Some(view) => TaskAnswer::Task(view),
                None => TaskAnswer::NoAnswer(NoAnswer { why: result }),
            },
        }
    }

    /// As the answer to `tasks/update` and `tasks/cancel`.
    #[must_use]
    pub fn to_acknowledgement(self) -> Acknowledgement {
        match self {
            Self::Result(_) => Acknowledgement::Done,
            Self::Error(error) => Acknowledgement::Error(error),
            Self::Nothing(why) => Acknowledgement::NoAnswer(why),
        }
    }

    /// As the answer to somebody who asked about another's task.
    #[must_use]
    pub fn to_foreign(self) -> ForeignAnswer {
        match self {
            Self::Result(result) => ForeignAnswer::Shown { result },
            Self::Error(error) => ForeignAnswer::Refused(error),
            Self::Nothing(why) => ForeignAnswer::NoAnswer(why),
        }
    }
}

impl View {
    /// From the text of a task (the result of `tasks/get`, the params of `notifications/tasks`).
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let task: Task = serde_json::from_str(text).ok()?;
        Some(Self {
            id: task.id,
            status: task.status,
            result: task.result.map(|raw| raw.get().to_owned()),
            error: task.error.map(|raw| raw.get().to_owned()),
            keys: task.requests.into_keys().collect(),
        })
    }

    /// From the text of a `notifications/tasks` message; `None` for any other message.
    #[must_use]
    pub fn of_notification(message: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Notification<'a> {
            method: String,
            #[serde(borrow)]
            params: &'a RawValue,
        }
        let message: Notification<'_> = serde_json::from_str(message).ok()?;
        if message.method != "notifications/tasks" {
            return None;
        }
        Self::of(message.params.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_keep_their_bytes() {
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","taskId":"t","status":"completed","result":{ "a" : 1.0}}}"#;
        let TaskAnswer::Task(view) = Reply::of_message(text).unwrap().to_task() else {
            panic!("not a task");
        };
        assert_eq!(view.result.as_deref(), Some(r#"{ "a" : 1.0}"#));
        assert!(view.is_terminal());
    }

    #[test]
    fn errors_handles_and_results_are_told_apart() {
        let handle = r#"{"id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}"#;
        let handle = Reply::of_message(handle).unwrap().to_call();
        assert_eq!(handle, CallAnswer::Handle { task: "t".into() });
        let error = r#"{"id":1,"error":{"code":-32602,"message":"m","data":{"reason":"r"}}}"#;
        let CallAnswer::Error(error) = Reply::of_message(error).unwrap().to_call() else {
            panic!("not an error");
        };
        assert_eq!((error.code, error.reason()), (-32602, "r".to_owned()));
        let notified = r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"input_required","inputRequests":{"b":{},"a":{}}}}"#;
        assert_eq!(Reply::of_message(notified), None);
        assert_eq!(View::of_notification(notified).unwrap().keys, ["a", "b"]);
    }
}
