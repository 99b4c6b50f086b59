//! Prometheus Alertmanager, `POST /api/v2/alerts`. It forgets what is not said again, so a firing
//! alert is sent until it is over.

use std::time::Duration;

use bytes::Bytes;
use protocol::Timestamp;
use serde_json::{Value, json};

use super::http::{Client, Request};
use super::message::Message;

/// Between two sendings of a firing alert.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
/// After this without another sending it counts as over: a cron that is away for minutes must not
/// look like a task that was read.
const ENDS_AFTER: Duration = Duration::from_secs(15 * 60);

pub(crate) async fn send(client: &Client, url: &str, message: &Message) -> Result<(), String> {
    let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
    let body = Value::Array(vec![alert(message)]).to_string();
    client
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
