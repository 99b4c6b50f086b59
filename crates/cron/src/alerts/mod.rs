//! I9: what nobody looks at is told. Raising is one claim in Postgres; sending is repeated until
//! the receiver took it, and the receipt is kept: a crash in between leads to a repeat, never to a
//! loss.

mod alertmanager;
pub mod config;
mod http;
mod message;
mod receivers;
mod way;
mod webhook;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use store::{AlertRules, Delivery, Reminder, SendPause};
use tokio_util::sync::CancellationToken;

use crate::{Parts, Swept, trace};
use config::{Config, Kind, Receiver};
use message::Message;
use receivers::{Absent, Failure};
use way::Way;

/// Webhooks and lines sent at a time.
const AT_ONCE: i64 = 8;
/// Longer than sending what is claimed at a time takes; then another sender may have it.
const CLAIM: Duration = Duration::from_secs(30);
/// SendPause of a message that was not taken, doubling to the longer one.
const PAUSE: SendPause = SendPause {
    first: Duration::from_secs(1),
    max: Duration::from_secs(300),
};
/// After this a receiver's further messages are left to the next sweep.
const ROUND: Duration = Duration::from_secs(5);

/// The receivers.
pub(crate) struct Alerts {
    config: Config,
    receivers: BTreeMap<String, Way>,
    absent: Absent,
}

impl Alerts {
    pub(crate) fn new(config: Config) -> Self {
        let named = |receiver: &Receiver| (receiver.name.clone(), Way::new(receiver.clone()));
        Self {
            receivers: config.receivers.iter().map(named).collect(),
            absent: Absent::default(),
            config,
        }
    }

    /// Tells a receiver, and says of each message what came of it.
    async fn send(&self, way: &Way, due: &[Delivery]) -> Vec<(Delivery, Result<(), Failure>)> {
        let messages: Vec<(Delivery, Message)> = due
            .iter()
            .map(|delivery| (delivery.clone(), Message::new(&self.config, delivery)))
            .collect();
        let kind = way.receiver.kind;
        if kind == Kind::Log {
            let told = messages.into_iter().map(|(delivery, message)| {
                log(&message);
                (delivery, Ok(()))
            });
            return told.collect();
        }
        let open = match way.open().await {
            Ok(open) => open,
            Err(problem) => {
                let away = |delivery: &Delivery| (delivery.clone(), Err(away(&problem)));
                return due.iter().map(away).collect();
            }
        };
        if kind == Kind::Alertmanager {
            return alertmanager::send_all(&open, messages).await;
        }
        let sending = futures::stream::iter(messages).map(async |(delivery, message)| {
            let sent = webhook::send(&open, &message).await;
            (delivery, sent)
        });
        let at_once = usize::try_from(AT_ONCE).unwrap_or(1);
        sending.buffer_unordered(at_once).collect().await
    }
}

impl Receiver {
    /// Messages claimed and sent at a time.
    fn at_once(&self) -> i64 {
        match self.kind {
            Kind::Alertmanager => alertmanager::AT_ONCE,
            Kind::Webhook | Kind::Log => AT_ONCE,
        }
    }

    /// What it must be told again though it took it.
    fn repeats(&self) -> Option<Reminder> {
        (self.kind == Kind::Alertmanager).then_some(alertmanager::REPEAT)
    }
}

/// A receiver that cannot even be asked.
fn away(problem: &str) -> Failure {
    Failure::Away(problem.to_owned())
}

fn log(message: &Message) {
    if message.resolved {
        tracing::info!(
            task.id = message.task,
            tool.name = message.tool,
            alert = message.name,
            call.trace_id = message.trace_id,
            "resolved"
        );
    } else {
        tracing::warn!(
            task.id = message.task,
            tool.name = message.tool,
            alert = message.name,
            call.trace_id = message.trace_id,
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
    let (store, raised) = (&parts.store, &parts.metrics.raised);
    // One that fails keeps none of the others from being done.
    let over = super::sweeps::batches(&parts, async || {
        let (judged, new) = store.raise_unfetched(&rules).await?;
        raised.inc_by(u64::try_from(new).unwrap_or(0));
        Ok(u64::try_from(judged).unwrap_or(0))
    })
    .await;
    let live = super::sweeps::batches(&parts, async || {
        let new = u64::try_from(store.raise_live(&rules).await?).unwrap_or(0);
        raised.inc_by(new);
        Ok(new)
    })
    .await;
    let resolved = super::sweeps::batches(&parts, async || {
        Ok(store.resolve_alerts(limit, config.keep).await?)
    })
    .await;
    let purged = super::sweeps::batches(&parts, async || {
        Ok(store.purge_alerts(limit, config.keep).await?)
    })
    .await;
    Ok(over? + live? + resolved? + purged?)
}

/// Sends what is due. Each receiver on its own: one that hangs keeps nobody else's messages.
pub(crate) async fn deliver(parts: Parts) -> Swept {
    let receivers = parts.alerts.receivers.values();
    let others = Others {
        busy: AtomicUsize::new(receivers.len()),
        done: CancellationToken::new(),
    };
    let told = receivers.map(|way| keep_telling(&parts, way, &others));
    // All have ended when the first error is returned.
    join_all(told).await.into_iter().sum()
}

/// Who has not been told once yet in this sweep.
struct Others {
    busy: AtomicUsize,
    done: CancellationToken,
}

/// Tells a receiver, and, while another one takes its time, as often as ever.
async fn keep_telling(parts: &Parts, way: &Way, others: &Others) -> Swept {
    let mut told = tell(parts, way).await;
    if others.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
        others.done.cancel();
    }
    while let Ok(count) = told {
        tokio::select! {
            biased;
            () = others.done.cancelled() => break,
            () = parts.shutdown.cancelled() => break,
            () = tokio::time::sleep(parts.config.deadline_interval) => {}
        }
        told = tell(parts, way).await.map(|more| count + more);
    }
    told
}

/// Sends a receiver what is due, while it takes it.
async fn tell(parts: &Parts, way: &Way) -> Swept {
    let (alerts, store, receiver) = (&parts.alerts, &parts.store, &way.receiver);
    let name = &receiver.name;
    let begun = Instant::now();
    let mut told = 0;
    loop {
        let at_once = alerts
            .absent
            .allows(name, receiver.at_once(), Instant::now());
        if at_once == 0 || begun.elapsed() > ROUND || parts.shutdown.is_cancelled() {
            return Ok(told);
        }
        let due = store.due_deliveries(name, at_once, CLAIM).await?;
        if due.is_empty() {
            return Ok(told);
        }
        told += due.len() as u64;
        let spans = trace::alerts(&due);
        let sent = alerts.send(way, &due).await;
        trace::told(spans, sent.iter().map(|(due, sent)| (due, sent.is_ok())));
        let away =
            |(_, sent): &(Delivery, Result<(), Failure>)| matches!(sent, Err(Failure::Away(_)));
        if sent.iter().all(away) {
            alerts.absent.away(name, Instant::now());
        } else {
            alerts.absent.answered(name);
        }
        receipts(parts, receiver, sent).await?;
    }
}

/// Keeps what came of messages.
async fn receipts(
    parts: &Parts,
    receiver: &Receiver,
    sent: Vec<(Delivery, Result<(), Failure>)>,
) -> Result<(), crate::Error> {
    let count = |outcome: &str, number: usize| {
        let labels = [receiver.name.as_str(), outcome];
        let counter = parts.metrics.deliveries.with_label_values(&labels);
        counter.inc_by(number as u64);
    };
    let mut taken = Vec::new();
    for (delivery, sent) in sent {
        let Err(failure) = sent else {
            taken.push(delivery);
            continue;
        };
        count("failed", 1);
        tracing::warn!(
            receiver = delivery.receiver,
            alert = delivery.alert.fingerprint,
            error = failure.text(),
            "alert not delivered yet"
        );
        let unsent = parts
            .store
            .unsent_delivery(&delivery, PAUSE, failure.text());
        unsent.await?;
    }
    count("delivered", taken.len());
    let repeats = receiver.repeats();
    parts.store.sent_deliveries(&taken, repeats).await?;
    Ok(())
}
