//! From what a method says to what goes over HTTP: status, headers, one line of JSON or a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use protocol::RequestId;
use protocol::jsonrpc;
use tokio::sync::mpsc;

use crate::Shared;
use crate::admission::Place;
use crate::connection::{Busy, Connection};
use crate::deliveries::Mark;
use crate::error::Error;
use crate::memory::FREE;
use crate::metrics::Meter;
use crate::stream::{EventStream, Message, Next};
use crate::trace;

/// For how long others may keep a public document.
const DOCUMENT_CACHED: &str = "public, max-age=300";

/// What a method answers when nothing is wrong with the request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A result: the JSON text of an object.
    Result {
        json: Bytes,
        mark: Option<Mark>,
        /// Metric label `outcome`.
        label: &'static str,
    },
    /// The stored JSON-RPC error of a task.
    Failed {
        error: Bytes,
        mark: Option<Mark>,
        /// Metric label `outcome`.
        label: &'static str,
    },
}

impl Reply {
    /// A result without consequences.
    pub(crate) fn ok(json: Bytes) -> Self {
        Self::Result {
            json,
            mark: None,
            label: "ok",
        }
    }
}

/// A finished request.
pub(crate) struct Finished {
    status: StatusCode,
    message: Message,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// An answer, whole or open.
pub(crate) enum Answer {
    Whole(Finished),
    Stream(EventStream),
    /// An accepted notification.
    Accepted,
    /// A public document, the same for everybody.
    Document(Bytes),
}

impl Finished {
    /// The message alone, for a stream whose HTTP status left long ago.
    pub(crate) fn into_message(self) -> Message {
        self.message
    }

    /// Ends a request: logs a refusal once, and tells the meter.
    pub(crate) fn new(
        id: Option<&RequestId>,
        result: Result<Reply, Error>,
        meter: &mut Meter,
    ) -> Self {
        match result {
            Ok(Reply::Result { json, mark, label }) => {
                meter.outcome(label);
                trace::answered(label);
                let id = id.expect("only requests are answered with a result");
                Self::ok(jsonrpc::response(id, &json), mark, meter)
            }
            Ok(Reply::Failed { error, mark, label }) => {
                meter.failed(label, &error);
                trace::failed(label);
                Self::ok(jsonrpc::error_response_raw(id, &error), mark, meter)
            }
            Err(error) => Self::refused(id, &error, meter),
        }
    }

    fn ok(json: Bytes, mark: Option<Mark>, meter: &Meter) -> Self {
        let json = one_line(json);
        let json = match &meter.load {
            Some(load) => load.weigh(json),
            None => json,
        };
        Self {
            status: StatusCode::OK,
            message: Message { json, mark },
            headers: Vec::new(),
        }
    }

    fn refused(id: Option<&RequestId>, error: &Error, meter: &mut Meter) -> Self {
        let row = error.row();
        error.log(&row);
        trace::refused(&row);
        meter.refused(&row);
        let mut headers = Vec::new();
        if let Some(seconds) = row.retry_after {
            headers.push((RETRY_AFTER, HeaderValue::from(seconds)));
        }
        match error {
            Error::MethodNotAllowed => headers.push((ALLOW, HeaderValue::from_static("POST"))),
            // What is left of the body is not worth reading.
            Error::BodyTooLarge { .. } | Error::BodyTimeout | Error::BodyBroken => {
                headers.push((CONNECTION, HeaderValue::from_static("close")));
            }
            _ => {}
        }
        Self {
            status: row.status,
            message: Message {
                json: one_line(jsonrpc::error_response(id, &row.error)),
                mark: None,
            },
            headers,
        }
    }

    /// The same as an error of HTTP, where no request is there to be answered.
    pub(crate) fn into_http_error(mut self) -> Self {
        if self.status == StatusCode::OK {
            self.status = StatusCode::BAD_REQUEST;
        }
        self
    }

    /// With the challenge that a 401 or 403 carries (RFC 6750 §3).
    pub(crate) fn challenged(mut self, challenge: Option<String>) -> Self {
        let value = challenge.and_then(|text| HeaderValue::from_str(&text).ok());
        self.headers
            .extend(value.map(|value| (WWW_AUTHENTICATE, value)));
        self
    }
}

/// JSON without raw line breaks, which stored JSON may have between its tokens: a stream's
/// message is one line, and inside of strings they are escaped anyway.
pub(crate) fn one_line(json: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &json).is_none() {
        return json;
    }
    json.iter()
        .map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        })
        .collect()
}

impl Answer {
    /// As HTTP. `place`: of whoever asked, among those who are being answered.
    pub(crate) fn into_response(
        self,
        connection: Arc<Connection>,
        place: Option<Place>,
    ) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let json = HeaderValue::from_static("application/json");
        match self {
            Self::Accepted => *response.status_mut() = StatusCode::ACCEPTED,
            Self::Document(document) => {
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, json);
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(DOCUMENT_CACHED));
                // Pages of any origin may read what anybody may.
                let any = HeaderValue::from_static("*");
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, any);
                *response.body_mut() = Body::of(document);
                return response;
            }
            Self::Whole(finished) => {
                *response.status_mut() = finished.status;
                response.headers_mut().extend(finished.headers);
                response.headers_mut().insert(CONTENT_TYPE, json);
                *response.body_mut() = Body {
                    kind: Kind::Whole(Some(finished.message)),
                    connection: Some(connection),
                    place,
                    _busy: None,
                };
            }
            Self::Stream(stream) => {
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                headers.insert(
                    HeaderName::from_static("x-accel-buffering"),
                    HeaderValue::from_static("no"),
                );
                *response.body_mut() = Body {
                    kind: Kind::Stream(Box::new(stream), Vec::new()),
                    connection: Some(connection),
                    place: None,
                    _busy: None,
                };
            }
        }
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The answer to what waits for something: plain JSON if it ends soon, else a stream if the client
/// reads one. What runs belongs to the answer, so it ends with the connection.
pub(crate) async fn once_ended(
    shared: &Shared,
    streams: bool,
    mut messages: mpsc::Receiver<Message>,
    running: impl Future<Output = Finished> + Send + 'static,
) -> Answer {
    let mut running = Box::pin(running);
    if !streams {
        return Answer::Whole(running.await);
    }
    let keep_alive = shared.config.keep_alive;
    let first = tokio::select! {
        biased;
        Some(first) = messages.recv() => Some(first),
        finished = &mut running => {
            if messages.is_empty() {
                return Answer::Whole(finished);
            }
            let last = finished.into_message();
            return Answer::Stream(EventStream::ended(messages, last, keep_alive));
        }
        () = tokio::time::sleep(shared.config.stream_after) => None,
    };
    let running = Box::pin(async move { running.await.into_message() });
    let stream = EventStream::new(messages, running, keep_alive);
    Answer::Stream(stream.beginning_with(first))
}

/// The body of an answer; tells its connection when its last bytes are on their way, and keeps it busy
/// until then.
pub(crate) struct Body {
    kind: Kind,
    connection: Option<Arc<Connection>>,
    /// Until it is known how the answer is sent.
    place: Option<Place>,
    _busy: Option<Busy>,
}

enum Kind {
    Whole(Option<Message>),
    /// And the pieces of its current event that are still to come, the last one first.
    Stream(Box<EventStream>, Vec<Bytes>),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self {
            kind: Kind::Whole(None),
            connection: None,
            place: None,
            _busy: None,
        }
    }

    /// A body of its own, for answers that no method gives.
    pub(crate) fn of(json: Bytes) -> Self {
        Self {
            kind: Kind::Whole(Some(Message { json, mark: None })),
            connection: None,
            place: None,
            _busy: None,
        }
    }

    /// The same over this connection; the request is being answered until this was taken. Over HTTP/2 what was taken
    /// may still wait for the client, and counts as being answered until then.
    pub(crate) fn keeping(mut self, busy: Busy, connection: &Connection) -> Self {
        let place = self.place.take();
        if let Kind::Whole(Some(message)) = &mut self.kind {
            let json = std::mem::take(&mut message.json);
            message.json = match connection.is_multiplexed() {
                true => connection.unwritten().watch(json, place),
                false => connection.unwritten().watch_large(json),
            };
        }
        Self {
            _busy: Some(busy),
            ..self
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let (bytes, mark) = match &mut this.kind {
            Kind::Whole(message) => match message.take() {
                None => return Poll::Ready(None),
                Some(message) => (message.json, message.mark),
            },
            Kind::Stream(stream, rest) => match rest.pop() {
                Some(piece) => (piece, stream.mark_of_last(rest.is_empty())),
                None => match std::task::ready!(stream.poll_next(cx)) {
                    Next::End => return Poll::Ready(None),
                    Next::Comment => (Bytes::from_static(b": still here\n\n"), None),
                    Next::Message(message) if message.json.len() > FREE => {
                        // Not copied: it is counted as long as it is there.
                        let json = match &this.connection {
                            Some(connection) => connection.unwritten().watch_large(message.json),
                            None => message.json,
                        };
                        *rest = vec![Bytes::from_static(b"\n\n"), json];
                        stream.marked = message.mark;
                        (Bytes::from_static(b"data: "), None)
                    }
                    Next::Message(message) => {
                        let event = event(&message.json);
                        let event = match &this.connection {
                            Some(connection) if connection.is_multiplexed() => {
                                connection.unwritten().watch(event, None)
                            }
                            _ => event,
                        };
                        (event, message.mark)
                    }
                },
            },
        };
        if let (Some(mark), Some(connection)) = (mark, &this.connection) {
            connection.sending(mark);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(message) => {
                SizeHint::with_exact(message.as_ref().map_or(0, |m| m.json.len() as u64))
            }
            Kind::Stream(..) => SizeHint::default(),
        }
    }
}

/// One event (WHATWG HTML §9.2.6). The message is one line.
fn event(json: &Bytes) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_printed_json_becomes_one_line() {
        let pretty = Bytes::from_static(b"{\r\n  \"a\": \"x\\ny\"\n}");
        assert_eq!(&one_line(pretty)[..], b"{    \"a\": \"x\\ny\" }");
        let plain = Bytes::from_static(b"{}");
        assert_eq!(
            one_line(plain.clone()).as_ptr(),
            plain.as_ptr(),
            "not copied"
        );
    }
}
