//! Server-sent events, bounded (WHATWG HTML §9.2.6).

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::web::Hidden;

/// Of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

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
    hidden: Hidden,
}

impl Events {
    pub(super) fn new(body: Body, bytes_max: usize) -> Self {
        Self {
            body,
            parser: Parser::new(bytes_max),
            hidden: Hidden::default(),
        }
    }

    /// Leaves these secrets out of what events say.
    pub(super) fn without(mut self, secrets: &Hidden) -> Self {
        self.hidden = secrets.clone();
        self
    }

    /// The next event; `None` when the stream has ended in good order. Dropped before it is
    /// ready, it has lost nothing.
    ///
    /// # Errors
    /// In words: the stream broke, or an event is too long.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, String> {
        loop {
            if let Some(mut event) = self.parser.next()? {
                event.data = self.hidden.string(event.data);
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
    /// Nothing was read yet: a byte order mark is no part of the first line.
    begins: bool,
    /// The last line ended with CR: an LF that follows belongs to its end.
    after_cr: bool,
    data: Option<String>,
    last_id: Option<String>,
    bytes_max: usize,
}

impl Parser {
    fn new(bytes_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            looked: 0,
            begins: true,
            after_cr: false,
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
                    let data = match &mut self.data {
                        Some(data) => {
                            data.push('\n');
                            data
                        }
                        none => none.insert(String::new()),
                    };
                    data.push_str(value);
                    if data.len() > self.bytes_max {
                        return Err(self.too_long());
                    }
                }
                "id" if value.len() <= 1024 && !value.contains('\0') => {
                    self.last_id = Some(value.to_owned())
                }
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

    /// The next whole line, without its end: LF, CR or CRLF.
    fn line(&mut self) -> Option<BytesMut> {
        if self.begins && !self.begin() {
            return None;
        }
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer.starts_with(b"\n") {
                self.buffer.advance(1);
            }
        }
        let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let Some(found) = self.buffer[self.looked..].iter().position(ends) else {
            self.looked = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.looked + found);
        self.after_cr = self.buffer.first() == Some(&b'\r');
        self.buffer.advance(1);
        self.looked = 0;
        Some(line)
    }

    /// Leaves a byte order mark out; false if that cannot be told yet.
    fn begin(&mut self) -> bool {
        if BYTE_ORDER_MARK.starts_with(&self.buffer) && self.buffer.len() < BYTE_ORDER_MARK.len() {
            return false;
        }
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        }
        self.begins = false;
        true
    }
}

/// What a stream of these pieces says, for fuzzers: the data of its events, the last id, and why
/// reading ended early.
pub(super) fn events<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    bytes_max: usize,
) -> (Vec<String>, Option<String>, Result<(), String>) {
    let mut parser = Parser::new(bytes_max);
    let mut events = Vec::new();
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.next() {
                Ok(Some(event)) => events.push(event.data),
                Ok(None) => break,
                Err(why) => return (events, parser.last_id, Err(why)),
            }
        }
    }
    (events, parser.last_id, Ok(()))
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

    /// WHATWG HTML §9.2.6: three line ends, a byte order mark, an id without zero bytes.
    #[test]
    fn reads_what_the_standard_allows() {
        let text = "\u{feff}data: a\rdata:\r\n\rid: 1\ndata\ndata: b\n\nid: \0\n\u{feff}data: c\n\ndata:\n\n";
        for size in [1, 2, 3, 5, 1000] {
            let (data, last, ended) = events(text.as_bytes().chunks(size), 100);
            assert_eq!(data, ["a\n", "\nb"], "by {size}");
            assert_eq!((last.as_deref(), ended), (Some("1"), Ok(())));
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
