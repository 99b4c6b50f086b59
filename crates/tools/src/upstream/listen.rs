//! What an upstream server says of its own accord: that what it lists has changed, or a resource
//! that somebody listens to; and in older revisions also questions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use worker::ToolSet;

use super::exchange::Exchange;
use super::fault::Fault;
use super::http::{Answer, Http};
use super::link::{About, Link, Transport};
use super::message::{self, Message};
use super::pipe::no_call;
use super::source::Source;

/// Between two tries: doubles from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Listens for as long as it is polled; a server that cannot be listened to is looked at again
/// at intervals all the same.
pub(super) async fn listen(link: &Arc<Link>, source: &Source, tools: &ToolSet) {
    // A connection before this one may have missed what was said.
    for uri in source.wanted.borrow().iter() {
        source.updated(uri, tools);
    }
    if link.is_modern() {
        return again(link, source, tools, || subscribe(link, source)).await;
    }
    let hearing = async {
        match &link.transport {
            Transport::Http(http) => again(link, source, tools, || hear(link, http)).await,
            // It says it through its pipe, where we listen in any case.
            Transport::Pipe(_) => std::future::pending().await,
        }
    };
    tokio::join!(hearing, subscribe_each(link, source));
}

/// Listens again when it has ended, for ever.
async fn again<F>(link: &Link, source: &Source, tools: &ToolSet, listen: impl Fn() -> F)
where
    F: Future<Output = Result<Ended, Fault>>,
{
    let mut wait = RETRY.0;
    loop {
        let began = Instant::now();
        match listen().await {
            Ok(Ended::WantsMore) => continue,
            Ok(Ended::Closed) => {}
            Err(fault @ (Fault::Misfit(_) | Fault::Refused(_) | Fault::Rpc(_))) => {
                tracing::debug!(answer = fault.text(), "an upstream cannot be listened to");
                return std::future::pending().await;
            }
            Err(_) => {}
        }
        if began.elapsed() > RETRY.1 {
            wait = RETRY.0;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
        // Something may have been said meanwhile.
        link.floor.lists_changed.notify_one();
        for uri in source.wanted.borrow().iter() {
            source.updated(uri, tools);
        }
    }
}

enum Ended {
    Closed,
    /// Others are wanted than it was told.
    WantsMore,
}

/// The stream of a session (MCP 2025-11-25 §Listening for Messages from the Server).
async fn hear(link: &Arc<Link>, http: &Http) -> Result<Ended, Fault> {
    let answered = http.get(link.headers()).await.inspect_err(|fault| {
        if matches!(fault, Fault::Expired) {
            link.broken.cancel();
        }
    })?;
    let Answer::Events(mut events) = answered.answer else {
        return Err(Fault::Misfit("answers GET without a stream".to_owned()));
    };
    while let Some(event) = events.next().await.map_err(Fault::Unknown)? {
        let Ok(message) = Message::read(event.data.as_bytes()) else {
            continue;
        };
        if let Some(request) = link.floor.deliver(message) {
            link.tell(no_call(&request).into()).await?;
        }
    }
    Ok(Ended::Closed)
}

/// `subscriptions/listen` (MCP 2026-07-28 §Subscriptions).
async fn subscribe(link: &Arc<Link>, source: &Source) -> Result<Ended, Fault> {
    let mut changes = source.wanted.subscribe();
    let mut notifications = json!({});
    for (capability, kind) in [
        ("/tools", "toolsListChanged"),
        ("/resources", "resourcesListChanged"),
        ("/prompts", "promptsListChanged"),
    ] {
        if capability == "/tools" || link.serves(capability) {
            notifications[kind] = json!(true);
        }
    }
    let wanted = changes.borrow_and_update().clone();
    if !wanted.is_empty() {
        notifications["resourceSubscriptions"] = json!(wanted);
    }
    let notifications = notifications.to_string();
    let members = [("notifications", notifications.as_str())];
    let exchange = link.begin("subscriptions/listen", &members, About::default());
    let mut exchange: Exchange = exchange.await?;
    tokio::select! {
        // Until its last message, the answer: what comes before goes to whom it is for.
        ended = exchange.next() => ended.map(|_| Ended::Closed),
        _ = changes.changed() => {
            exchange.cancel("other resources are wanted").await;
            Ok(Ended::WantsMore)
        }
    }
}

/// `resources/subscribe`, for each (MCP 2025-11-25 §Resources, Subscriptions).
async fn subscribe_each(link: &Arc<Link>, source: &Source) {
    let mut changes = source.wanted.subscribe();
    let mut known: BTreeSet<String> = BTreeSet::new();
    while link.serves("/resources/subscribe") {
        let wanted = changes.borrow_and_update().clone();
        for (method, uri) in wanted
            .difference(&known)
            .map(|uri| ("resources/subscribe", uri))
            .chain(
                known
                    .difference(&wanted)
                    .map(|uri| ("resources/unsubscribe", uri)),
            )
        {
            let text = message::string(uri);
            let members = [("uri", text.as_str())];
            let asked = link
                .ask(method, &members, None, source.config.timeout)
                .await;
            if let Err(fault) = asked {
                tracing::debug!(method, answer = fault.text(), "an upstream refuses");
            }
        }
        known = wanted;
        if changes.changed().await.is_err() {
            break;
        }
    }
    std::future::pending().await
}
