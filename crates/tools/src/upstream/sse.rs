//! Server-sent events, bounded (WHATWG HTML §9.2.6).

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// A response's body; errors in words.
pub(super) type Body = UnsyncBoxBody<Bytes, String>;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its data, lines joined.
    pub(super) data: String,
}

/// The events of one body.
pub(super) struct Events {
    body: Body,
    parser: Parser,
}

impl Events {
    pub(super) fn new(body: Body, bytes_max: usize) -> Self {
        Self {
            body,
            parser: Parser::new(bytes_max),
        }
    }

    /// The next event; `None` when the stream has ended in good order. Dropped before it is
    /// ready, it has lost nothing.
    ///
    /// # Errors
    /// In words: the stream broke, or an event is too long.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, String> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.feed(&data);
                    }
                }
            }
        }
    }

    /// The id of the last event that had one: where a cut stream can be taken up again.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.parser.last_id.as_deref()
    }
}

struct Parser {
    buffer: BytesMut,
    /// How much of the buffer holds no line end.
    looked: usize,
    data: Option<String>,
    last_id: Option<String>,
    bytes_max: usize,
}

impl Parser {
    fn new(bytes_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            looked: 0,
            data: None,
            last_id: None,
            bytes_max,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Event>, String> {
        while let Some(line) = self.line() {
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.is_empty() {
                if let Some(data) = self.data.take().filter(|data| !data.is_empty()) {
                    return Ok(Some(Event { data }));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    let data = self.data.get_or_insert_default();
                    if !data.is_empty() {
                        data.push('\n');
                    }
                    data.push_str(value);
                    if data.len() > self.bytes_max {
                        return Err(self.too_long());
                    }
                }
                "id" if value.len() <= 1024 => self.last_id = Some(value.to_owned()),
                _ => {}
            }
        }
        if self.buffer.len() > self.bytes_max.saturating_add(16) {
            return Err(self.too_long());
        }
        Ok(None)
    }

    fn too_long(&self) -> String {
        format!(
            "sent more than the {} bytes allowed for one message",
            self.bytes_max
        )
    }

    /// The next whole line, without its end: LF or CRLF.
    fn line(&mut self) -> Option<BytesMut> {
        let Some(found) = self.buffer[self.looked..].iter().position(|b| *b == b'\n') else {
            self.looked = self.buffer.len();
            return None;
        };
        let mut line = self.buffer.split_to(self.looked + found);
        self.buffer.advance(1);
        self.looked = 0;
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_events_however_they_are_cut() {
        let text = ": hello\r\nid: 1\r\ndata:\r\n\r\nevent: message\ndata: {\"a\":\ndata:  1}\n\nid: 2\ndata: b\n\n";
        for size in [1, 3, 1000] {
            let mut parser = Parser::new(100);
            let mut data = Vec::new();
            for part in text.as_bytes().chunks(size) {
                parser.feed(part);
                while let Some(event) = parser.next().unwrap() {
                    data.push(event.data);
                }
            }
            assert_eq!(data, ["{\"a\":\n 1}", "b"]);
            assert_eq!(parser.last_id.as_deref(), Some("2"));
        }
    }

    #[test]
    fn what_never_ends_is_given_up() {
        for text in ["data: ", "", "data: x\n"] {
            let mut parser = Parser::new(100);
            let mut bytes = 0;
            let given_up = (0..1000).any(|_| {
                parser.feed(if text.ends_with('\n') {
                    b"data: x\n"
                } else {
                    b"xxxxxxxx"
                });
                bytes += 8;
                parser.next().is_err()
            });
            assert!(given_up && bytes < 1000, "{text}");
        }
    }
}
