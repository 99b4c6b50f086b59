//! What receivers are told of an alert: never arguments, answers or results.

use std::time::{Duration, SystemTime};

use protocol::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use store::{Alert, Delivery, DeliveryState, Principal};

use super::config::{Config, NamePrincipal};
use crate::trace;

/// One alert in words and numbers.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) fingerprint: String,
    /// As Prometheus names alerts.
    pub(crate) name: &'static str,
    pub(crate) kind: String,
    pub(crate) tool: String,
    pub(crate) task: String,
    pub(crate) reason: String,
    pub(crate) summary: String,
    pub(crate) principal: Option<String>,
    pub(crate) link: Option<String>,
    /// The page of this kind of alert.
    pub(crate) runbook: Option<String>,
    pub(crate) resolved: bool,
    pub(crate) task_created_at: SystemTime,
    pub(crate) since: SystemTime,
    pub(crate) raised_at: SystemTime,
    pub(crate) resolved_at: Option<SystemTime>,
    /// Postgres' clock.
    pub(crate) now: SystemTime,
    /// The trace of the call that created the task.
    pub(crate) trace_id: Option<String>,
}

impl Message {
    pub(crate) fn new(config: &Config, delivery: &Delivery) -> Self {
        let alert = &delivery.alert;
        let task = alert.task.to_string();
        let age = delivery.now.duration_since(alert.since).unwrap_or_default();
        let (name, summary) = said(alert, age);
        let link = (!config.link.is_empty()).then(|| {
            config
                .link
                .replace("{task_id}", &task)
                .replace("{tool}", &alert.tool)
        });
        Self {
            fingerprint: alert.fingerprint.clone(),
            name,
            kind: alert.kind.clone(),
            tool: alert.tool.clone(),
            reason: alert.reason.clone(),
            principal: named(config.principal, &alert.principal),
            resolved: delivery.state == DeliveryState::Resolving,
            task_created_at: alert.task_created_at,
            since: alert.since,
            raised_at: alert.raised_at,
            resolved_at: alert.resolved_at,
            now: delivery.now,
            trace_id: trace::of_call(delivery).trace_id().map(str::to_owned),
            summary,
            link,
            runbook: (!config.runbooks.is_empty())
                .then(|| format!("{}/{name}.md", config.runbooks.trim_end_matches('/'))),
            task,
        }
    }

    /// As a webhook gets it.
    pub(crate) fn json(&self) -> Value {
        let state = if self.resolved { "resolved" } else { "firing" };
        let time = |at: SystemTime| Timestamp::from(at).to_string();
        let age = self.now.duration_since(self.since).unwrap_or_default();
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("type", json!(format!("{}.{state}", self.kind)));
        put("timestamp", json!(time(self.now)));
        put("fingerprint", json!(self.fingerprint));
        put("summary", json!(self.summary));
        put("tool", json!(self.tool));
        put("taskId", json!(self.task));
        put("reason", json!(self.reason));
        put("taskCreatedAt", json!(time(self.task_created_at)));
        put("since", json!(time(self.since)));
        put("ageSeconds", json!(age.as_secs()));
        if let Some(principal) = &self.principal {
            put("principal", json!(principal));
        }
        if let Some(link) = &self.link {
            put("link", json!(link));
        }
        if let Some(runbook) = &self.runbook {
            put("runbook", json!(runbook));
        }
        Value::Object(object)
    }
}

fn said(alert: &Alert, age: Duration) -> (&'static str, String) {
    let (tool, age) = (&alert.tool, humantime::format_duration(whole(age)));
    match alert.kind.as_str() {
        "unfetched_failure" => (
            "McpTasksUnfetchedFailure",
            format!("a task of {tool} failed {age} ago, and its owner has not read it"),
        ),
        "step_in_doubt" => (
            "McpTasksStepInDoubt",
            format!("a step of {tool} may or may not have taken effect"),
        ),
        "question_asked" => (
            "McpTasksQuestionAsked",
            format!("a task of {tool} waits for an answer"),
        ),
        "question_waiting" => (
            "McpTasksQuestionWaiting",
            format!("a task of {tool} has waited for an answer for {age}"),
        ),
        "over_work_limit" => (
            "McpTasksOverWorkLimit",
            format!("a task of {tool} works beyond its limit and was not stopped"),
        ),
        _ => (
            "McpTasksAttemptsNearMax",
            format!("a task of {tool} is at its last try"),
        ),
    }
}

fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

fn named(how: NamePrincipal, principal: &Principal) -> Option<String> {
    match how {
        NamePrincipal::Omit => None,
        NamePrincipal::Plain => Some(format!("{} {}", principal.issuer, principal.subject)),
        NamePrincipal::Hash => {
            let mut hash = Sha256::new();
            hash.update(&principal.issuer);
            hash.update([0]);
            hash.update(&principal.subject);
            let hex: String = hash.finalize()[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            Some(hex)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that people can look up, without the database telling it to receivers.
    #[test]
    fn the_owner_is_named_as_set() {
        let owner = |issuer: &str, subject: &str| {
            Principal::verified(issuer.to_owned(), subject.to_owned(), None)
        };
        let alice = owner("https://id.example.com", "alice@example.com");
        assert_eq!(named(NamePrincipal::Omit, &alice), None);
        assert_eq!(
            named(NamePrincipal::Plain, &alice).as_deref(),
            Some("https://id.example.com alice@example.com")
        );
        let hash = named(NamePrincipal::Hash, &alice).unwrap();
        // printf 'https://id.example.com\0alice@example.com' | sha256sum | cut -c1-16
        assert_eq!(hash, "abc6fa3855140c1a");
        assert_ne!(
            named(NamePrincipal::Hash, &owner("a", "bc")),
            named(NamePrincipal::Hash, &owner("ab", "c")),
            "issuer and subject do not run together"
        );
    }
}
