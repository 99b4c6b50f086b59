//! Prometheus Alertmanager, `POST /api/v2/alerts`. It forgets what is not said again, so a firing
//! alert is sent until it is over.

use std::time::Duration;

use bytes::Bytes;
use protocol::Timestamp;
use serde_json::{Value, json};
use store::{Delivery, Reminder};

use super::http::Request;
use super::message::Message;
use super::receivers::Failure;
use super::way::Open;

/// Alerts of one request, as Prometheus sends them.
pub(crate) const AT_ONCE: i64 = 64;
/// A firing alert is sent again before it is forgotten. So is its end, for as long: an Alertmanager
/// that is restarted right after it was told, or whose clock is late, would not tell it.
pub(crate) const REPEAT: Reminder = Reminder {
    every: Duration::from_secs(60),
    end_for: ENDS_AFTER,
};
/// After this without another sending it counts as over: a cron that is away for minutes must not
/// look like a task that was read.
const ENDS_AFTER: Duration = Duration::from_secs(15 * 60);

/// Sends all in one request; one by one if that is refused, for one of them may be why.
pub(crate) async fn send_all(
    way: &Open,
    messages: Vec<(Delivery, Message)>,
) -> Vec<(Delivery, Result<(), Failure>)> {
    let sent = send(way, messages.iter().map(|(_, message)| message)).await;
    let mut all = Vec::with_capacity(messages.len());
    let one_is_why = matches!(sent, Err(Failure::Refused(_))) && messages.len() > 1;
    for (delivery, message) in messages {
        let sent = if one_is_why {
            send(way, [&message]).await
        } else {
            sent.clone()
        };
        all.push((delivery, sent));
    }
    all
}

async fn send(way: &Open, messages: impl IntoIterator<Item = &Message>) -> Result<(), Failure> {
    let url = format!("{}/api/v2/alerts", way.url.trim_end_matches('/'));
    let body = Value::Array(messages.into_iter().map(alert).collect()).to_string();
    way.client
        .post(Request {
            url,
            headers: Vec::new(),
            body: Bytes::from(body),
        })
        .await
}

fn alert(message: &Message) -> Value {
    let ends = match (message.resolved, message.resolved_at) {
        (true, at) => at.unwrap_or(message.now),
        (false, _) => message.now + ENDS_AFTER,
    };
    let mut annotations = json!({ "summary": message.summary });
    if let Some(principal) = &message.principal {
        annotations["principal"] = json!(principal);
    }
    if let Some(link) = &message.link {
        annotations["link"] = json!(link);
    }
    if let Some(runbook) = &message.runbook {
        annotations["runbook_url"] = json!(runbook);
    }
    let mut alert = json!({
        "labels": {
            "alertname": message.name,
            "severity": "warning",
            "tool": message.tool,
            "task_id": message.task,
            "reason": message.reason,
            "fingerprint": message.fingerprint,
        },
        "annotations": annotations,
        "startsAt": Timestamp::from(message.since.min(message.raised_at)).to_string(),
        "endsAt": Timestamp::from(ends).to_string(),
    });
    if let Some(link) = &message.link {
        alert["generatorURL"] = json!(link);
    }
    alert
}
