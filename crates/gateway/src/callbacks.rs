//! `POST /callbacks/{token}`: a service says what came of the work that it took on, or how it goes.
//!
//! Whoever shows a signed address was given it by the task itself; nothing else proves anything here,
//! and who shows none learns nothing, not even whether there is such a task. What is kept, and
//! whether it comes in time, is one transaction's to say, so any replica answers and one call wins.
//!
//! An address is no caller whom anybody knows: whoever got hold of one may be flooding us. So calls are
//! counted by the task that they are for, and all of them together take no more than a part of what
//! there is; and an address that was over long ago opens nothing, before a byte is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use protocol::TaskId;
use protocol::callback::{Keys, Report, Ticket};
use protocol::progress::Progress;
use queue::Lane;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use store::{Called, Pace, Progressed, Received};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Shared;
use crate::admission::{Admission, Place};
use crate::clock;
use crate::config::Limits;
use crate::door::{self, is_json};
use crate::error::Error;
use crate::reply::Body;

/// Of what a service says of its progress.
const MESSAGE_BYTES_MAX: usize = 1024;
/// What clients see changes no more often for that.
const EARLY: Duration = Duration::from_millis(250);
/// So long after its end an address is still looked up: this machine's clock may be wrong, and who
/// repeats what was kept is told so. (Postgres says to the millisecond what came in time.)
const LEEWAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Who may call, and how much may be said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callbacks {
    pub(crate) keys: Keys,
    pub(crate) body_bytes_max: usize,
}

/// How many calls are answered at once and in a while.
pub(crate) struct Calls {
    of_tasks: Admission,
    /// Of all.
    places: Arc<Semaphore>,
}

/// A call that is being answered.
type Places = (Place, OwnedSemaphorePermit);

impl Calls {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            of_tasks: Admission::of_callbacks(limits),
            places: Arc::new(Semaphore::new(limits.callbacks_max)),
        }
    }

    /// A call for this task.
    ///
    /// # Errors
    /// If there are more than there may be, for it or for all.
    fn let_in(&self, task: TaskId) -> Result<Places, Error> {
        let place = self.of_tasks.callback(task)?;
        let permit = Arc::clone(&self.places).try_acquire_owned();
        let permit = permit.map_err(|_| Error::Overloaded { what: "callbacks" })?;
        Ok((place, permit))
    }
}

/// What came of a call; also the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Kept,
    Progress,
    Repeated,
    Used,
    Gone,
    Unknown,
    Refused,
    Limited,
    Unavailable,
}

impl Outcome {
    pub(crate) const ALL: [Self; 9] = [
        Self::Kept,
        Self::Progress,
        Self::Repeated,
        Self::Used,
        Self::Gone,
        Self::Unknown,
        Self::Refused,
        Self::Limited,
        Self::Unavailable,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Progress => "progress",
            Self::Repeated => "repeated",
            Self::Used => "used",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What is answered.
struct Said {
    outcome: Outcome,
    status: StatusCode,
    /// `{"status": …}` or `{"error": …}`.
    body: serde_json::Value,
    retry_after: Option<u64>,
}

impl Said {
    fn well(outcome: Outcome, status: StatusCode, word: &str) -> Self {
        Self {
            outcome,
            status,
            body: json!({ "status": word }),
            retry_after: None,
        }
    }

    fn bad(outcome: Outcome, status: StatusCode, why: impl Into<String>) -> Self {
        let why: String = why.into();
        Self {
            outcome,
            status,
            body: json!({ "error": why }),
            retry_after: None,
        }
    }

    fn refused(status: StatusCode, why: impl Into<String>) -> Self {
        Self::bad(Outcome::Refused, status, why)
    }

    fn gone() -> Self {
        let why = "nobody waits for this any more: it was too late, or the task has ended";
        Self::bad(Outcome::Gone, StatusCode::GONE, why)
    }
}

/// Answers a call at an address; `token` is the last part of it.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    (head, token, body): (&Parts, &str, Incoming),
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let said = match judge(shared, head, token) {
        Ok((ticket, places)) => {
            // A service may send all of it and hang up: that counts as much as any other call, and
            // takes its places as long.
            let own = Arc::clone(shared);
            let length = door::length(&head.headers);
            let answering = async move {
                let _places = (place, places);
                answer(&own, &ticket, (body, length)).await
            };
            match shared.to_its_end(answering).await {
                Ok(said) | Err(said) => said,
            }
        }
        Err(said) => {
            drop(place);
            shared.door.discard(head, body).await;
            said
        }
    };
    let outcome = said.outcome.as_str();
    shared.metrics.callbacks.with_label_values(&[outcome]).inc();
    let mut response = Response::new(Body::of(Bytes::from(said.body.to_string())));
    *response.status_mut() = said.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if said.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(seconds) = said.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Whether the body is worth reading.
fn judge(shared: &Shared, head: &Parts, token: &str) -> Result<(Ticket, Places), Said> {
    let Some(ticket) = shared.callbacks.keys.verify(token) else {
        let why = "there is no such address";
        return Err(Said::bad(Outcome::Unknown, StatusCode::NOT_FOUND, why));
    };
    if head.method != Method::POST {
        let why = "only POST is answered here";
        return Err(Said::refused(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    if !is_json(&head.headers) {
        let why = "Content-Type must be application/json";
        return Err(Said::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    door::check_length(&head.headers, shared.callbacks.body_bytes_max).map_err(unread)?;
    if is_long_over(&ticket, clock::local_ms()) {
        return Err(Said::gone());
    }
    let places = shared.calls.let_in(ticket.task).map_err(unread)?;
    Ok((ticket, places))
}

fn is_long_over(ticket: &Ticket, now_ms: u64) -> bool {
    let expires_ms = u64::try_from(ticket.expires_ms).unwrap_or(0);
    expires_ms.saturating_add(LEEWAY_MS) < now_ms
}

async fn answer(
    shared: &Shared,
    ticket: &Ticket,
    body: (Incoming, Option<usize>),
) -> Result<Said, Said> {
    let mut load = shared.memory.load(None);
    let bytes_max = shared.callbacks.body_bytes_max;
    let read = shared.door.read_within(bytes_max, body, &mut load).await;
    let body = read.map_err(unread)?;
    let report =
        Report::read(&body).map_err(|problem| Said::refused(StatusCode::BAD_REQUEST, problem))?;
    let called = Called {
        id: ticket.task,
        key: &ticket.key,
        expires_ms: ticket.expires_ms,
    };
    match report {
        Report::Progress(progress) => told(shared, called, &progress).await,
        Report::Result(_) => kept(shared, called, &body).await,
    }
}

/// Why a body was not read, in the words of the table.
fn unread(error: Error) -> Said {
    let row = error.row();
    let outcome = match row.status {
        StatusCode::TOO_MANY_REQUESTS => Outcome::Limited,
        _ => Outcome::Refused,
    };
    Said {
        retry_after: row.retry_after,
        ..Said::bad(outcome, row.status, row.error.message)
    }
}

/// The last word: kept once.
async fn kept(shared: &Shared, called: Called<'_>, body: &Bytes) -> Result<Said, Said> {
    let digest: [u8; 32] = Sha256::digest(body).into();
    let epoch = shared.queue.epoch(called.id);
    // Not cut off when the process ends: the end waits for it a while.
    let received = shared
        .store
        .receive_callback(called, (body, &digest), epoch.as_deref())
        .await
        .map_err(|e| away(&e.into()))?;
    if let Received::Kept(Some((tool, version))) | Received::Repeated(Some((tool, version))) =
        &received
    {
        let lane = Lane {
            tool: tool.clone(),
            version: *version,
        };
        shared.hint(&lane, called.id).await;
    }
    match received {
        Received::Kept(_) => {
            tracing::info!(task.id = %called.id, "a service called back");
            Ok(Said::well(Outcome::Kept, StatusCode::OK, "kept"))
        }
        Received::Repeated(_) => Ok(Said::well(Outcome::Repeated, StatusCode::OK, "kept before")),
        Received::Used => {
            let why = "another result came first and was kept";
            Err(Said::bad(Outcome::Used, StatusCode::CONFLICT, why))
        }
        Received::Gone => Err(Said::gone()),
    }
}

/// How it goes: may be said any number of times.
async fn told(shared: &Shared, called: Called<'_>, progress: &Progress) -> Result<Said, Said> {
    let message = match (&progress.message, &progress.total) {
        (Some(message), _) => message.clone(),
        (None, Some(total)) => format!("{} of {total}", progress.progress),
        (None, None) => progress.progress.to_string(),
    };
    let message = cut(&message);
    let telling = async {
        let store = &shared.store;
        match store
            .progress_callback(called, message, Pace::Spare)
            .await?
        {
            // Whoever says much is slowed down, and loses no word.
            Progressed::Early => {
                tokio::time::sleep(EARLY).await;
                Ok(store
                    .progress_callback(called, message, Pace::Insist)
                    .await?)
            }
            told => Ok(told),
        }
    };
    let told = shared.in_time(telling).await.map_err(|e| away(&e))?;
    if told == Progressed::Gone {
        return Err(Said::gone());
    }
    if let Ok(json) = serde_json::to_vec(progress) {
        shared.queue.progress(called.id, &json).await;
    }
    if told == Progressed::News {
        shared.queue.wake(called.id).await;
    }
    Ok(Said::well(Outcome::Progress, StatusCode::ACCEPTED, "told"))
}

/// Nobody can say now: the same call may be made again.
fn away(error: &Error) -> Said {
    let row = error.row();
    error.log(&row);
    Said {
        retry_after: row.retry_after.or(Some(1)),
        ..Said::bad(
            Outcome::Unavailable,
            StatusCode::SERVICE_UNAVAILABLE,
            "not now: call again with the same body",
        )
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_is_cut_between_two_letters() {
        for (said, left) in [
            ("m".repeat(1023), 1023),
            ("m".repeat(1024), 1024),
            ("m".repeat(1025), 1024),
            (format!("m{}", "é".repeat(600)), 1023),
        ] {
            assert_eq!(cut(&said).len(), left);
            assert!(said.starts_with(cut(&said)));
        }
    }

    #[test]
    fn an_address_is_looked_up_for_a_day_after_its_end() {
        let now = 1_790_000_000_000_u64;
        let is_long_over = |expires_ms: i64| {
            let ticket = Ticket {
                task: TaskId::new(0),
                key: "call".to_owned(),
                expires_ms,
            };
            is_long_over(&ticket, now)
        };
        let day_before = i64::try_from(now - LEEWAY_MS).unwrap();
        for expires_ms in [day_before, day_before + 1, i64::MAX] {
            assert!(!is_long_over(expires_ms), "{expires_ms}");
        }
        for expires_ms in [day_before - 1, 0, -1, i64::MIN] {
            assert!(is_long_over(expires_ms), "{expires_ms}");
        }
    }
}
