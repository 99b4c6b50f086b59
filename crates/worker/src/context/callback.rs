//! Results that a service sends later: the task waits for them without a worker.

use std::time::Duration;

use bytes::Bytes;
use protocol::callback::{Outcome, Report, Ticket};
use protocol::code::reason;
use serde::Serialize;
use store::{Awaited, JournalKind, NewCallback, Open, Wait};

use super::{Context, unreachable};
use crate::error::ToolError;

/// A callback to open.
#[derive(Clone, Debug)]
pub struct Callback<'a> {
    key: &'a str,
    wait: Duration,
    proves: Option<(&'a str, Bytes)>,
}

impl<'a> Callback<'a> {
    /// An address that can be called for so long, once. The key is unique among the task's
    /// callbacks.
    #[must_use]
    pub fn new(key: &'a str, wait: Duration) -> Self {
        Self {
            key,
            wait,
            proves: None,
        }
    }

    /// The step in which the address is told to the service, and the output that it has if the
    /// service calls before the step's end is journaled: so a worker that is lost in the middle of
    /// it leaves no doubt.
    ///
    /// # Errors
    /// When the output has no JSON form.
    pub fn proves<T: Serialize>(mut self, step: &'a str, output: &T) -> Result<Self, ToolError> {
        let output = serde_json::to_vec(output)
            .map_err(|error| ToolError::refused(format!("output of step \"{step}\": {error}")))?;
        self.proves = Some((step, output.into()));
        Ok(self)
    }
}

/// An open callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    new: NewCallback,
    /// Where to POST the result to: the same at every attempt.
    pub url: String,
    /// Until when, ms since 1970.
    pub expires_ms: i64,
    wait: Duration,
}

impl Context {
    /// Whether services can be told where to call: settings name a public URL and keys.
    #[must_use]
    pub fn can_be_called_back(&self) -> bool {
        self.about.callbacks.is_some()
    }

    /// Makes an address at which a service can say later what came of its work; at a replay it is
    /// the same. Tell it to the service in a step that follows, then [`Context::called_back`].
    ///
    /// # Errors
    /// When callbacks are not configured, that the work shall stop, or that the journal disagrees.
    /// Pass all of them on with `?`.
    pub async fn callback(&mut self, callback: Callback<'_>) -> Result<Address, ToolError> {
        let Some(callbacks) = self.about.callbacks.clone() else {
            return Err(ToolError::refused(
                "no service can call back: set callbacks.public_url and callbacks.keys",
            ));
        };
        let seq = self.next(JournalKind::Callback, callback.key)?;
        if self.replay.callback(seq, callback.key)?.is_none() {
            let output = callback
                .proves
                .as_ref()
                .map_or(0, |(_, output)| output.len());
            let bytes = callback.key.len() + output;
            self.replay
                .add(JournalKind::Callback, callback.key, bytes)?;
        }
        let new = NewCallback {
            key: callback.key.to_owned(),
            seq,
            wait: callback.wait,
            signed_by: callbacks.signing().to_owned(),
            proves: callback
                .proves
                .map(|(step, output)| (step.to_owned(), output)),
        };
        let opened = self.backend.open_callback(&new).await;
        let Open::Open(opened) = opened.map_err(|e| unreachable(&e))? else {
            return Err(ToolError::stopped());
        };
        let ticket = Ticket {
            task: self.about.id,
            key: new.key.clone(),
            expires_ms: opened.expires_ms,
        };
        Ok(Address {
            url: callbacks.url(&ticket, &opened.signed_by),
            new,
            expires_ms: opened.expires_ms,
            wait: callback.wait,
        })
    }

    /// What the service has said already, without waiting: for when the request that told it the
    /// address seems to have failed.
    ///
    /// # Errors
    /// That Postgres cannot be asked. Pass it on with `?`.
    pub async fn received(&mut self, address: &Address) -> Result<Option<Outcome>, ToolError> {
        let opened = self.backend.open_callback(&address.new).await;
        match opened.map_err(|e| unreachable(&e))? {
            Open::Open(opened) if opened.received => {
                let outcome = self.called_back(address, Doubt::Stays, "").await?;
                Ok(Some(outcome))
            }
            Open::Open(_) | Open::Stop => Ok(None),
        }
    }

    /// What the service says came of its work: the job ends here until it does, and starts again
    /// from the top then. `in_doubt`: what the service does meanwhile may take effect though the
    /// task is stopped, which then fails with reason `step_in_doubt` instead of being cancelled.
    /// `message` is what the task says while it waits, if nothing was said since the
    /// address was made.
    ///
    /// # Errors
    /// That the job ended to wait, or that the work shall stop (pass both on with `?`);
    /// `callback_overdue` when the time is over.
    pub async fn called_back(
        &mut self,
        address: &Address,
        doubt: Doubt,
        message: &str,
    ) -> Result<Outcome, ToolError> {
        let wait = Wait {
            key: &address.new.key,
            in_doubt: doubt == Doubt::Stays,
            message: (!message.is_empty()).then_some(message),
        };
        let awaited = self.backend.wait_callback(wait).await;
        match awaited.map_err(|e| unreachable(&e))? {
            Awaited::Received(body) => match Report::read(&body) {
                Ok(Report::Result(outcome)) => Ok(outcome),
                Ok(Report::Progress(_)) => Err(unreadable("it is no result")),
                Err(problem) => Err(unreadable(&problem)),
            },
            Awaited::Waiting => Err(ToolError::parked()),
            Awaited::Overdue => Err(ToolError::reason(
                reason::CALLBACK_OVERDUE,
                format!(
                    "the service took the work on and did not say within {} what came of it{}",
                    humantime(address.wait),
                    match doubt {
                        Doubt::Stays => ": it may still take effect",
                        Doubt::Ends => "",
                    }
                ),
            )),
            Awaited::Stop => Err(ToolError::stopped()),
        }
    }

    /// If this try is to be repeated, then not before so much time has passed; no longer than the
    /// policy's `backoff.max`.
    pub fn retry_after(&mut self, pause: Duration) {
        self.backend.retry_after(pause);
    }
}

/// What becomes of a service's work when its task is stopped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It does no harm, or an undo ends it.
    Ends,
    /// It may still take effect.
    Stays,
}

fn unreadable(problem: &str) -> ToolError {
    ToolError::refused(format!("what the service sent cannot be read: {problem}"))
}

/// `1h 30m`, without the crate.
fn humantime(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3600, "h"),
        (seconds % 3600 / 60, "m"),
        (seconds % 60, "s"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if parts.is_empty() {
        format!("{}ms", duration.as_millis())
    } else {
        parts.join(" ")
    }
}
