//! A migrated database with a store over it, and the shortest way to a task in any state.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use harness::postgres::Database;
use protocol::TaskId;
use serde_json::value::RawValue;
use store::{
    Begin, Claim, ClaimRequest, Config, Created, Encryption, EncryptionKey, Lookup, NewTask,
    Parked, ParkedFor, Permit, Principal, Question, StepSpec, Store, Task, ToolPolicy,
};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const NO_WORK: Duration = Duration::ZERO;

/// One test's database.
pub struct World {
    pub store: Store,
    pub database: Database,
    pub alice: Principal,
    pub mallory: Principal,
}

pub fn principal(subject: &str) -> Principal {
    Principal::verified("https://issuer".to_owned(), subject.to_owned(), None)
}

/// Short leases, so that the grace after an outage is short as well (1.2 s).
pub fn config(url: &str) -> Config {
    Config {
        url: url.to_owned(),
        pool_size: 8,
        lease: Duration::from_millis(600),
        heartbeat: Duration::from_millis(200),
        ..Config::default()
    }
}

pub fn store(config: Config) -> Store {
    Store::new(config, &telemetry::Registry::new()).unwrap()
}

/// Settings with these keys, the first of which seals.
pub fn encryption(ids: &[&str]) -> Encryption {
    let key = |id: &&str| EncryptionKey {
        id: (*id).to_owned(),
        key: format!("{:02x}", id.bytes().fold(0_u8, u8::wrapping_add)).repeat(32),
        key_file: None,
    };
    Encryption {
        keys: ids.iter().map(key).collect(),
        seal: true,
    }
}

pub fn task_id() -> TaskId {
    TaskId::new(1_790_000_000_000)
}

/// Random, as workers and sweepers choose theirs.
pub fn token() -> Uuid {
    *task_id().as_uuid()
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    store::migrate::migrate(&config(&url)).await.map(drop)
}

/// A connection of its own, for whatever the store does not do.
#[expect(
    clippy::disallowed_methods,
    reason = "a test's connection ends with its runtime"
)]
pub async fn raw(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl World {
    pub async fn new() -> World {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        World {
            store: store(config(database.url())),
            database,
            alice: principal("alice"),
            mallory: principal("mallory"),
        }
    }

    pub async fn raw(&self) -> Client {
        raw(self.database.url()).await
    }

    /// The first column of the first row, as text.
    pub async fn value(&self, sql: &str) -> Option<String> {
        let rows = self.database.rows(sql).await.unwrap();
        rows.into_iter().next()?.into_iter().next()?
    }

    pub async fn run(&self, sql: &str) {
        self.database.rows(sql).await.unwrap();
    }

    /// One column of a task, as text.
    pub async fn column(&self, id: TaskId, column: &str) -> Option<String> {
        self.value(&format!("SELECT {column} FROM tasks WHERE id = '{id}'"))
            .await
    }

    pub async fn set(&self, id: TaskId, assignments: &str) {
        self.run(&format!("UPDATE tasks SET {assignments} WHERE id = '{id}'"))
            .await;
    }

    pub async fn create(
        &self,
        policy: &ToolPolicy,
        change: impl FnOnce(&mut NewTask<'_>),
    ) -> Created {
        create(&self.store, &self.alice, policy, change).await
    }

    /// A queued task of Alice's with a handle.
    pub async fn queued(&self) -> TaskId {
        self.queued_with(&ToolPolicy::default()).await
    }

    pub async fn queued_with(&self, policy: &ToolPolicy) -> TaskId {
        match self.create(policy, |_| ()).await {
            Created::New(task) => task.id,
            other => panic!("{other:?}"),
        }
    }

    pub async fn running(&self) -> Claim {
        let id = self.queued().await;
        self.claim(id).await.unwrap()
    }

    pub async fn running_with(&self, policy: &ToolPolicy) -> Claim {
        let id = self.queued_with(policy).await;
        self.claim(id).await.unwrap()
    }

    pub async fn claim(&self, id: TaskId) -> Option<Claim> {
        claim_as(&self.store, id, token()).await
    }

    /// Lets the lease run out and takes the task over, as soon as the grace is over.
    pub async fn steal(&self, id: TaskId) -> Claim {
        self.lose_lease(id).await;
        harness::wait::until("a lost job is claimed", 10 * SECOND, async || {
            self.claim(id).await
        })
        .await
        .unwrap()
    }

    pub async fn lose_lease(&self, id: TaskId) {
        self.set(id, "lease_until = now() - interval '1 second'")
            .await;
    }

    pub async fn parked(&self, questions: &[Question]) -> (TaskId, Claim) {
        let claim = self.running().await;
        let parked = self
            .store
            .park(&claim, ParkedFor::Task, questions, NO_WORK)
            .await
            .unwrap();
        assert_eq!(parked, Parked::Parked);
        (claim.id(), claim)
    }

    pub async fn begin(&self, claim: &Claim, key: &str) -> Permit {
        match self.store.begin_step(claim, step(key)).await.unwrap() {
            Begin::Act(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    pub async fn get(&self, id: TaskId) -> Task {
        match self.store.get(&self.alice, id).await.unwrap() {
            Lookup::Found(task) => *task,
            other => panic!("{other:?}"),
        }
    }

    pub async fn error_reason(&self, id: TaskId) -> String {
        let task = self.get(id).await;
        assert_eq!(task.status, protocol::TaskStatus::Failed);
        let error: serde_json::Value = serde_json::from_slice(&task.error.unwrap()).unwrap();
        assert!(error["code"].is_i64(), "{error}");
        assert_eq!(error["message"].as_str(), task.status_message.as_deref());
        error["data"]["reason"].as_str().unwrap().to_owned()
    }

    /// Until so many sessions of this database wait for a lock.
    pub async fn waiting(&self, sessions: u32) {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        harness::wait::for_state(
            "sessions wait for a lock",
            10 * SECOND,
            async || self.value(sql).await,
            |count| *count == Some(sessions.to_string()),
        )
        .await
        .unwrap();
    }
}

pub async fn create(
    store: &Store,
    principal: &Principal,
    policy: &ToolPolicy,
    change: impl FnOnce(&mut NewTask<'_>),
) -> Created {
    let mut new = NewTask {
        id: task_id(),
        principal,
        tool: "report",
        tool_version: 1,
        policy,
        arguments: Bytes::from_static(b"{\"month\": \"may\"}"),
        arguments_digest: [7; 32],
        client_capabilities: Bytes::from_static(b"{\"elicitation\":{}}"),
        offered_responses: None,
        trace_context: None,
        idempotency_key: None,
        status_message: "queued",
        hold: HOUR,
        handed_out: true,
        hint_epoch: Some("epoch".to_owned()),
    };
    change(&mut new);
    store.create(&new).await.unwrap()
}

pub async fn claim_as(store: &Store, id: TaskId, token: Uuid) -> Option<Claim> {
    let request = ClaimRequest {
        id,
        tool: "report",
        version: 1,
        resumes: &[1],
        token,
        worker: "worker-1",
    };
    store.claim(&request).await.unwrap()
}

pub fn step(key: &str) -> StepSpec<'_> {
    StepSpec {
        key,
        seq: 0,
        idempotent: false,
        undo: None,
    }
}

/// A form with one field, `charts`, a boolean.
pub fn question(key: &str) -> Question {
    let schema = serde_json::json!({
        "type": "object", "properties": {"charts": {"type": "boolean"}}, "required": ["charts"],
    });
    let request = protocol::input::InputRequest::elicit_form(format!("{key}?"), schema);
    Question {
        key: key.to_owned(),
        seq: 1,
        request: Bytes::copy_from_slice(request.to_raw().get().as_bytes()),
        default_response: None,
        wait: HOUR,
    }
}

pub const YES: &str = r#"{"action": "accept",  "content": {"charts": true}}"#;

pub fn answers(entries: &[(&str, &str)]) -> BTreeMap<String, Box<RawValue>> {
    entries
        .iter()
        .map(|(key, json)| {
            let value = RawValue::from_string((*json).to_owned()).unwrap();
            ((*key).to_owned(), value)
        })
        .collect()
}
