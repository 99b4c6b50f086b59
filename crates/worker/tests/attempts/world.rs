//! A database, a Redis, and workers that run scripted tools.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use harness::redis::Redis;
use protocol::TaskId;
use queue::{Lane, Queue};
use serde_json::{Value, json};
use store::{Created, Lookup, NewTask, Principal, Store, Task, ToolPolicy};
use telemetry::{Health, Registry};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use worker::{
    Arguments, CallToolResult, Context, Definition, Tool, ToolError, ToolSet, ToolSpec, Undoing,
    Worker,
};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(30);

pub type Body =
    for<'a> fn(&'a World, &'a mut Context) -> BoxFuture<'a, Result<CallToolResult, ToolError>>;
pub type UndoBody = for<'a> fn(&'a World, &'a mut Undoing) -> BoxFuture<'a, Result<(), ToolError>>;

/// What tools and tests share.
pub struct World {
    pub store: Store,
    pub queue: Queue,
    config: store::Config,
    pub redis: Mutex<Redis>,
    pub alice: Principal,
    /// What became visible outside, in order.
    pub ledger: Mutex<Vec<String>>,
    /// For tools that behave differently at another run.
    pub runs: AtomicU32,
    pub go: CancellationToken,
}

/// A running worker; dropped, it is lost without a word.
pub struct Running {
    pub health: Health,
    pub registry: Registry,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), worker::Error>>,
}

impl Running {
    pub async fn drain(mut self) -> Result<(), worker::Error> {
        self.shutdown.cancel();
        (&mut self.task).await.unwrap()
    }

    pub async fn ended(mut self) -> Result<(), worker::Error> {
        tokio::time::timeout(SOON, &mut self.task)
            .await
            .unwrap()
            .unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Scripted {
    world: Arc<World>,
    script: Script,
}

/// What the tool does.
#[derive(Clone)]
pub struct Script {
    pub policy: ToolPolicy,
    pub body: Body,
    /// `None`: it implements none.
    pub undo: Option<UndoBody>,
}

#[worker::async_trait]
impl Tool for Scripted {
    fn spec(&self) -> ToolSpec {
        let mut spec = ToolSpec::new(Definition::new("scripted", &json!({ "type": "object" })));
        spec.policy = self.script.policy.clone();
        spec
    }

    async fn call(&self, context: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
        self.world.runs.fetch_add(1, Ordering::SeqCst);
        (self.script.body)(&self.world, context).await
    }

    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        match self.script.undo {
            Some(undo) => undo(&self.world, undoing).await,
            None => Bare.undo(undoing).await,
        }
    }
}

/// A tool that implements no undo.
struct Bare;

#[worker::async_trait]
impl Tool for Bare {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(Definition::new("bare", &json!({ "type": "object" })))
    }

    async fn call(&self, _: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
        done()
    }
}

pub fn config(url: &str) -> store::Config {
    store::Config {
        url: url.to_owned(),
        pool_size: 8,
        lease: Duration::from_millis(1500),
        heartbeat: Duration::from_millis(300),
        ..store::Config::default()
    }
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    store::migrate::migrate(&config(&url)).await.map(drop)
}

impl World {
    pub async fn new() -> Arc<World> {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        World::over(config(database.url())).await
    }

    /// Over a Postgres of the test's own.
    pub async fn over(config: store::Config) -> Arc<World> {
        let redis = Redis::temporary().await.unwrap();
        let settings = queue::config::Config {
            url: redis.url(),
            block: Duration::from_millis(500),
            ..queue::config::Config::default()
        };
        let queue = Queue::new(settings, &Registry::new()).unwrap();
        // A hint pushed before that goes nowhere, and nobody hints again here.
        let mut connected = queue.connected();
        connected.wait_for(|connected| *connected).await.unwrap();
        Arc::new(World {
            store: Store::new(config.clone(), &Registry::new()).unwrap(),
            queue,
            config,
            redis: Mutex::new(redis),
            alice: Principal::verified("test".to_owned(), "alice".to_owned(), None),
            ledger: Mutex::default(),
            runs: AtomicU32::new(0),
            go: CancellationToken::new(),
        })
    }

    /// A worker of its own connections to the same servers.
    pub fn worker(self: &Arc<Self>, policy: ToolPolicy, body: Body) -> Running {
        self.worker_with(policy, body, |_| {})
    }

    /// The same with other settings.
    pub fn worker_with(
        self: &Arc<Self>,
        policy: ToolPolicy,
        body: Body,
        change: impl FnOnce(&mut worker::Config),
    ) -> Running {
        let script = Script {
            policy,
            body,
            undo: None,
        };
        self.serve(&script, change)
    }

    /// A worker whose tool can undo.
    pub fn serve(
        self: &Arc<Self>,
        script: &Script,
        change: impl FnOnce(&mut worker::Config),
    ) -> Running {
        let tools = ToolSet::new();
        tools
            .insert(Arc::new(Scripted {
                world: Arc::clone(self),
                script: script.clone(),
            }))
            .unwrap();
        self.serve_set(tools, change)
    }

    /// A worker of these tools and providers.
    #[expect(
        clippy::disallowed_methods,
        reason = "the handle is owned by what is returned"
    )]
    pub fn serve_set(&self, tools: ToolSet, change: impl FnOnce(&mut worker::Config)) -> Running {
        // One for all parts, as in a process.
        let registry = Registry::new();
        let store = Store::new(self.config.clone(), &registry).unwrap();
        let mut settings = worker::Config {
            stop_grace: Duration::from_millis(400),
            drain_deadline: Duration::from_millis(300),
            ..worker::Config::default()
        };
        change(&mut settings);
        let health = Health::new(&registry);
        let worker = Worker::new(
            settings,
            store,
            self.queue.clone(),
            tools,
            &registry,
            health.clone(),
        );
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(Box::pin(worker.run(shutdown.clone())));
        Running {
            health,
            registry,
            shutdown,
            task,
        }
    }

    /// A task with a handle, and a hint for it.
    pub async fn start(&self, policy: &ToolPolicy) -> TaskId {
        self.start_with(policy, |_| {}).await
    }

    pub async fn start_with(
        &self,
        policy: &ToolPolicy,
        change: impl FnOnce(&mut NewTask<'_>),
    ) -> TaskId {
        let capabilities = json!({
            "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} }
        });
        let id = TaskId::new(1_790_000_000_000);
        let mut new = NewTask {
            id,
            principal: &self.alice,
            tool: "scripted",
            tool_version: 1,
            policy,
            arguments: Bytes::from_static(b"{}"),
            arguments_digest: [0; 32],
            client_capabilities: Bytes::from(capabilities.to_string()),
            offered_responses: None,
            trace_context: None,
            idempotency_key: None,
            status_message: "started",
            hold: Duration::from_secs(60),
            handed_out: true,
            hint_epoch: self.queue.epoch(id),
        };
        change(&mut new);
        assert!(matches!(
            self.store.create(&new).await.unwrap(),
            Created::New(_)
        ));
        self.hint(id).await;
        id
    }

    /// Cron's part: a hint, if Redis is there.
    pub async fn hint(&self, id: TaskId) {
        let lane = Lane {
            tool: "scripted".to_owned(),
            version: 1,
        };
        drop(self.queue.push(&lane, id).await);
    }

    pub async fn get(&self, id: TaskId) -> Task {
        match self.store.get(&self.alice, id).await.unwrap() {
            Lookup::Found(task) => *task,
            other => panic!("{other:?}"),
        }
    }

    /// The task once its status is one of these; hinted again meanwhile, as cron would.
    pub async fn wait(&self, id: TaskId, statuses: &[&str]) -> Task {
        harness::wait::until(&format!("one of {statuses:?}"), SOON, async || {
            let task = self.get(id).await;
            if task.queued {
                self.hint(id).await;
            }
            statuses.contains(&task.status.as_str()).then_some(task)
        })
        .await
        .unwrap()
    }

    /// The task once it is over; hinted again and again meanwhile, as cron would.
    pub async fn wait_over(&self, id: TaskId) -> Task {
        harness::wait::until("the end", SOON, async || {
            self.hint(id).await;
            let task = self.get(id).await;
            task.status.is_terminal().then_some(task)
        })
        .await
        .unwrap()
    }

    /// Waits until this became visible outside.
    pub async fn wait_act(&self, what: &str) {
        harness::wait::until(what, SOON, async || {
            self.acts().iter().any(|act| act == what).then_some(())
        })
        .await
        .unwrap();
    }

    pub async fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        harness::postgres::rows(&self.config.url, sql)
            .await
            .unwrap()
    }

    pub async fn column(&self, id: TaskId, column: &str) -> String {
        let sql = format!("SELECT {column} FROM tasks WHERE id = '{id}'");
        let rows = self.rows(&sql).await;
        rows[0][0].clone().unwrap_or_default()
    }

    /// Waits until the column has this value.
    pub async fn wait_column(&self, id: TaskId, column: &str, value: &str) {
        let what = format!("{column} = {value}");
        let look = async || self.column(id, column).await;
        harness::wait::for_state(&what, SOON, look, |seen| seen == value)
            .await
            .unwrap();
    }

    pub fn act(&self, what: &str) {
        self.ledger.lock().unwrap().push(what.to_owned());
    }

    pub fn acts(&self) -> Vec<String> {
        self.ledger.lock().unwrap().clone()
    }

    pub fn run(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    pub async fn answer(&self, id: TaskId, key: &str, answer: Value) -> store::Answer {
        let raw = serde_json::value::to_raw_value(&answer).unwrap();
        let answers = [(key.to_owned(), raw)].into();
        self.store
            .answer(&self.alice, id, &answers, None)
            .await
            .unwrap()
    }
}

impl Running {
    /// A counter's value; 0 if it is not there yet. `labels` as scraped, without braces.
    pub fn counter(&self, name: &str, labels: &str) -> u64 {
        let prefix = format!("{name}{{{labels}}} ");
        let scraped = self.registry.render();
        let value = scraped.lines().find_map(|line| line.strip_prefix(&prefix));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// The error of a failed task.
pub fn error(task: &Task) -> Value {
    serde_json::from_slice(task.error.as_ref().expect("it failed")).unwrap()
}

/// `data.reason` of a failed task.
pub fn reason(task: &Task) -> String {
    error(task)["data"]["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

pub fn done() -> Result<CallToolResult, ToolError> {
    Ok(CallToolResult::text("done"))
}
