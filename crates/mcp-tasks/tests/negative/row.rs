//! One row of a table: what is sent, and what must come back.

use serde_json::Value;

use crate::request::Request;

/// Which listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A gateway that believes names.
    Open,
    /// A gateway that checks tokens.
    Tokens,
    /// The listener for metrics and probes.
    Admin,
}

/// What must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A JSON-RPC error.
    Error(u16, i64),
    /// A status with `{"error": "…"}`.
    Said(u16),
    /// A status, and no JSON that is looked at.
    Status(u16),
    /// A result: odd, but nothing is wrong with it.
    Result,
    /// Frames of HTTP/2, as [`crate::h2`] tells them.
    Frames(&'static str),
    /// The connection is closed without a word.
    Closed,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub door: Door,
    pub sent: Vec<u8>,
    pub answer: Answer,
    /// What the message must hold.
    pub says: String,
}

/// A row to the endpoint.
pub fn row(name: impl Into<String>, request: &Request, answer: Answer) -> Row {
    raw(name, request.bytes(), answer)
}

/// A row of bytes.
pub fn raw(name: impl Into<String>, sent: impl Into<Vec<u8>>, answer: Answer) -> Row {
    Row {
        name: name.into(),
        door: Door::Open,
        sent: sent.into(),
        answer,
        says: String::new(),
    }
}

impl Row {
    pub fn to(mut self, door: Door) -> Self {
        self.door = door;
        self
    }

    pub fn saying(mut self, text: &str) -> Self {
        text.clone_into(&mut self.says);
        self
    }

    /// Whether it is refused; what answers nothing is accepted and counts for nothing.
    pub fn is_bad(&self) -> bool {
        !matches!(
            self.answer,
            Answer::Result | Answer::Status(202) | Answer::Frames("STATUS 200")
        )
    }

    /// Whether a failure of ours would be taken for right.
    pub fn expects_failure(&self) -> bool {
        match self.answer {
            Answer::Error(status, _) | Answer::Said(status) | Answer::Status(status) => {
                status >= 500
            }
            Answer::Frames(told) => told.starts_with("STATUS 5"),
            Answer::Result | Answer::Closed => false,
        }
    }

    /// Whether the answer comes when something did not come in time.
    pub fn waits(&self) -> bool {
        match self.answer {
            Answer::Error(status, _) | Answer::Said(status) | Answer::Status(status) => {
                status == 408
            }
            Answer::Frames(told) => matches!(told, "" | "STATUS 408"),
            Answer::Closed => true,
            Answer::Result => false,
        }
    }

    /// What is wrong with what came back.
    pub fn judge(&self, got: &[u8]) -> Result<(), String> {
        match &self.answer {
            Answer::Frames(expected) => {
                let told = crate::h2::tell(got);
                return same(&told.as_str(), expected, "");
            }
            Answer::Closed if got.is_empty() => return Ok(()),
            _ => {}
        }
        let text = String::from_utf8_lossy(got);
        let shown: String = text.chars().take(400).collect();
        let Some(status) = status(got) else {
            return Err(format!("no answer: {shown:?}"));
        };
        let body = body(got);
        let json = || -> Result<Value, String> {
            serde_json::from_slice(&body).map_err(|error| format!("no JSON ({error}): {shown}"))
        };
        let message = match &self.answer {
            Answer::Error(wanted, code) => {
                let error = json()?["error"].clone();
                let got = (status, error["code"].as_i64());
                same(&got, &(*wanted, Some(*code)), &shown)?;
                error["message"].clone()
            }
            Answer::Said(wanted) => {
                same(&status, wanted, &shown)?;
                json()?["error"].clone()
            }
            Answer::Status(wanted) => return same(&status, wanted, &shown),
            Answer::Result => {
                same(&status, &200, &shown)?;
                return match text.contains("\"result\":") && !text.contains("\"error\":{\"code\"") {
                    true => Ok(()),
                    false => Err(format!("no result: {shown}")),
                };
            }
            Answer::Frames(_) | Answer::Closed => return Err(format!("an answer: {shown}")),
        };
        let message = message.as_str().unwrap_or_default();
        if message.len() < 8 || message.contains('\n') || message.len() > 1200 {
            return Err(format!("a message that helps nobody: {message:?}"));
        }
        if !message.contains(&self.says) {
            return Err(format!("{message:?} does not say {:?}", self.says));
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(got: &T, wanted: &T, shown: &str) -> Result<(), String> {
    if got == wanted {
        return Ok(());
    }
    Err(format!("{got:?} instead of {wanted:?}: {shown}"))
}

/// The status of the last answer: interim ones (1xx) do not count.
pub fn status(got: &[u8]) -> Option<u16> {
    let rest = final_answer(got).strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(rest.get(2..5)?).ok()?.parse().ok()
}

fn final_answer(got: &[u8]) -> &[u8] {
    let end = b"\r\n\r\n";
    let interim = got.starts_with(b"HTTP/1.1 1");
    match got.windows(end.len()).position(|window| window == end) {
        Some(at) if interim => &got[at + end.len()..],
        _ => got,
    }
}

/// What follows the head, chunks joined.
pub fn body(got: &[u8]) -> Vec<u8> {
    let got = final_answer(got);
    let end = b"\r\n\r\n";
    let Some(at) = got.windows(end.len()).position(|window| window == end) else {
        return Vec::new();
    };
    let (head, mut rest) = (&got[..at], &got[at + end.len()..]);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !head.contains("transfer-encoding: chunked") {
        return rest.to_vec();
    }
    let mut joined = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..line]).into_owned();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let chunk = rest.get(line + 2..line + 2 + size).unwrap_or_default();
        joined.extend_from_slice(chunk);
        if size == 0 {
            break;
        }
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    joined
}
