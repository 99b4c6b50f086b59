//! One gateway over a database and a Redis of its own, tools in its catalogue, and a hand that
//! does what a worker would.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gateway::{Config, Gateway};
use harness::client::Client;
use harness::postgres::Database;
use harness::redis::Redis;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use protocol::TaskId;
use protocol::callback::Keys;
use protocol::tools::{CallToolResult, Tool};
use queue::Queue;
use serde_json::{Value, json};
use store::{
    Claim, ClaimRequest, Ended, Parked, ParkedFor, Question, Store, TaskSupport, ToolPolicy,
    ToolSpec, Write,
};
use telemetry::{Health, Registry};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub const SECOND: Duration = Duration::from_secs(1);
/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(20);
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub struct World {
    pub url: String,
    pub address: SocketAddr,
    pub store: Store,
    pub queue: Queue,
    pub database: Database,
    pub redis: Redis,
    pub registry: Registry,
    pub health: Health,
    pub shutdown: CancellationToken,
    pub gateway: Option<JoinHandle<Result<(), gateway::Error>>>,
}

/// Settings with short patience.
pub fn config() -> Config {
    Config {
        request_state_keys: vec![KEY.to_owned()],
        drain_delay: Duration::from_millis(100),
        drain_deadline: 5 * SECOND,
        catalogue_refresh: Duration::from_millis(200),
        ..Config::default()
    }
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    let config = store::Config {
        url,
        ..store::Config::default()
    };
    store::migrate::migrate(&config).await.map(drop)
}

impl World {
    pub async fn new() -> World {
        Self::with(config()).await
    }

    pub async fn with(config: Config) -> World {
        Self::guarded(config, gateway::auth::Config::default()).await
    }

    /// With this authentication.
    pub async fn guarded(config: Config, auth: gateway::auth::Config) -> World {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let url = database.url().to_owned();
        Self::begin((config, auth), database, redis, &url).await
    }

    /// `url` may lead to the database through a proxy.
    pub async fn over(config: Config, database: Database, redis: Redis, url: &str) -> World {
        let auth = gateway::auth::Config::default();
        Self::begin((config, auth), database, redis, url).await
    }

    async fn begin(
        (config, auth): (Config, gateway::auth::Config),
        database: Database,
        redis: Redis,
        url: &str,
    ) -> World {
        let settings = store::Config {
            url: url.to_owned(),
            wait_max: 3 * SECOND,
            ..store::Config::default()
        };
        let registry = Registry::new();
        let store = Store::new(settings, &registry).unwrap();
        Self::on((config, auth), database, redis, (store, registry)).await
    }

    /// Over this store of the gateway's.
    pub async fn on(
        (config, auth): (Config, gateway::auth::Config),
        database: Database,
        redis: Redis,
        (store, registry): (Store, Registry),
    ) -> World {
        let hints = queue::Config {
            url: redis.url(),
            ..queue::Config::default()
        };
        let queue = Queue::new(hints, &registry).unwrap();
        let health = Health::new(&registry);
        let own = Store::new(
            store::Config {
                url: database.url().to_owned(),
                ..store::Config::default()
            },
            &Registry::new(),
        )
        .unwrap();
        own.register_tools(&tools(), 60 * SECOND).await.unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let gateway = Gateway::new(
            config,
            auth,
            store,
            queue.clone(),
            &registry,
            health.clone(),
        )
        .unwrap()
        .called_back(Keys::read(&[KEY.to_owned()]).unwrap(), 64 * 1024);
        let running = TaskTracker::new().spawn(gateway.run(listener, shutdown.clone()));
        let world = World {
            url: format!("http://{address}/mcp"),
            address,
            store: own,
            queue,
            database,
            redis,
            registry,
            health,
            shutdown,
            gateway: Some(running),
        };
        let ready = async || world.health.readiness().ok.then_some(());
        harness::wait::until("the catalogue is read", SOON, ready)
            .await
            .unwrap();
        world
    }

    /// A caller that declares the extension.
    pub fn client(&self, name: &str) -> Client {
        Client::new(&self.url).bearer(name)
    }

    /// The value of a series; 0 if there is none.
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.registry.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub async fn count(&self, sql: &str) -> i64 {
        let rows = self.database.rows(sql).await.unwrap();
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }

    /// Waits for a number.
    pub async fn until(&self, sql: &str, expected: i64) {
        let look = async || self.count(sql).await;
        harness::wait::for_state(sql, SOON, look, |n| *n == expected)
            .await
            .unwrap();
    }

    /// Takes the oldest queued job of a tool, as soon as there is one.
    pub async fn claim(&self, tool: &str) -> Claim {
        let sql = format!(
            "SELECT id FROM tasks WHERE tool = '{tool}' AND phase = 'queued' ORDER BY id LIMIT 1"
        );
        let id = harness::wait::until("a queued job", SOON, async || {
            let rows = self.database.rows(&sql).await.unwrap();
            let id = rows.first()?.first()?.as_deref()?;
            Some(id.parse::<TaskId>().unwrap())
        });
        self.claim_task(tool, id.await.unwrap()).await
    }

    pub async fn claim_task(&self, tool: &str, id: TaskId) -> Claim {
        let request = ClaimRequest {
            id,
            tool,
            version: 1,
            resumes: &[1],
            token: *TaskId::new(0).as_uuid(),
            worker: "test",
        };
        self.store
            .claim(&request)
            .await
            .unwrap()
            .expect("the job is free")
    }

    /// Ends a job with a result, and says so.
    pub async fn complete(&self, claim: &Claim, result: &Value) {
        self.complete_with(claim, result.to_string().as_bytes())
            .await;
    }

    pub async fn complete_with(&self, claim: &Claim, result: &[u8]) {
        let written = self.store.complete(claim, result, SECOND).await.unwrap();
        assert_eq!(written, Write::Done);
        self.queue.wake(claim.id()).await;
    }

    pub async fn fail(&self, claim: &Claim, error: &Value) {
        let error = error.to_string();
        let written = self
            .store
            .fail(claim, error.as_bytes(), "failed", SECOND)
            .await
            .unwrap();
        assert_eq!(written, Ended::Done);
        self.queue.wake(claim.id()).await;
    }

    /// Parks a job with a yes-or-no question for each key.
    pub async fn park(&self, claim: &Claim, parked_for: ParkedFor, keys: &[&str]) {
        let questions: Vec<Question> = keys.iter().map(|key| question(key)).collect();
        let parked = self
            .store
            .park(claim, parked_for, &questions, SECOND)
            .await
            .unwrap();
        assert_eq!(parked, Parked::Parked);
        self.queue.wake(claim.id()).await;
    }

    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        let gateway = self.gateway.take().unwrap();
        tokio::time::timeout(SOON, gateway)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// Why a gateway with this authentication does not start. It needs neither Postgres nor Redis for
/// that.
pub async fn refused_start(auth: gateway::auth::Config) -> gateway::Error {
    let registry = Registry::new();
    let store = store::Config {
        url: "postgres://127.0.0.1:1/none".to_owned(),
        ..store::Config::default()
    };
    let hints = queue::Config {
        url: "redis://127.0.0.1:1".to_owned(),
        ..queue::Config::default()
    };
    let gateway = Gateway::new(
        config(),
        auth,
        Store::new(store, &registry).unwrap(),
        Queue::new(hints, &registry).unwrap(),
        &registry,
        Health::new(&registry),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = match gateway {
        Ok(gateway) => gateway,
        Err(error) => return error,
    };
    let ran = gateway.run(listener, CancellationToken::new());
    tokio::time::timeout(SOON, ran).await.unwrap().unwrap_err()
}

/// A request for a client of hyper's. HTTP/1 names the host besides.
pub fn request(world: &World, method: &str, mut params: Value) -> Request<Full<Bytes>> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut request = Request::post(&world.url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    request.body(Full::from(body.to_string())).unwrap()
}

pub async fn whole(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// A result with one block of text.
pub fn text(text: &str) -> Value {
    serde_json::from_slice(&CallToolResult::text(text).to_json()).unwrap()
}

pub fn question(key: &str) -> Question {
    let request = json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "Sure?", "requestedSchema": {
            "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}}});
    Question {
        key: key.to_owned(),
        seq: 1,
        request: Bytes::from(request.to_string()),
        default_response: None,
        wait: 600 * SECOND,
    }
}

pub fn yes() -> Value {
    json!({"action": "accept", "content": {"yes": true}})
}

fn tool(name: &str, support: TaskSupport, budget: Option<Duration>) -> ToolSpec {
    let schema = json!({"type": "object"});
    let mut spec = ToolSpec::new(Tool::new(name, &schema).with_description(name));
    spec.policy = ToolPolicy {
        task_support: support,
        inline_budget: budget,
        ..ToolPolicy::default()
    };
    spec
}

pub fn tools() -> Vec<ToolSpec> {
    use TaskSupport::{None as Never, Optional, Required};
    let zero = Some(Duration::ZERO);
    let mut asks = tool("asks", Required, zero);
    asks.policy.asks_first = true;
    let mut needs = tool("needs_sampling", Optional, None);
    needs.policy.required_capabilities = json!({"sampling": {}}).as_object().cloned();
    let mut keyed = tool("keyed", Optional, zero);
    keyed.policy.idempotency_key_argument = Some("order".to_owned());
    let mut scoped = tool("scoped", Optional, zero);
    scoped.policy.scopes = vec!["reports:write".to_owned()];
    let mut small = tool("small", Optional, None);
    small.policy.argument_bytes_max = Some(64);
    let with_schema =
        |name: &str, schema: Value| ToolSpec::new(Tool::new(name, &schema).with_description(name));
    vec![
        tool("call", Optional, None),
        tool("inline", Never, None),
        tool("brief", Optional, Some(Duration::from_millis(200))),
        tool("task", Optional, zero),
        tool("only_task", Required, zero),
        asks,
        needs,
        keyed,
        scoped,
        small,
        with_schema(
            "strict",
            json!({"type": "object", "required": ["month"], "additionalProperties": false,
                   "properties": {"month": {"type": "string", "enum": ["may", "june"]}}}),
        ),
        with_schema(
            "region",
            json!({"type": "object", "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"}}}),
        ),
    ]
}
