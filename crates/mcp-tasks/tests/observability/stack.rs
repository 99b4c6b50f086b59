//! A small stack whose tools do what a test tells them.

use harness::cluster::{Cluster, Plan};
use harness::postgres::Database;
use harness::redis::Redis;
use harness::temp::Temp;

/// Short intervals, so that a test need not wait.
const SETTINGS: &str = r#"
[postgres]
lease = "3s"
heartbeat = "1s"
[worker]
slots = 4
[cron]
alerts_interval = "200ms"
gauges_interval = "500ms"
purge_interval = "1s"
"#;

/// A stack and what it stands on.
pub struct Stack {
    pub cluster: Cluster,
    pub redis: Redis,
    _database: Database,
    _ledger: Temp,
}

impl Stack {
    /// So many gateways and workers, and one cron, with further settings (TOML).
    pub async fn of((gateways, workers): (usize, usize), settings: &str) -> Stack {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let ledger = Temp::new().unwrap();
        let path = ledger.path().join("ledger");
        // Nothing listens there: what is told of upstream servers is told of it.
        let file = ledger.path().join("tools.toml");
        let upstream = "[[upstream]]\nname = \"down\"\nurl = \"http://127.0.0.1:1/mcp\"\n";
        std::fs::write(&file, upstream).unwrap();
        let tools = format!("[tools]\nfixtures = \"chaos\"\nledger = {path:?}\nfile = {file:?}\n");
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
            cluster
                .wait_for_tools(gateway, &["chaos_undo"])
                .await
                .unwrap();
        }
        Stack {
            cluster,
            redis,
            _database: database,
            _ledger: ledger,
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
