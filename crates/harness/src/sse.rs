//! Reads a `text/event-stream` body as it arrives (WHATWG HTML, "Server-sent events").

use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::http::failed;

/// Something that arrived on a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The data of an event, as JSON.
    Message(Value),
    /// A comment line, without its colon: the keep-alive.
    Comment(String),
}

/// The same before anybody has read the data.
enum Piece {
    Data(String),
    Comment(String),
}

/// An open answer. Dropping it closes the connection, which is how a client cancels a call.
#[derive(Debug)]
pub struct Stream {
    /// HTTP status code.
    pub status: u16,
    /// HTTP headers.
    pub headers: HeaderMap,
    url: String,
    body: Incoming,
    buffer: BytesMut,
    data: String,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(url: String, response: http::Response<Incoming>) -> Stream {
        let (head, body) = response.into_parts();
        Stream {
            status: head.status.as_u16(),
            headers: head.headers,
            url,
            body,
            buffer: BytesMut::new(),
            data: String::new(),
            ended: false,
        }
    }

    /// The next message; comments are skipped. `None` when the server has ended the stream.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none arrives within `within`, [`Error::Http`] if the connection breaks.
    pub async fn next(&mut self, within: Duration) -> Result<Option<Value>> {
        let message = async {
            loop {
                match self.event().await? {
                    Some(Event::Comment(_)) => {}
                    Some(Event::Message(value)) => return Ok(Some(value)),
                    None => return Ok(None),
                }
            }
        };
        let late = |_| Error::Timeout {
            what: "next message".into(),
            after: within,
            log: None,
        };
        tokio::time::timeout(within, message).await.map_err(late)?
    }

    /// The next message that `good` accepts; others are dropped.
    ///
    /// # Errors
    /// As [`Stream::next`], and [`Error::Failed`] if the stream ends before.
    pub async fn find(
        &mut self,
        within: Duration,
        mut good: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        let found = async {
            loop {
                match self.next(within).await? {
                    Some(value) if good(&value) => return Ok(value),
                    Some(_) => {}
                    None => {
                        let what = "stream ended before the message".to_owned();
                        return Err(Error::Failed { what, log: None });
                    }
                }
            }
        };
        let late = |_| Error::Timeout {
            what: "message".into(),
            after: within,
            log: None,
        };
        tokio::time::timeout(within, found).await.map_err(late)?
    }

    /// The very text of the next message, for those who compare bytes; comments are skipped. `None`
    /// when the server has ended the stream.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none arrives within `within`, [`Error::Http`] if the connection breaks.
    pub async fn text(&mut self, within: Duration) -> Result<Option<String>> {
        let text = async {
            loop {
                match self.piece().await? {
                    Some(Piece::Comment(_)) => {}
                    Some(Piece::Data(text)) => return Ok(Some(text)),
                    None => return Ok(None),
                }
            }
        };
        let late = |_| Error::Timeout {
            what: "next message".into(),
            after: within,
            log: None,
        };
        tokio::time::timeout(within, text).await.map_err(late)?
    }

    /// The next message or comment. `None` when the server has ended the stream.
    ///
    /// # Errors
    /// [`Error::Http`] if the connection breaks, [`Error::Failed`] if the data is not JSON.
    pub async fn event(&mut self) -> Result<Option<Event>> {
        let data = match self.piece().await? {
            None => return Ok(None),
            Some(Piece::Comment(comment)) => return Ok(Some(Event::Comment(comment))),
            Some(Piece::Data(data)) => data,
        };
        let value = serde_json::from_str(&data).map_err(|error| Error::Failed {
            what: format!("event data is not JSON ({error}): {data}"),
            log: None,
        })?;
        Ok(Some(Event::Message(value)))
    }

    async fn piece(&mut self) -> Result<Option<Piece>> {
        loop {
            while let Some(line) = self.line() {
                if let Some(piece) = self.take(&line) {
                    return Ok(Some(piece));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                None => self.ended = true,
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(failed(&self.url, &error)),
            }
        }
    }

    /// One whole line without its end, once it is there.
    fn line(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line = self.buffer.split_to(end);
        self.buffer.advance(1);
        Some(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned())
    }

    /// Takes in a line; an empty one ends an event.
    fn take(&mut self, line: &str) -> Option<Piece> {
        if let Some(comment) = line.strip_prefix(':') {
            return Some(Piece::Comment(comment.trim_start().to_owned()));
        }
        if let Some(data) = line.strip_prefix("data:") {
            if !self.data.is_empty() {
                self.data.push('\n');
            }
            self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        }
        if !line.is_empty() || self.data.is_empty() {
            return None;
        }
        Some(Piece::Data(std::mem::take(&mut self.data)))
    }
}
