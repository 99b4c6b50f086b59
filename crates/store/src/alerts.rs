//! I9: what nobody looks at is told, once, and the receipt is kept.

use std::time::{Duration, SystemTime};

use protocol::TaskId;
use uuid::Uuid;

use crate::config::{ms, text};
use crate::pool::{sql, with_connection};
use crate::task::Principal;
use crate::{Error, Store};

/// Who is told of what, and when.
#[derive(Clone, Debug)]
pub struct AlertRules<'a> {
    /// Receivers of alerts, by name.
    pub receivers: &'a [String],
    /// Receivers of every new question.
    pub question_receivers: &'a [String],
    /// A failure not read for this long is told, where the tool does not say.
    pub unfetched_after: Duration,
    /// A question that waits for this long is told.
    pub question_after: Duration,
    /// Alerts raised by one statement, at most.
    pub limit: i64,
}

/// One message to one receiver, claimed by whoever got it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The receiver's name.
    pub receiver: String,
    /// Whether it fires, or is over.
    pub state: DeliveryState,
    /// Tries since the last that arrived, this one included.
    pub tries: i32,
    /// The alert.
    pub alert: Alert,
    /// The trace of the call that created the task (JSON object), while there is the task.
    pub trace_context: Option<bytes::Bytes>,
    /// Postgres' clock.
    pub now: SystemTime,
}

/// What a receiver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is so.
    Firing,
    /// It is not so any more.
    Resolving,
}

impl DeliveryState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolving => "resolving",
        }
    }
}

/// What a receiver is told again though it took it.
#[derive(Clone, Copy, Debug)]
pub struct Reminder {
    /// Between two sendings.
    pub every: Duration,
    /// That it is over, for so long from then on.
    pub end_for: Duration,
}

/// How long a message waits that was not taken.
#[derive(Clone, Copy, Debug)]
pub struct SendPause {
    /// After the first try; doubles with every further one.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

/// A fact that somebody should know.
#[derive(Clone, Debug)]
pub struct Alert {
    /// Its row.
    pub id: Uuid,
    /// The same for the same fact: tells a repeat.
    pub fingerprint: String,
    /// `unfetched_failure`, `step_in_doubt`, `question_asked`, `question_waiting`,
    /// `over_work_limit` or `attempts_near_max`.
    pub kind: String,
    /// The task.
    pub task: TaskId,
    /// Its owner.
    pub principal: Principal,
    /// Its tool.
    pub tool: String,
    /// Why, in a word of ours; never what a tool said.
    pub reason: String,
    /// Creation of the task.
    pub task_created_at: SystemTime,
    /// Since when it is so.
    pub since: SystemTime,
    /// When it was found.
    pub raised_at: SystemTime,
    /// When it was over.
    pub resolved_at: Option<SystemTime>,
}

/// Unread failures of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfetched {
    /// The tool.
    pub tool: String,
    /// How many.
    pub failures: i64,
    /// Age of the oldest.
    pub oldest: Duration,
}

impl Store {
    /// Raises what is to be told of tasks that are over; says how many were judged, and raised.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn raise_unfetched(&self, rules: &AlertRules<'_>) -> Result<(i64, i64), Error> {
        match self.judge(rules, rules.limit, None).await {
            Err(error) => {
                let find = |tried| self.unjudged(rules, tried);
                let act = async |id| Ok(vec![self.judge(rules, 1, Some(id)).await?]);
                let each = self.one_by_one(error, rules.limit, find, act).await?;
                let sum = |all: (i64, i64), one: &(i64, i64)| (all.0 + one.0, all.1 + one.1);
                Ok(each.iter().fold((0, 0), sum))
            }
            judged => judged,
        }
    }

    async fn judge(
        &self,
        rules: &AlertRules<'_>,
        limit: i64,
        only: Option<TaskId>,
    ) -> Result<(i64, i64), Error> {
        let (after, only) = (ms(rules.unfetched_after), only.map(|id| *id.as_uuid()));
        with_connection!(self, "raise_unfetched", |connection| {
            let statement = connection.prepare_cached(sql!("raise_unfetched")).await?;
            let row = connection
                .query_one(&statement, &[&limit, &after, &rules.receivers, &only])
                .await?;
            Ok((row.get("judged"), row.get("raised")))
        })
    }

    async fn unjudged(
        &self,
        rules: &AlertRules<'_>,
        tried: Vec<Uuid>,
    ) -> Result<Vec<TaskId>, Error> {
        let after = ms(rules.unfetched_after);
        with_connection!(self, "unjudged", |connection| {
            let statement = connection.prepare_cached(sql!("unjudged")).await?;
            let rows = connection
                .query(&statement, &[&rules.limit, &after, &tried])
                .await?;
            Ok(crate::expire::ids(&rows))
        })
    }

    /// Raises what is to be told of live tasks; says how many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn raise_live(&self, rules: &AlertRules<'_>) -> Result<i64, Error> {
        let after = ms(rules.question_after);
        with_connection!(self, "raise_live", |connection| {
            let statement = connection.prepare_cached(sql!("raise_live")).await?;
            let row = connection
                .query_one(
                    &statement,
                    &[
                        &rules.limit,
                        &after,
                        &rules.receivers,
                        &rules.question_receivers,
                    ],
                )
                .await?;
            Ok(row.get("raised"))
        })
    }

    /// Ends alerts whose fact is not so any more, or that nobody cared for within `keep`; says
    /// how many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn resolve_alerts(&self, limit: i64, keep: Duration) -> Result<u64, Error> {
        let keep_ms = ms(keep);
        with_connection!(self, "resolve_alerts", |connection| {
            let statement = connection.prepare_cached(sql!("resolve_alerts")).await?;
            Ok(connection.execute(&statement, &[&limit, &keep_ms]).await?)
        })
    }

    /// Messages to send now, to this receiver; nobody else gets them for `claim`.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn due_deliveries(
        &self,
        receiver: &str,
        limit: i64,
        claim: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        let claim_ms = ms(claim);
        with_connection!(self, "due_deliveries", |connection| {
            let statement = connection.prepare_cached(sql!("due_deliveries")).await?;
            let rows = connection
                .query(&statement, &[&limit, &receiver, &claim_ms])
                .await?;
            Ok(rows
                .iter()
                .map(|row| Delivery {
                    receiver: row.get("receiver"),
                    state: match row.get("state") {
                        "resolving" => DeliveryState::Resolving,
                        _ => DeliveryState::Firing,
                    },
                    tries: row.get("tries"),
                    now: row.get("now"),
                    trace_context: crate::row::bytes(row, "trace_context"),
                    alert: Alert {
                        id: row.get("id"),
                        fingerprint: row.get("fingerprint"),
                        kind: row.get("kind"),
                        task: TaskId::from_uuid(row.get("task_id")),
                        principal: Principal::verified(row.get("issuer"), row.get("subject"), None),
                        tool: row.get("tool"),
                        reason: row.get("reason"),
                        task_created_at: row.get("task_created_at"),
                        since: row.get("since"),
                        raised_at: row.get("raised_at"),
                        resolved_at: row.get("resolved_at"),
                    },
                })
                .collect())
        })
    }

    /// The receiver took these; `repeat` says what it is told again all the same.
    ///
    /// # Errors
    /// When Postgres could not be asked; they are then sent once more.
    pub async fn sent_deliveries(
        &self,
        deliveries: &[Delivery],
        repeat: Option<Reminder>,
    ) -> Result<(), Error> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let column = |of: fn(&Delivery) -> &str| deliveries.iter().map(of).collect::<Vec<&str>>();
        let ids: Vec<Uuid> = deliveries.iter().map(|one| one.alert.id).collect();
        let receivers = column(|delivery| &delivery.receiver);
        let states = column(|delivery| delivery.state.as_str());
        let every = repeat.map(|repeat| ms(repeat.every));
        let end_for = repeat.map(|repeat| ms(repeat.end_for));
        with_connection!(self, "sent_deliveries", |connection| {
            let statement = connection.prepare_cached(sql!("sent_deliveries")).await?;
            connection
                .execute(&statement, &[&ids, &receivers, &states, &every, &end_for])
                .await?;
            Ok(())
        })
    }

    /// The receiver did not take it; again after a pause.
    ///
    /// # Errors
    /// When Postgres could not be asked; it is then sent again when its claim is over.
    pub async fn unsent_delivery(
        &self,
        delivery: &Delivery,
        pause: SendPause,
        error: &str,
    ) -> Result<(), Error> {
        let (first, max, error) = (ms(pause.first), ms(pause.max), text(error));
        with_connection!(self, "unsent_delivery", |connection| {
            let statement = connection.prepare_cached(sql!("unsent_delivery")).await?;
            let (id, receiver) = (&delivery.alert.id, &delivery.receiver);
            connection
                .execute(&statement, &[id, receiver, &first, &max, &error])
                .await?;
            Ok(())
        })
    }

    /// Forgets alerts that are over for `keep`; says how many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn purge_alerts(&self, limit: i64, keep: Duration) -> Result<u64, Error> {
        let keep_ms = ms(keep);
        with_connection!(self, "purge_alerts", |connection| {
            let statement = connection.prepare_cached(sql!("purge_alerts")).await?;
            Ok(connection.execute(&statement, &[&limit, &keep_ms]).await?)
        })
    }

    /// Failures that their owner has not read, by tool.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn unfetched(&self) -> Result<Vec<Unfetched>, Error> {
        with_connection!(self, "unfetched", |connection| {
            let statement = connection.prepare_cached(sql!("unfetched")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .map(|row| Unfetched {
                    tool: row.get("tool"),
                    failures: row.get("failures"),
                    oldest: Duration::from_millis(
                        u64::try_from(row.get::<_, i64>("oldest_ms")).unwrap_or(0),
                    ),
                })
                .collect())
        })
    }
}
