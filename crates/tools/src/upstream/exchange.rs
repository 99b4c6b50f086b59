//! One request to an upstream server, until its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use protocol::ErrorObject;
use protocol::progress::Progress;
use serde_json::value::RawValue;

use super::fault::Fault;
use super::floor::Inbox;
use super::http::{Answer, Answered};
use super::link::{Link, Transport};
use super::message::{self, Message, Request};
use super::sse::Events;

/// How often a cut stream is taken up again before it is given up.
const RESUMES_MAX: u32 = 5;
/// Before that.
const RESUME_PAUSE: Duration = Duration::from_millis(500);
/// Words that nobody waits for an answer to.
const WORD_WITHIN: Duration = Duration::from_secs(5);
/// The word that a call is given up: well within the grace of who gives it up.
const CANCEL_WITHIN: Duration = Duration::from_secs(2);

type Sending = Pin<Box<dyn Future<Output = Result<Answered, Fault>> + Send>>;

/// A request under way. Dropped, it is given up: over HTTP its connection is closed, which is
/// how a request of 2026-07-28 is cancelled.
pub(super) struct Exchange {
    pub(super) link: Arc<Link>,
    id: i64,
    wire: Wire,
    inbox: Inbox,
}

enum Wire {
    Sending(Sending),
    Streaming(Box<Events>),
    /// Everything comes through the inbox.
    Pipe,
    Over,
}

/// What comes before, or as, the answer.
pub(super) enum Event {
    Progress(Progress),
    /// A question of the server's own, which waits for [`Exchange::answer`].
    Ask(Request),
    Done(Box<RawValue>),
}

impl Exchange {
    pub(super) fn over_http(link: Arc<Link>, id: i64, inbox: Inbox, sending: Sending) -> Self {
        Self {
            link,
            id,
            wire: Wire::Sending(sending),
            inbox,
        }
    }

    pub(super) fn over_pipe(link: Arc<Link>, id: i64, inbox: Inbox) -> Self {
        Self {
            link,
            id,
            wire: Wire::Pipe,
            inbox,
        }
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Result<Event, Fault> {
        let mut resumes = 0;
        loop {
            let message = match &mut self.wire {
                Wire::Over => return Err(Fault::Unknown("has ended the stream".to_owned())),
                Wire::Pipe => self.inbox.next().await.ok_or_else(|| {
                    Fault::Unknown("has ended in the middle of the call".to_owned())
                })?,
                Wire::Sending(sending) => {
                    let answered = tokio::select! {
                        answered = sending => answered,
                        Some(message) = self.inbox.next() => {
                            if let Some(event) = self.sort(message).await? {
                                return Ok(event);
                            }
                            continue;
                        }
                    };
                    match self.answered(answered)? {
                        Some(message) => message,
                        None => continue,
                    }
                }
                Wire::Streaming(events) => {
                    let next = tokio::select! {
                        next = events.next() => next,
                        Some(message) = self.inbox.next() => {
                            if let Some(event) = self.sort(message).await? {
                                return Ok(event);
                            }
                            continue;
                        }
                    };
                    let broken = match next {
                        Ok(Some(event)) => {
                            resumes = 0;
                            let message = Message::read(event.data.as_bytes());
                            if let Some(event) = self.sort(message.map_err(Fault::Garbage)?).await?
                            {
                                return Ok(event);
                            }
                            continue;
                        }
                        Ok(None) => "has ended the stream without an answer".to_owned(),
                        Err(error) => error,
                    };
                    if self.resume(&mut resumes) {
                        continue;
                    }
                    return Err(Fault::Unknown(broken));
                }
            };
            if let Some(event) = self.sort(message).await? {
                return Ok(event);
            }
        }
    }

    fn answered(&mut self, answered: Result<Answered, Fault>) -> Result<Option<Message>, Fault> {
        self.wire = Wire::Over;
        let answered = answered.inspect_err(|fault| {
            if matches!(fault, Fault::Expired) {
                self.link.broken.cancel();
            }
        })?;
        if let Some(session) = answered.session {
            self.link.in_session(session);
        }
        match answered.answer {
            Answer::Message(message) => Ok(Some(message)),
            Answer::Events(events) => {
                self.wire = Wire::Streaming(events);
                Ok(None)
            }
            Answer::Accepted => Err(Fault::Garbage("accepted a request, and no more".to_owned())),
        }
    }

    /// Takes up a cut stream where it broke off, if the server has said how
    /// (MCP 2025-11-25 §Resumability and Redelivery).
    fn resume(&mut self, resumes: &mut u32) -> bool {
        let Wire::Streaming(events) = &self.wire else {
            return false;
        };
        let (Some(last), Transport::Http(http)) = (events.last_id(), &self.link.transport) else {
            return false;
        };
        let Ok(last) = HeaderValue::from_str(last) else {
            return false;
        };
        if self.link.is_modern() || *resumes >= RESUMES_MAX {
            return false;
        }
        *resumes += 1;
        let mut headers = self.link.headers();
        headers.insert(HeaderName::from_static("last-event-id"), last);
        let http = Arc::clone(http);
        self.wire = Wire::Sending(Box::pin(async move {
            let mut tries = 0;
            loop {
                tokio::time::sleep(RESUME_PAUSE).await;
                tries += 1;
                return match http.get(headers.clone()).await {
                    Err(Fault::NotSent(_)) if tries < RESUMES_MAX => continue,
                    // It was called long before: whatever this says, its end is unknown.
                    Err(fault) => Err(Fault::Unknown(format!(
                        "broke off, and its stream cannot be taken up again: it {}",
                        fault.text()
                    ))),
                    answered => answered,
                };
            }
        }));
        true
    }

    /// What a message means for this request; `None` if nothing.
    async fn sort(&mut self, message: Message) -> Result<Option<Event>, Fault> {
        match message {
            Message::Response { id, result } => {
                let ours = id.is_empty() || id == self.id.to_string();
                match result {
                    _ if !ours => Ok(None),
                    Ok(result) => Ok(Some(Event::Done(result))),
                    Err(error) => Err(Fault::Rpc(error)),
                }
            }
            Message::Notification { method, params } => {
                self.link.floor.notice(&method, params.as_deref());
                let params = params.filter(|_| method == "notifications/progress");
                let progress = params.and_then(|params| {
                    let progress: Progress = serde_json::from_str(params.get()).ok()?;
                    Some(Event::Progress(named(progress)))
                });
                Ok(progress)
            }
            Message::Request(request) if request.method == "ping" => {
                let pong = RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
                self.answer(&request.id, &Ok(pong)).await?;
                Ok(None)
            }
            Message::Request(request) => Ok(Some(Event::Ask(request))),
        }
    }

    /// Answers a question of the server's.
    pub(super) async fn answer(
        &mut self,
        id: &RawValue,
        result: &Result<Box<RawValue>, ErrorObject>,
    ) -> Result<(), Fault> {
        let text = message::answer(id, result);
        let told = self.link.tell(text.into());
        match tokio::time::timeout(WORD_WITHIN, told).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(fault)) => Err(Fault::Unknown(format!("took no answer: {}", fault.text()))),
            Err(_) => Err(Fault::Unknown("took no answer in time".to_owned())),
        }
    }

    /// Gives the request up, and says so. Best effort.
    pub(super) async fn cancel(self, why: &str) {
        if self.link.is_modern() && matches!(self.link.transport, Transport::Http(_)) {
            return;
        }
        let (id, why) = (self.id.to_string(), message::string(why));
        let params = message::object([("requestId", id.as_str()), ("reason", &why)]);
        let text = message::outgoing(None, "notifications/cancelled", &params);
        let told = self.link.tell(Bytes::from(text));
        if !matches!(tokio::time::timeout(CANCEL_WITHIN, told).await, Ok(Ok(()))) {
            tracing::debug!("an upstream was not told that a call is cancelled");
        }
    }
}

/// Numbers alone say something too.
fn named(progress: Progress) -> Progress {
    if progress.message.is_some() {
        return progress;
    }
    let done = &progress.progress;
    let message = match &progress.total {
        Some(total) => format!("{done} of {total}"),
        None => done.to_string(),
    };
    progress.with_message(message)
}

/// The headers of a request of 2026-07-28 that mirror its body (SEP-2243).
pub(super) fn mirror(headers: &mut HeaderMap, name: &str, value: &str) {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && value.trim() == value
        && !value.starts_with("=?base64?");
    let value = if plain {
        value.to_owned()
    } else {
        use base64::Engine as _;
        let encoded = base64::prelude::BASE64_STANDARD.encode(value);
        format!("=?base64?{encoded}?=")
    };
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
        headers.insert(name, value);
    }
}
