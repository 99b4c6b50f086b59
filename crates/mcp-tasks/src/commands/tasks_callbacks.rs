//! What a task waits for, or waited for, of services: for `mcp-tasks tasks show`.

use std::time::SystemTime;

use serde_json::{Value, json};
use store::{CallbackShown, TaskShown};

use super::operator::{at, at_maybe, object};

/// The head of what is shown, with what the task waits for.
pub fn waits(mut head: Value, task: &TaskShown, callbacks: &[CallbackShown]) -> Value {
    let queued = task.phase.as_deref() == Some("queued");
    let open = callbacks.iter().find(|callback| {
        queued && callback.waiting_since.is_some() && callback.received_at.is_none()
    });
    if let (Some(open), Some(head)) = (open, head.as_object_mut()) {
        let until = at(open.expires_at);
        let until = until.as_str().unwrap_or_default();
        let what = format!("callback \"{}\" until {until}", open.key);
        head.insert("waits_for".to_owned(), json!(what));
    }
    head
}

/// For programs.
pub fn rows(callbacks: &[CallbackShown]) -> Value {
    let rows = callbacks.iter().map(|callback| {
        object([
            ("key", json!(callback.key)),
            ("opened_at", at(callback.opened_at)),
            ("waiting_since", at_maybe(callback.waiting_since)),
            ("expires_at", at(callback.expires_at)),
            ("received_at", at_maybe(callback.received_at)),
        ])
    });
    rows.collect()
}

/// What happened to them.
pub fn events(callbacks: &[CallbackShown], mut add: impl FnMut(SystemTime, &'static str, String)) {
    for callback in callbacks {
        let key = &callback.key;
        add(callback.opened_at, "callback opened", key.clone());
        if let Some(since) = callback.waiting_since {
            add(since, "waits for callback", key.clone());
        }
        match callback.received_at {
            Some(received) => add(received, "called back", key.clone()),
            None => add(callback.expires_at, "callback due", key.clone()),
        }
    }
}
