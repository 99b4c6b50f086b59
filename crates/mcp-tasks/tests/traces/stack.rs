//! A small stack that exports its spans.

use std::time::Duration;

use harness::cluster::{Cluster, Plan};
use harness::postgres::Database;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};

use crate::collector::{Collector, Span};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(60);

/// Short intervals, so that a test need not wait.
const SETTINGS: &str = r#"
[postgres]
lease = "3s"
heartbeat = "1s"
[gateway]
drain_delay = "0s"
[cron]
alerts_interval = "200ms"
[traces]
batch_delay = "100ms"
"#;

/// A stack and what it stands on.
pub struct Stack {
    pub cluster: Cluster,
    _redis: Redis,
    _database: Database,
    _ledger: Temp,
}

impl Stack {
    /// So many gateways and workers, and one cron, that export nothing.
    pub async fn of((gateways, workers): (usize, usize), settings: &str) -> Stack {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let ledger = Temp::new().unwrap();
        let path = ledger.path().join("ledger");
        let tools = format!("[tools]\nfixtures = \"chaos\"\nledger = {path:?}\nshell = true\n");
        let plan = Plan::new(
            env!("CARGO_BIN_EXE_mcp-tasks"),
            database.url(),
            &redis.url(),
        );
        let cluster = plan
            .of(gateways, workers, 1)
            .settings(SETTINGS)
            .settings(&tools)
            .settings(settings)
            .start()
            .await
            .unwrap();
        for gateway in 0..gateways {
            let tools = ["chaos_steps", "chaos_undo", "run_shell"];
            cluster.wait_for_tools(gateway, &tools).await.unwrap();
        }
        Stack {
            cluster,
            _redis: redis,
            _database: database,
            _ledger: ledger,
        }
    }

    /// The same, exporting to this collector.
    pub async fn traced(size: (usize, usize), collector: &Collector, settings: &str) -> Stack {
        let traces = format!("[traces]\nendpoint = {:?}\n", collector.endpoint);
        Self::of(size, &format!("{traces}{settings}")).await
    }
}

/// The arguments of a chaos tool.
pub fn plan(call: &str, items: Value, end: &str) -> Value {
    json!({ "call": call, "items": items, "end": end })
}

/// Waits until the collector has spans that `pick` wants.
pub async fn spans<T>(collector: &Collector, what: &str, pick: impl Fn(&[Span]) -> Option<T>) -> T {
    let found = wait::until(what, SOON, async || pick(&collector.spans())).await;
    match found {
        Ok(found) => found,
        Err(error) => {
            let mut seen = String::new();
            for span in collector.spans() {
                seen.push_str(&format!("{span:?}\n"));
            }
            panic!("{error}; there were:\n{seen}")
        }
    }
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    let config = store::Config {
        url,
        ..Default::default()
    };
    store::migrate::migrate(&config).await.map(drop)
}
