//! One running system for one test.

use std::time::Duration;

use harness::cluster::{Cluster, Plan};
use harness::node::Node;
use harness::postgres::{Database, Postgres};
use harness::redis::Redis;
use serde_json::{Value, json};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(60);

/// Short leases, so that a lost worker is noticed while a test waits.
const SETTINGS: &str = r#"
[tools]
demo = true
fixtures = "conformance"
[postgres]
lease = "3s"
heartbeat = "1s"
[gateway]
request_state_keys = ["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"]
"#;

/// A system and what it stands on.
pub struct System {
    pub cluster: Cluster,
    pub database: Database,
    pub redis: Redis,
}

impl System {
    /// So many gateways and workers, and one cron, over a fresh database and an empty Redis.
    pub async fn of(gateways: usize, workers: usize) -> System {
        Self::with(gateways, workers, "").await
    }

    /// The same with further settings (TOML).
    pub async fn with(gateways: usize, workers: usize, settings: &str) -> System {
        let database = harness::postgres::test_database(migrate)
            .await
            .expect("a database");
        let redis = Redis::temporary().await.expect("a redis");
        let url = redis.url();
        Self::over_redis((gateways, workers), settings, database, (redis, &url)).await
    }

    /// The same over a given Redis, which the processes reach by this URL.
    pub async fn over_redis(
        (gateways, workers): (usize, usize),
        settings: &str,
        database: Database,
        (redis, url): (Redis, &str),
    ) -> System {
        let cluster = plan(database.url(), url)
            .of(gateways, workers, 1)
            .settings(settings)
            .start()
            .await
            .expect("a cluster");
        if workers > 0 {
            cluster
                .wait_for_tools(0, &["slow_compute", "build_report"])
                .await
                .expect("tools");
        }
        System {
            cluster,
            database,
            redis,
        }
    }

    /// Number of rows that the query counts.
    pub async fn count(&self, sql: &str) -> i64 {
        let rows = self.database.rows(sql).await.expect("a count");
        rows[0][0]
            .as_deref()
            .unwrap_or("0")
            .parse()
            .expect("a number")
    }
}

/// A system over a Postgres of its own, for tests that kill it.
pub async fn over_own_postgres(gateways: usize, workers: usize) -> (Cluster, Postgres, Redis) {
    over_own_postgres_with(gateways, workers, "").await
}

/// The same with further settings (TOML).
pub async fn over_own_postgres_with(
    gateways: usize,
    workers: usize,
    settings: &str,
) -> (Cluster, Postgres, Redis) {
    let postgres = Postgres::temporary().await.expect("a postgres");
    let url = postgres
        .create_database("system")
        .await
        .expect("a database");
    migrate(url.clone()).await.expect("migrations");
    let redis = Redis::temporary().await.expect("a redis");
    let cluster = plan(&url, &redis.url())
        .of(gateways, workers, 1)
        .settings(settings)
        .start()
        .await
        .expect("a cluster");
    cluster
        .wait_for_tools(0, &["slow_compute"])
        .await
        .expect("tools");
    (cluster, postgres, redis)
}

/// Changes settings of one process, for its next start.
pub fn set(node: &mut Node, toml: &str) {
    let over = toml.parse().expect("a test's settings are valid TOML");
    harness::config::merge(&mut node.plan_mut().common.settings, &over);
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    let config = store::Config {
        url,
        ..Default::default()
    };
    store::migrate::migrate(&config).await.map(drop)
}

/// The usual settings over these servers.
pub fn plan(postgres_url: &str, redis_url: &str) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_mcp-tasks"), postgres_url, redis_url).settings(SETTINGS)
}

/// `params` of a call with an idempotency key.
pub fn keyed(tool: &str, arguments: Value, key: &str) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"io.github.mcp-tasks/idempotencyKey": key}})
}

/// The text of a tool's result.
pub fn text(result: &Value) -> String {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Hints in all job streams.
pub async fn entries(redis: &Redis) -> i64 {
    let script = "local sum = 0
        for _, key in ipairs(redis.call('KEYS', '{mcp-tasks:s*}:jobs:*')) do
          sum = sum + redis.call('XLEN', key)
        end
        return sum";
    redis.number(&["EVAL", script, "0"]).await.expect("a count")
}
