//! The same actions on a real Postgres.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use protocol::TaskId;
use store::{
    AlertRules, Answer, Begin, Cancel, Claim, ClaimRequest, Config, Created, Ended, Lookup, Parked,
    ParkedFor, Permit, Question, Settled, StepSpec, StopReason, Store, ToolPolicy, UndoSpec,
    UndoStep, UnhintedFilter, Write,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::action::{Action, Ask, Reply, Who, question};
use super::look::{keys, pass_time};
use super::state::{
    GONE, HOLD, Key, Kind, LEASE, Minutes, Model, SHOWN, TOMBSTONE, UNREAD, WORKED, or_none,
};
use crate::support::{self, World, YES};

pub const NO: &str = r#"{"action": "decline"}"#;
const MALFORMED: &str = r#"{"action": "accept", "content": {"charts": "perhaps"}}"#;
/// Idempotency keys.
const KEYS: [&str; 2] = ["0", "1"];
/// More than one sequence makes.
const ALL: i64 = 1000;

fn minutes(minutes: Minutes) -> Duration {
    Duration::from_secs(60 * u64::try_from(minutes).unwrap())
}

/// A claim and what came with it.
struct Held {
    claim: Arc<Claim>,
    permits: VecDeque<Permit>,
    undo: Option<UndoStep>,
}

/// A database for one sequence after the other.
pub struct Real {
    world: World,
    store: Store,
    /// On a connection of its own.
    other: Store,
    client: Client,
    pass_time: String,
    /// What was learned of the current sequence; an action only borrows it for a moment.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ids: BTreeMap<usize, TaskId>,
    held: HashMap<u32, Held>,
}

/// One connection, so that it is old enough to judge leases once it is.
fn config(url: &str) -> Config {
    Config {
        pool_size: 1,
        lease: minutes(LEASE),
        expired_grace: minutes(SHOWN),
        // Two that wait for each other would be told so by Postgres itself, and sooner.
        statement_timeout: Duration::from_secs(60),
        ..support::config(url)
    }
}

fn policy(kind: Kind) -> ToolPolicy {
    ToolPolicy {
        tries_max: u16::try_from(kind.tries_max()).unwrap(),
        on_lost: match kind {
            Kind::Fragile => store::OnLost::Fail,
            Kind::Plain | Kind::Short => store::OnLost::Retry,
        },
        ttl: Some(minutes(kind.ttl())),
        ttl_max: Some(minutes(kind.ttl_max())),
        ..ToolPolicy::default()
    }
}

fn token(token: u32) -> Uuid {
    Uuid::from_u128(token.into())
}

fn wrote(write: Write) -> String {
    format!("{write:?}")
}

fn over(ended: Ended) -> String {
    format!("{ended:?}")
}

fn settled(settled: &Settled) -> String {
    format!("{} undoing {}", settled.reason, settled.undoing)
}

fn gone(lookup: Option<&Lookup>) -> String {
    match lookup {
        Some(Lookup::Expired { final_status, .. }) => format!("Gone({final_status})"),
        Some(Lookup::Found(task)) => panic!("{task:?} is called gone"),
        Some(Lookup::Unknown) | None => "-".to_owned(),
    }
}

fn reply(reply: Reply) -> &'static str {
    match reply {
        Reply::Yes => YES,
        Reply::No => NO,
        Reply::Malformed => MALFORMED,
    }
}

impl Real {
    pub async fn new() -> Real {
        let world = World::new().await;
        let url = world.database.url();
        let (store, other) = (support::store(config(url)), support::store(config(url)));
        let client = world.raw().await;
        let pass_time = pass_time(&client).await;
        let real = Real {
            store,
            other,
            client,
            pass_time,
            world,
            known: Mutex::default(),
        };
        real.grow_old().await;
        real
    }

    /// Until both connections, and the server, are old enough to call a lease run out.
    async fn grow_old(&self) {
        for store in [&self.store, &self.other] {
            let policy = policy(Kind::Plain);
            let created = support::create(store, &self.world.alice, &policy, |_| ());
            let Created::New(task) = created.await else {
                panic!()
            };
            let first = support::claim_as(store, task.id, token(1)).await.unwrap();
            self.world.lose_lease(first.id()).await;
            let stolen = async || support::claim_as(store, task.id, token(2)).await;
            harness::wait::until("leases can run out", support::SECOND * 10, stolen)
                .await
                .unwrap();
        }
        self.forget().await;
    }

    /// An empty database again.
    pub async fn forget(&self) {
        let tables = [
            "tasks",
            "steps",
            "inputs",
            "idempotency_keys",
            "tombstones",
            "alerts",
        ];
        let delete: String = tables.map(|table| format!("DELETE FROM {table};")).concat();
        self.client.batch_execute(&delete).await.unwrap();
        *self.known.lock().unwrap() = Known::default();
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Slots by their tasks' ids, as text.
    pub fn by_id(&self) -> HashMap<String, usize> {
        let known = self.known.lock().unwrap();
        let ids = known.ids.iter();
        ids.map(|(slot, id)| (id.to_string(), *slot)).collect()
    }

    fn id(&self, slot: usize) -> TaskId {
        self.known.lock().unwrap().ids[&slot]
    }

    fn claim(&self, token: u32) -> Arc<Claim> {
        Arc::clone(&self.known.lock().unwrap().held[&token].claim)
    }

    fn with_held<T>(&self, token: u32, f: impl FnOnce(&mut Held) -> T) -> T {
        f(self.known.lock().unwrap().held.get_mut(&token).unwrap())
    }

    fn slots(&self, ids: impl IntoIterator<Item = TaskId>) -> String {
        let known = self.known.lock().unwrap();
        let slot = |id| known.ids.iter().find(|(_, known)| **known == id).unwrap();
        let mut slots: Vec<usize> = ids.into_iter().map(|id| *slot(id).0).collect();
        slots.sort_unstable();
        format!("{slots:?}")
    }

    /// Does it, as the model is before it, and says what is answered.
    pub async fn act(&self, model: &Model, action: &Action) -> String {
        self.act_by(&self.store, model, action).await
    }

    /// The same on the second connection.
    pub async fn act_beside(&self, model: &Model, action: &Action) -> String {
        self.act_by(&self.other, model, action).await
    }

    async fn act_by(&self, store: &Store, model: &Model, action: &Action) -> String {
        match action {
            Action::Create { .. }
            | Action::CreateTwice { .. }
            | Action::HandOut(_)
            | Action::Hold(_)
            | Action::Abandon(_)
            | Action::Answer(..)
            | Action::Cancel(..)
            | Action::MarkFetched(_)
            | Action::DeliveredInline(_)
            | Action::Get(..) => self.of_callers(store, action).await,
            Action::SettleStopped(_)
            | Action::Stoppable
            | Action::Expire
            | Action::EndHolds
            | Action::FailUnanswered
            | Action::VersionGone
            | Action::Unhinted
            | Action::RaiseUnfetched
            | Action::Purge
            | Action::PurgeTombstones
            | Action::Advance(_) => self.of_cron(store, action).await,
            Action::NextUndo(_)
            | Action::BeginUndo(_)
            | Action::FinishUndo(_)
            | Action::RetryUndo(..)
            | Action::FailUndo(_)
            | Action::Undone(_) => self.of_undoing(store, action).await,
            _ => self.of_attempts(store, model, action).await,
        }
    }

    async fn create(
        &self,
        store: &Store,
        slot: usize,
        (key, arguments): (Option<u8>, u8),
        (handed_out, kind): (bool, Kind),
    ) -> String {
        let policy = policy(kind);
        let created = support::create(store, &self.world.alice, &policy, |new| {
            new.idempotency_key = key.map(|key| KEYS[usize::from(key)]);
            new.arguments_digest = [arguments; 32];
            new.handed_out = handed_out;
            new.hold = minutes(HOLD);
        });
        match created.await {
            Created::New(task) => {
                let taken = self.known.lock().unwrap().ids.insert(slot, task.id);
                assert_eq!(taken, None, "two tasks are new");
                format!("New({slot})")
            }
            Created::Existing(task) => {
                // The twin's answer may not be in yet: the id tells.
                let slots = self.slots_or(task.id, slot);
                format!("Existing({slots})")
            }
            Created::KeyReused => "KeyReused".to_owned(),
        }
    }

    fn slots_or(&self, id: TaskId, slot: usize) -> usize {
        let known = self.known.lock().unwrap();
        let found = known.ids.iter().find(|(_, known)| **known == id);
        found.map_or(slot, |(slot, _)| *slot)
    }

    async fn of_callers(&self, store: &Store, action: &Action) -> String {
        let principal = |who| match who {
            Who::Owner => &self.world.alice,
            Who::Foreign => &self.world.mallory,
        };
        match action {
            Action::Create {
                slot,
                key,
                arguments,
                handed_out,
                kind,
            } => {
                let call = (*key, *arguments);
                self.create(store, *slot, call, (*handed_out, *kind)).await
            }
            Action::CreateTwice {
                slot,
                key,
                arguments,
                kind,
            } => {
                let call = (Some(*key), *arguments);
                let (one, two) = tokio::join!(
                    self.create(&self.store, *slot, call, (true, *kind)),
                    self.create(&self.other, *slot, call, (true, *kind)),
                );
                let mut said = [one, two];
                said.sort();
                said.join(" ")
            }
            Action::HandOut(slot) => {
                let handed = store.hand_out(self.id(*slot)).await.unwrap();
                wrote(if handed.is_some() {
                    Write::Done
                } else {
                    Write::Lost
                })
            }
            Action::Hold(slot) => {
                store.hold(&[self.id(*slot)], minutes(HOLD)).await.unwrap();
                wrote(Write::Done)
            }
            Action::Abandon(slot) => {
                let told = store.abandon(&[self.id(*slot)], minutes(HOLD)).await;
                self.slots(told.unwrap())
            }
            Action::Answer(slot, who, replies) => {
                let replies: Vec<_> = replies
                    .iter()
                    .map(|(n, answer)| (question(*n), reply(*answer)))
                    .collect();
                let pairs: Vec<_> = replies.iter().map(|(key, json)| (&**key, *json)).collect();
                let answers = support::answers(&pairs);
                let id = self.id(*slot);
                match store
                    .answer(principal(*who), id, &answers, None)
                    .await
                    .unwrap()
                {
                    Answer::Resumed { .. } => "Resumed".to_owned(),
                    Answer::Waiting => "Waiting".to_owned(),
                    Answer::Ignored => "Ignored".to_owned(),
                    Answer::Malformed { key, .. } => format!("Malformed({key})"),
                    Answer::Gone(lookup) => gone(lookup.as_ref()),
                }
            }
            Action::Cancel(slot, who) => {
                match store.cancel(principal(*who), self.id(*slot)).await.unwrap() {
                    Cancel::Undoing { .. } => "Undoing".to_owned(),
                    Cancel::Gone(lookup) => gone(lookup.as_ref()),
                    other => format!("{other:?}"),
                }
            }
            Action::MarkFetched(slot) => {
                store.mark_fetched(&[self.id(*slot)]).await.unwrap();
                wrote(Write::Done)
            }
            Action::DeliveredInline(slot) => {
                store.delivered_inline(&[self.id(*slot)]).await.unwrap();
                wrote(Write::Done)
            }
            Action::Get(slot, who) => {
                match store.get(principal(*who), self.id(*slot)).await.unwrap() {
                    Lookup::Found(task) => {
                        let asks = task
                            .input_requests
                            .as_deref()
                            .map(keys)
                            .map(|keys| keys.len());
                        let failed = task.error.is_some();
                        format!(
                            "Found({}) asks {} failed {failed}",
                            task.status,
                            or_none(asks)
                        )
                    }
                    other => gone(Some(&other)),
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn of_cron(&self, store: &Store, action: &Action) -> String {
        match action {
            Action::SettleStopped(slot) => {
                let done = store.settle_stopped(&[self.id(*slot)]).await.unwrap();
                or_none(done.first().map(settled))
            }
            Action::Stoppable => self.slots(store.stoppable(ALL).await.unwrap()),
            Action::Expire => {
                let expired = store.expire(ALL).await.unwrap();
                self.slots(expired.iter().map(|task| task.id))
            }
            Action::EndHolds => self.slots(store.end_holds(ALL).await.unwrap()),
            Action::FailUnanswered => {
                let (mut after, mut all) = (None, Vec::new());
                while let Some(id) = store.fail_unanswered(after).await.unwrap() {
                    after = Some(id);
                    all.push(id);
                }
                self.slots(all)
            }
            Action::VersionGone => {
                let gone = store.version_gone(minutes(GONE), ALL).await.unwrap();
                let ended = gone.ended.iter().map(|task| task.id);
                self.slots(gone.stopped.iter().copied().chain(ended))
            }
            Action::Unhinted => {
                let filter = UnhintedFilter {
                    epochs: &[],
                    age: Duration::ZERO,
                    tools: None,
                    limit: ALL,
                };
                let unhinted = store.unhinted(&filter).await.unwrap();
                self.slots(unhinted.into_iter().map(|job| job.id))
            }
            Action::RaiseUnfetched => {
                let rules = AlertRules {
                    receivers: &[],
                    question_receivers: &[],
                    unfetched_after: minutes(UNREAD),
                    question_after: minutes(UNREAD),
                    limit: ALL,
                };
                let (judged, raised) = store.raise_unfetched(&rules).await.unwrap();
                format!("{judged} judged {raised} raised")
            }
            Action::Purge => {
                let purged = store.purge(ALL, minutes(TOMBSTONE)).await;
                purged.unwrap().to_string()
            }
            Action::PurgeTombstones => store.purge_tombstones(ALL).await.unwrap().to_string(),
            Action::Advance(by) => {
                let sql = self.pass_time.replace("$1", &by.to_string());
                self.client.batch_execute(&sql).await.unwrap();
                wrote(Write::Done)
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn of_attempts(&self, store: &Store, model: &Model, action: &Action) -> String {
        if let Action::Claim { slot, token } = action {
            return self.take(store, *slot, *token).await;
        }
        let mine = action.claim().unwrap();
        let claim = &*self.claim(mine);
        let worked = minutes(WORKED);
        match action {
            Action::Heartbeat(_) => {
                let beats = store.heartbeat([claim]).await.unwrap();
                match beats.first() {
                    Some(beat) => format!("beat {}", or_none(beat.stop.map(StopReason::as_str))),
                    None => wrote(Write::Lost),
                }
            }
            Action::Begin(_, key) => self.begin(store, mine, *key, model.seq(mine, *key)).await,
            Action::Finish(_) => {
                let permit = self.with_held(mine, |held| held.permits.pop_front().unwrap());
                wrote(store.finish_step(claim, permit, b"\"out\"").await.unwrap())
            }
            Action::AbandonStep(_) => {
                let permit = self.with_held(mine, |held| held.permits.pop_front().unwrap());
                wrote(store.abandon_step(claim, permit).await.unwrap())
            }
            Action::Progress(_, message) => wrote(store.progress(claim, message).await.unwrap()),
            Action::Park(_, asks) => {
                let questions = questions(asks, model.asked(mine), model.next_seq(mine));
                let parked = store.park(claim, ParkedFor::Task, &questions, worked);
                match parked.await.unwrap() {
                    Parked::Parked => "Parked".to_owned(),
                    Parked::Stop => "Stop".to_owned(),
                }
            }
            Action::RecordAnswer(_) => {
                let (asked, seq) = (model.asked(mine), model.next_seq(mine));
                let ask = Ask {
                    has_default: false,
                    wait: 0,
                };
                let question = questions(&[ask], asked, seq).remove(0);
                let recorded = store.record_answer(claim, &question, YES.as_bytes(), "call");
                wrote(recorded.await.unwrap())
            }
            Action::StopOwn(_) => {
                let told = store.stop_own(claim, StopReason::WorkLimit, None);
                wrote(told.await.unwrap())
            }
            Action::ConfirmStopped(_) => over(store.confirm_stopped(claim).await.unwrap()),
            Action::Complete(_) => {
                let result = format!("\"result of {}\"", claim.attempt());
                let completed = store.complete(claim, result.as_bytes(), worked);
                wrote(completed.await.unwrap())
            }
            Action::Fail(_) => {
                let said = format!("broke {}", claim.attempt());
                let error = serde_json::json!({
                    "code": -32000, "message": said, "data": {"reason": said},
                });
                let error = error.to_string();
                over(
                    store
                        .fail(claim, error.as_bytes(), &said, worked)
                        .await
                        .unwrap(),
                )
            }
            Action::Retry(_, backoff) => {
                let retried = store.retry(claim, "try again", minutes(*backoff), worked);
                wrote(retried.await.unwrap())
            }
            Action::Release(_) => wrote(store.release(claim, None, worked).await.unwrap()),
            other => unreachable!("{other:?}"),
        }
    }

    async fn take(&self, store: &Store, slot: usize, named: u32) -> String {
        let request = ClaimRequest {
            id: self.id(slot),
            tool: "report",
            version: 1,
            resumes: &[1],
            token: token(named),
            worker: "worker-1",
        };
        let Some(claim) = store.claim(&request).await.unwrap() else {
            return "-".to_owned();
        };
        let said = format!(
            "attempt {} tries {} open {} undoing {} journaled {}",
            claim.attempt(),
            claim.tries,
            or_none(claim.open_step.as_ref()),
            claim.undoing,
            claim.journaled,
        );
        let mut known = self.known.lock().unwrap();
        let same = |held: &&mut Held| held.claim.attempt() == claim.attempt();
        if known.held.get_mut(&named).filter(same).is_none() {
            let held = Held {
                claim: Arc::new(claim),
                permits: VecDeque::new(),
                undo: None,
            };
            known.held.insert(named, held);
        }
        said
    }

    async fn begin(&self, store: &Store, mine: u32, key: Key, seq: i32) -> String {
        let claim = self.claim(mine);
        let spec = StepSpec {
            key: key.name(),
            seq,
            idempotent: key.idempotent(),
            undo: key.undoable().then_some(UndoSpec {
                how: b"{\"how\": 1}",
                idempotent: key.idempotent(),
            }),
        };
        match store.begin_step(&claim, spec).await.unwrap() {
            Begin::Act(permit) => {
                self.with_held(mine, |held| held.permits.push_back(permit));
                "Act"
            }
            Begin::InDoubt => "InDoubt",
            Begin::Stop => "Stop",
        }
        .to_owned()
    }

    async fn of_undoing(&self, store: &Store, action: &Action) -> String {
        let mine = action.claim().unwrap();
        let claim = &*self.claim(mine);
        if let Action::NextUndo(_) = action {
            let next = store.next_undo(claim).await.unwrap();
            let said = next
                .as_ref()
                .map(|step| format!("{} started {} tries {}", step.key, step.started, step.tries));
            self.with_held(mine, |held| held.undo = next);
            return or_none(said);
        }
        if let Action::Undone(_) = action {
            return wrote(store.undone(claim).await.unwrap());
        }
        let step = self.with_held(mine, |held| held.undo.clone()).unwrap();
        let write = match action {
            Action::BeginUndo(_) => store.begin_undo(claim, &step).await,
            Action::FinishUndo(_) => store.finish_undo(claim, &step.key).await,
            Action::RetryUndo(_, backoff) => {
                let backoff = minutes(*backoff);
                store.retry_undo(claim, &step.key, "not yet", backoff).await
            }
            Action::FailUndo(_) => store.fail_undo(claim, &step.key, "never").await,
            other => unreachable!("{other:?}"),
        };
        wrote(write.unwrap())
    }

    /// Until nothing of what was asked before still holds a row: a refused transaction is rolled
    /// back after its answer.
    pub async fn calm_down(&self) {
        for store in [&self.store, &self.other] {
            store.ping().await.unwrap();
        }
    }

    /// Holds the row of a task until the connection's transaction ends.
    pub async fn hold_row(&self, slot: usize) {
        let id = self.id(slot);
        let lock = format!("BEGIN; SELECT FROM tasks WHERE id = '{id}' FOR UPDATE");
        self.client.batch_execute(&lock).await.unwrap();
    }

    pub async fn let_go(&self) {
        self.client.batch_execute("COMMIT").await.unwrap();
    }

    /// How many sessions wait for a lock.
    pub async fn waiting(&self) -> usize {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let row = self.client.query_one(sql, &[]).await.unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    }
}

fn questions(asks: &[Ask], asked: usize, seq: i32) -> Vec<Question> {
    let place = |(n, ask): (usize, &Ask)| Question {
        seq,
        default_response: ask.has_default.then(|| Bytes::from_static(NO.as_bytes())),
        wait: minutes(ask.wait),
        ..support::question(&question(asked + n))
    };
    asks.iter().enumerate().map(place).collect()
}
