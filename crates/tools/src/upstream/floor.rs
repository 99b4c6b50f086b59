//! Who of us waits for what a server says where it does not say to whom: on the pipe of a process,
//! and on the stream of a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::message::{Message, Request};

/// Reports of progress that wait for a slow reader; more are lost.
const REPORTS_MAX: usize = 64;

/// Hears which resource has changed, by its URI at the server.
pub(super) type Updated = Arc<dyn Fn(&str) + Send + Sync>;

/// The requests under way. Clones are the same.
#[derive(Clone)]
pub(super) struct Floor {
    waiting: Arc<Mutex<HashMap<i64, Waiting>>>,
    /// What it lists is another now.
    pub(super) lists_changed: Arc<Notify>,
    updated: Updated,
}

struct Waiting {
    messages: mpsc::UnboundedSender<Message>,
    reports: mpsc::Sender<Message>,
    /// A call of a tool, which may be what a question of the server's is about.
    is_call: bool,
}

/// What comes for one request; gone from the floor when dropped.
pub(super) struct Inbox {
    floor: Floor,
    id: i64,
    messages: mpsc::UnboundedReceiver<Message>,
    reports: mpsc::Receiver<Message>,
}

#[derive(Deserialize)]
struct Changed {
    uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    progress_token: i64,
}

impl Floor {
    /// Nobody waits yet.
    pub(super) fn new(updated: Updated) -> Self {
        Self {
            waiting: Arc::default(),
            lists_changed: Arc::default(),
            updated,
        }
    }

    pub(super) fn enter(&self, id: i64, is_call: bool) -> Inbox {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (reports, reported) = mpsc::channel(REPORTS_MAX);
        let waiting = Waiting {
            messages,
            reports,
            is_call,
        };
        self.lock().insert(id, waiting);
        Inbox {
            floor: self.clone(),
            id,
            messages: inbox,
            reports: reported,
        }
    }

    /// Hands a message to whom it is for. A request that is for nobody, or for one of several,
    /// comes back.
    pub(super) fn deliver(&self, message: Message) -> Option<Request> {
        match message {
            Message::Response { ref id, .. } => {
                if let Ok(id) = id.parse::<i64>()
                    && let Some(waiting) = self.lock().get(&id)
                {
                    // Who has gone does not want it any more.
                    let _ = waiting.messages.send(message);
                }
                None
            }
            Message::Notification {
                ref method,
                ref params,
            } => {
                self.notice(method, params.as_deref());
                if let Some(id) = token(method, params.as_deref())
                    && let Some(waiting) = self.lock().get(&id)
                {
                    let _ = waiting.reports.try_send(message);
                }
                None
            }
            Message::Request(request) => {
                let floor = self.lock();
                let mut calls = floor.values().filter(|waiting| waiting.is_call);
                match (calls.next(), calls.next()) {
                    (Some(only), None) if request.method != "ping" => {
                        let sent = only.messages.send(Message::Request(request.clone()));
                        sent.is_err().then_some(request)
                    }
                    _ => Some(request),
                }
            }
        }
    }

    /// What concerns all.
    pub(super) fn notice(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => self.lists_changed.notify_one(),
            "notifications/resources/updated" => {
                let changed = params.and_then(|params| serde_json::from_str(params.get()).ok());
                if let Some(Changed { uri }) = changed {
                    (self.updated)(&uri);
                }
            }
            _ => {}
        }
    }

    /// Whether no tool is being called.
    pub(super) fn is_quiet(&self) -> bool {
        !self.lock().values().any(|waiting| waiting.is_call)
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose progress it is.
fn token(method: &str, params: Option<&RawValue>) -> Option<i64> {
    if method != "notifications/progress" {
        return None;
    }
    let token: Token = serde_json::from_str(params?.get()).ok()?;
    Some(token.progress_token)
}

impl Inbox {
    /// The next message; `None` when nothing will come any more. Dropped before it is ready, it
    /// has lost nothing.
    pub(super) async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => Some(report),
            message = self.messages.recv() => message,
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.floor.lock().remove(&self.id);
    }
}
