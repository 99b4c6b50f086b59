//! What an upstream server says of its own accord: that its list of tools has changed, and in
//! older revisions also questions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::fault::Fault;
use super::http::{Answer, Http};
use super::link::{About, Link, Transport};
use super::message::Message;
use super::pipe::no_call;

/// Between two tries: doubles from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Listens for as long as it is polled; a server that cannot be listened to is looked at again
/// at intervals all the same.
pub(super) async fn listen(link: &Arc<Link>) {
    let mut wait = RETRY.0;
    loop {
        let began = Instant::now();
        let ended = match (&link.transport, link.is_modern()) {
            (Transport::Http(http), false) => hear(link, http).await,
            (_, true) => subscribe(link).await,
            // It says it through its pipe, where we listen in any case.
            (Transport::Pipe(_), false) => std::future::pending().await,
        };
        if let Err(fault) = ended {
            match fault {
                Fault::Misfit(_) | Fault::Refused(_) | Fault::Rpc(_) => {
                    tracing::debug!(answer = fault.text(), "an upstream cannot be listened to");
                    return std::future::pending().await;
                }
                _ => {}
            }
        }
        if began.elapsed() > RETRY.1 {
            wait = RETRY.0;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
        // Something may have been said meanwhile.
        link.floor.notice("notifications/tools/list_changed");
    }
}

/// The stream of a session (MCP 2025-11-25 §Listening for Messages from the Server).
async fn hear(link: &Arc<Link>, http: &Http) -> Result<(), Fault> {
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
    Ok(())
}

/// `subscriptions/listen` (MCP 2026-07-28 §Subscriptions).
async fn subscribe(link: &Arc<Link>) -> Result<(), Fault> {
    let wanted = [("notifications", r#"{"toolsListChanged":true}"#)];
    let exchange = link.begin("subscriptions/listen", &wanted, About::default());
    let mut exchange: Exchange = exchange.await?;
    // Until its last message, the answer: what comes before goes to whom it is for.
    exchange.next().await.map(|_| ())
}
