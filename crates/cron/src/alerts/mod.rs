//! I9: what nobody looks at is told. Raising is one claim in Postgres; sending is repeated until
//! the receiver took it, and the receipt is kept: a crash in between leads to a repeat, never to a
//! loss.

mod alertmanager;
pub mod config;
mod http;
mod message;
mod webhook;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use store::{AlertRules, Delivery};

use crate::{Parts, Swept};
use config::{Config, Kind, Receiver};
use message::Message;

/// Sent at a time.
const AT_ONCE: usize = 8;
/// Longer than sending one batch takes; then another sender may have it.
const CLAIM: Duration = Duration::from_secs(120);
/// Pause after a receiver refused, doubling to the longer one.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The receivers.
pub(crate) struct Alerts {
    config: Config,
    receivers: BTreeMap<String, Receiver>,
    client: http::Client,
}

impl Alerts {
    pub(crate) fn new(config: Config) -> Self {
        let named = |receiver: &Receiver| (receiver.name.clone(), receiver.clone());
        Self {
            receivers: config.receivers.iter().map(named).collect(),
            client: http::Client::new(),
            config,
        }
    }

    async fn send(&self, delivery: &Delivery) -> Result<Option<Duration>, String> {
        let receiver = self.receivers.get(&delivery.receiver);
        let receiver = receiver.ok_or("no such receiver any more")?;
        let message = Message::new(&self.config, delivery);
        match receiver.kind {
            Kind::Log => {
                log(&message);
                Ok(None)
            }
            Kind::Alertmanager => alertmanager::send(&self.client, &receiver.url, &message)
                .await
                .map(|()| Some(alertmanager::AGAIN)),
            Kind::Webhook => {
                let to = (receiver.url.as_str(), receiver.secret.as_str());
                webhook::send(&self.client, to, &message)
                    .await
                    .map(|()| None)
            }
        }
    }
}

fn log(message: &Message) {
    if message.resolved {
        tracing::info!(
            task.id = message.task,
            tool.name = message.tool,
            alert = message.name,
            "resolved"
        );
    } else {
        tracing::warn!(
            task.id = message.task,
            tool.name = message.tool,
            alert = message.name,
            reason = message.reason,
            summary = message.summary,
            "alert"
        );
    }
}

/// Raises what is to be told, and ends what is over.
pub(crate) async fn raise(parts: Parts) -> Swept {
    let config = &parts.alerts.config;
    let (receivers, questions) = (config.receivers(), config.question_receivers());
    let limit = parts.config.batch_rows();
    let rules = AlertRules {
        receivers: &receivers,
        question_receivers: &questions,
        unfetched_after: config.unfetched_after,
        question_after: config.question_after,
        limit,
    };
    let store = &parts.store;
    super::sweeps::batches(&parts, async || {
        let (judged, raised) = store.raise_unfetched(&rules).await?;
        parts
            .metrics
            .raised
            .inc_by(u64::try_from(raised).unwrap_or(0));
        Ok(u64::try_from(judged).unwrap_or(0))
    })
    .await?;
    super::sweeps::batches(&parts, async || {
        let raised = u64::try_from(store.raise_live(&rules).await?).unwrap_or(0);
        parts.metrics.raised.inc_by(raised);
        Ok(raised)
    })
    .await?;
    super::sweeps::batches(&parts, async || {
        Ok(store.resolve_alerts(limit, config.keep).await?)
    })
    .await?;
    super::sweeps::batches(&parts, async || {
        Ok(store.purge_alerts(limit, config.keep).await?)
    })
    .await
}

/// Sends what is due.
pub(crate) async fn deliver(parts: Parts) -> Swept {
    let names: Vec<String> = parts.alerts.receivers.keys().cloned().collect();
    super::sweeps::batches(&parts, async || {
        let due = parts
            .store
            .due_deliveries(&names, parts.config.batch_rows(), CLAIM)
            .await?;
        let count = due.len() as u64;
        let sending = futures::stream::iter(due).map(|delivery| one(&parts, delivery));
        let mut sent = sending.buffer_unordered(AT_ONCE);
        while let Some(sent) = sent.next().await {
            sent?;
        }
        Ok(count)
    })
    .await
}

async fn one(parts: &Parts, delivery: Delivery) -> Result<(), crate::Error> {
    let sent = parts.alerts.send(&delivery).await;
    let outcome = if sent.is_ok() { "delivered" } else { "failed" };
    parts
        .metrics
        .deliveries
        .with_label_values(&[delivery.receiver.as_str(), outcome])
        .inc();
    match sent {
        Ok(again) => parts.store.sent_delivery(&delivery, again).await?,
        Err(error) => {
            tracing::warn!(
                receiver = delivery.receiver,
                alert = delivery.alert.fingerprint,
                error,
                "alert not delivered yet"
            );
            let doubled = PAUSE.0.saturating_mul(1 << delivery.tries.clamp(0, 16));
            let pause = doubled.min(PAUSE.1);
            parts
                .store
                .unsent_delivery(&delivery, pause, &error)
                .await?;
        }
    }
    Ok(())
}
