//! The line protocol: one JSON object a line, each way.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use protocol::progress::Progress;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// A line, at most.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// From the program.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Said {
    /// How the work goes.
    Progress {
        message: Option<String>,
        progress: Option<Number>,
        total: Option<Number>,
    },
    /// Where a later run may go on.
    Checkpoint { value: Value },
    /// It wants to do something externally visible.
    Step {
        key: String,
        #[serde(default)]
        idempotent: bool,
        /// The program can undo it.
        undo: Option<UndoSaid>,
    },
    /// It has done it, or has not.
    End {
        key: String,
        #[serde(default)]
        output: Value,
        /// It did not happen, and why.
        error: Option<String>,
        /// It may be tried again later.
        #[serde(default)]
        retry: bool,
    },
    /// It needs an answer, or several: `questions` instead of the members of one.
    Ask {
        key: Option<String>,
        message: Option<String>,
        schema: Option<Value>,
        default: Option<Value>,
        questions: Option<Vec<Asked>>,
        /// Before there is a task.
        #[serde(default)]
        first: bool,
    },
    /// The call's result.
    Result {
        text: Option<String>,
        structured: Option<Value>,
        #[serde(default)]
        error: bool,
    },
}

/// How a step is undone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoSaid {
    /// What the program needs to know then.
    #[serde(default)]
    pub(super) data: Value,
    /// The undo may be repeated when its end is unknown.
    #[serde(default)]
    pub(super) idempotent: bool,
}

/// One question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) key: String,
    pub(super) message: String,
    pub(super) schema: Value,
    /// The content that an absent person is taken to have accepted.
    pub(super) default: Option<Value>,
}

impl Said {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Progress { .. } => "progress",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Step { .. } => "step",
            Self::End { .. } => "end",
            Self::Ask { .. } => "ask",
            Self::Result { .. } => "result",
        }
    }
}

/// As the worker counts, where the program does not.
pub(super) fn progress(
    count: u64,
    message: Option<String>,
    progress: Option<Number>,
    total: Option<Number>,
) -> Progress {
    let mut report = Progress::new(progress.unwrap_or_else(|| count.into()));
    report.total = total;
    report.message = message;
    report
}

/// To the program.
#[derive(Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Told<'a> {
    /// The first line.
    Start {
        task: &'a str,
        attempt: i32,
        arguments: &'a RawValue,
        answers: &'a Map<String, Value>,
        steps: &'a BTreeMap<String, Value>,
        checkpoint: &'a Value,
        /// Whether this caller can be asked; else there are only defaults.
        can_ask: bool,
    },
    /// The first line of a run that is to undo one step, and nothing else.
    Undo {
        task: &'a str,
        attempt: i32,
        arguments: &'a RawValue,
        key: &'a str,
        data: &'a Value,
        output: &'a Value,
        idempotency_key: &'a str,
    },
    /// The step may be done, now.
    Go {
        key: &'a str,
        idempotency_key: &'a str,
    },
    /// An earlier run has done the step.
    Done { key: &'a str, output: &'a Value },
    /// The question has been answered: the whole response.
    Answer { key: &'a str, response: &'a Value },
    /// All questions that were asked together have been answered.
    Answers {
        responses: BTreeMap<&'a str, &'a Value>,
    },
    /// The work shall stop.
    Stop,
}

impl Told<'_> {
    pub(super) fn line(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).expect("its keys are texts");
        line.push(b'\n');
        Bytes::from(line)
    }
}

/// Takes lines off what a program writes.
#[derive(Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Of the last line that was taken, from 1.
    number: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None` until more is there.
    ///
    /// # Errors
    /// With what is wrong with the line.
    pub(super) fn next(&mut self) -> Result<Option<Said>, String> {
        loop {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                if self.buffer.len() > LINE_BYTES_MAX {
                    let number = self.number + 1;
                    return Err(format!(
                        "line {number} is longer than {LINE_BYTES_MAX} bytes"
                    ));
                }
                return Ok(None);
            };
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            if let Some(said) = self.read(&line)? {
                return Ok(Some(said));
            }
        }
    }

    /// The last line, if it lacks its end.
    ///
    /// # Errors
    /// As [`Lines::next`].
    pub(super) fn last(&mut self) -> Result<Option<Said>, String> {
        let line = self.buffer.split();
        self.read(&line)
    }

    fn read(&mut self, line: &[u8]) -> Result<Option<Said>, String> {
        self.number += 1;
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(line).map(Some).map_err(|error| {
            let shown: String = String::from_utf8_lossy(line).chars().take(80).collect();
            format!("line {} is no message ({error}): {shown}", self.number)
        })
    }
}

/// What a program's output in these pieces says, for fuzzers: its messages, and why reading ended
/// early.
pub fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Result<(), String>) {
    let (mut lines, mut said) = (Lines::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        loop {
            match lines.next() {
                Ok(Some(message)) => said.push(format!("{message:?}")),
                Ok(None) => break,
                Err(why) => return (said, Err(why)),
            }
        }
    }
    match lines.last() {
        Ok(message) => said.extend(message.map(|message| format!("{message:?}"))),
        Err(why) => return (said, Err(why)),
    }
    (said, Ok(()))
}
