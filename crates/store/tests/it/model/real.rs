//! The same actions on a real Postgres.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use protocol::TaskId;
use store::{
    Claim, Config, Created, Encryption, Ended, Lookup, Permit, Question, Settled, Store,
    ToolPolicy, UndoStep, Write,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::action::{Action, Ask, Reply, question};
use super::look::pass_time;
use super::opened::{self, SEALED_BY};
use super::state::{HOLD, Kind, LEASE, Minutes, Model, SHOWN};
use crate::support::{self, World, YES};

mod attempts;
mod callers;

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
    /// What wraps the keys of tasks, if they are sealed.
    master: Option<[u8; 32]>,
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
        Self::with(&Encryption::default()).await
    }

    /// One in which tasks are sealed.
    pub async fn sealed() -> Real {
        Self::with(&support::encryption(&[SEALED_BY])).await
    }

    async fn with(keys: &Encryption) -> Real {
        let world = World::new().await;
        let url = world.database.url();
        let new = || support::store(config(url)).with_encryption(keys);
        let (store, other) = (new(), new());
        let master = keys.keys.first().map(|key| opened::bytes(&key.key));
        let client = world.raw().await;
        let pass_time = pass_time(&client).await;
        let real = Real {
            store,
            other,
            client,
            pass_time,
            master: master.map(|master| master.try_into().unwrap()),
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

    pub fn master(&self) -> Option<&[u8; 32]> {
        self.master.as_ref()
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
