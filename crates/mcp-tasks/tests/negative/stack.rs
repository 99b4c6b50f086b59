//! The system that is called: a gateway that believes names, one that checks tokens, and a worker
//! with the fixtures.

use std::net::SocketAddr;
use std::time::Duration;

use harness::cluster::{Cluster, Plan};
use harness::config::{Role, merge};
use harness::postgres::Database;
use harness::redis::Redis;
use serde_json::{Value, json};

use crate::row::{Door, Row};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(60);
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Its SHA-256 stands in [`KEYS_FILE`].
pub const API_KEY: &str = "mtk_negative";
const KEYS_FILE: &str = r#"
[[key]]
sha256 = "SHA"
subject = "machine"
scopes = ["read"]
"#;
const SETTINGS: &str = r#"
[tools]
fixtures = "conformance"
[gateway]
list_page = 3
[gateway.limits]
body_bytes_max = 1048576
[callbacks]
public_url = "http://127.0.0.1:9"
body_bytes_max = 4096
"#;
/// Of the gateway that waits for nobody. The others wait as long as they do by default, so that a busy
/// machine changes no answer.
const HASTY: &str = r#"
[gateway.limits]
header_read_timeout = "1s"
body_read_timeout = "1s"
"#;
const TOKENS: &str = r#"
[auth]
mode = "tokens"
resource = "http://127.0.0.1:9/mcp"
[auth.scopes]
call = ["call"]
read = ["read"]
[[auth.issuers]]
issuer = "http://127.0.0.1:9"
"#;

pub struct Stack {
    pub cluster: Cluster,
    pub database: Database,
    pub redis: Redis,
}

impl Stack {
    pub async fn new() -> Self {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let keys = format!(
            "[gateway]\nrequest_state_keys = [\"{KEY}\"]\n[callbacks]\nkeys = [\"{KEY}\"]\n"
        );
        let mut cluster = plan(&database, &redis)
            .settings(&keys)
            .settings(SETTINGS)
            .of(1, 1, 0)
            .start()
            .await
            .unwrap();
        let guarded = cluster.add_with(Role::Gateway, |plan| {
            let file = plan.dir.join("api-keys.toml");
            let sha: String = sha256(API_KEY);
            std::fs::write(&file, KEYS_FILE.replace("SHA", &sha)).unwrap();
            let mut over: toml::Table = TOKENS.parse().unwrap();
            let file = toml::Value::String(file.display().to_string());
            over["auth"]
                .as_table_mut()
                .unwrap()
                .insert("api_keys_file".to_owned(), file);
            merge(&mut plan.common.settings, &over);
        });
        guarded.unwrap().ready().await.unwrap();
        let hasty = cluster.add_with(Role::Gateway, |plan| {
            merge(&mut plan.common.settings, &HASTY.parse().unwrap());
        });
        hasty.unwrap().ready().await.unwrap();
        cluster
            .wait_for_tools(0, &["test_simple_text", "greet"])
            .await
            .unwrap();
        Self {
            cluster,
            database,
            redis,
        }
    }

    /// Where a row is sent.
    pub fn address(&self, row: &Row) -> SocketAddr {
        let url = match row.door {
            Door::Open if row.waits() => self.cluster.gateways[2].url(),
            Door::Open => self.cluster.gateways[0].url(),
            Door::Tokens => self.cluster.gateways[1].url(),
            Door::Admin => self.cluster.gateways[0].admin(),
        };
        let host = url.trim_start_matches("http://").trim_end_matches("/mcp");
        host.parse().unwrap()
    }

    /// A good call is served, over the whole way.
    pub async fn serves(&self, after: &str) {
        let alice = self.cluster.client(0, "alice");
        let result = alice.call("test_simple_text", json!({})).await;
        let result = result.unwrap_or_else(|error| panic!("after {after}: {error}"));
        assert_eq!(result["resultType"], "complete", "after {after}");
        let client = self.cluster.client(1, API_KEY);
        let listed = client
            .request("tools/list", json!({}))
            .send()
            .await
            .unwrap();
        assert_eq!(listed.status, 200, "after {after}: {:?}", listed.message);
    }

    pub async fn count(&self, sql: &str) -> i64 {
        let rows = self.database.rows(sql).await.unwrap();
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }

    /// A task of alice that waits for an answer; its id and the question's key.
    pub async fn asked(&self) -> (String, String) {
        let alice = self.cluster.client(0, "alice");
        let call = alice.call("confirm_delete", json!({"filename": "x"}));
        let task = call.await.unwrap();
        let id = task["taskId"].as_str().unwrap().to_owned();
        let look = async || -> Option<String> {
            let task: Value = alice.get(&id).await.ok()?;
            let requests = task["inputRequests"].as_object()?;
            requests.keys().next().cloned()
        };
        let key = harness::wait::until("a question", SOON, look).await;
        (id.clone(), key.unwrap())
    }
}

pub fn plan(database: &Database, redis: &Redis) -> Plan {
    Plan::new(
        env!("CARGO_BIN_EXE_mcp-tasks"),
        database.url(),
        &redis.url(),
    )
}

pub async fn migrate(url: String) -> Result<(), store::Error> {
    let config = store::Config {
        url,
        ..Default::default()
    };
    store::migrate::migrate(&config).await.map(drop)
}

fn sha256(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
