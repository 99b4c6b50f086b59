//! Keys change under callers who hold what the old ones sealed. In two steps nothing breaks, whichever
//! of two gateways, one of them a step behind, made a thing and whichever gets it back; in one step
//! it does, which is why there are two.

use harness::client::Client;
use harness::cluster::Cluster;
use harness::config::{Role, merge};
use harness::postgres::Database;
use harness::redis::Redis;
use protocol::TaskId;
use protocol::callback::{Keys, Ticket};
use serde_json::{Value, json};

use crate::row;
use crate::stack::plan;

const OLD: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const NEW: &str = "0202020202020202020202020202020202020202020202020202020202020202";
const ASKS: &str = "test_input_required_result_request_state";

/// A gateway's lists of keys.
type List = &'static [&'static str];

fn settings(keys: List) -> toml::Table {
    let keys = format!("{keys:?}");
    let text = format!(
        "[gateway]\nlist_page = 2\nrequest_state_keys = {keys}\n[callbacks]\nkeys = {keys}\n\
         public_url = \"http://127.0.0.1:9\"\n[tools]\nfixtures = \"conformance\"\n"
    );
    text.parse().unwrap()
}

struct Two {
    cluster: Cluster,
    _database: Database,
    _redis: Redis,
}

impl Two {
    async fn new(keys: List) -> Self {
        let database = harness::postgres::test_database(crate::stack::migrate).await;
        let database = database.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let mut plan = plan(&database, &redis).of(2, 1, 0);
        merge(&mut plan.common.settings, &settings(keys));
        let cluster = plan.start().await.unwrap();
        cluster.wait_for_tools(0, &[ASKS]).await.unwrap();
        cluster.wait_for_tools(1, &[ASKS]).await.unwrap();
        Self {
            cluster,
            _database: database,
            _redis: redis,
        }
    }

    /// One gateway gets another list, as a roll-out does it.
    async fn roll(&mut self, gateway: usize, keys: List) {
        let node = &mut self.cluster.gateways[gateway];
        assert_eq!(node.role(), Role::Gateway);
        merge(&mut node.plan_mut().common.settings, &settings(keys));
        node.restart().await.unwrap();
    }

    fn client(&self, gateway: usize) -> Client {
        self.cluster.client(gateway, "alice")
    }
}

/// What callers hold in flight: a question's state, and a page's cursor, of today and of an older
/// revision.
struct Held {
    state: Value,
    cursor: Value,
    tasks: Value,
}

async fn hold(client: &Client) -> Held {
    let asked = client.call(ASKS, json!({})).await.unwrap();
    let page = client
        .request("tools/list", json!({}))
        .send()
        .await
        .unwrap();
    for _ in 0..3 {
        let call = client.call("slow_compute", json!({"seconds": 0}));
        call.await.unwrap();
    }
    let tasks = older(client, "tasks/list", json!({})).await;
    let held = Held {
        state: asked["requestState"].clone(),
        cursor: page.into_result().unwrap()["nextCursor"].clone(),
        tasks: tasks["nextCursor"].clone(),
    };
    assert!(held.state.is_string() && held.cursor.is_string() && held.tasks.is_string());
    held
}

/// The result of a request of an older revision; null if it is an error.
async fn older(client: &Client, method: &str, params: Value) -> Value {
    let request = client
        .request(method, json!({}))
        .header("mcp-protocol-version", "2025-11-25")
        .body(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string());
    request.send().await.unwrap().message["result"].clone()
}

/// Which of the held things this gateway takes.
async fn takes(client: &Client, held: &Held) -> [bool; 3] {
    let call = json!({"name": ASKS, "arguments": {}, "requestState": held.state});
    let called = client.request("tools/call", call).send().await.unwrap();
    let page = client.request("tools/list", json!({"cursor": held.cursor}));
    let page = page.send().await.unwrap();
    let tasks = older(client, "tasks/list", json!({"cursor": held.tasks})).await;
    [
        called.error_code().is_none(),
        page.error_code().is_none(),
        tasks.is_object(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_steps_break_nothing_in_flight() {
    let mut two = Two::new(&[OLD]).await;
    // Each step meets the one before on the other gateway.
    let steps: [List; 3] = [&[OLD, NEW], &[NEW, OLD], &[NEW]];
    for keys in &steps[..2] {
        let before = hold(&two.client(0)).await;
        two.roll(0, keys).await;
        let during = [hold(&two.client(0)).await, hold(&two.client(1)).await];
        for held in during.iter().chain([&before]) {
            for gateway in [0, 1] {
                assert_eq!(
                    takes(&two.client(gateway), held).await,
                    [true; 3],
                    "{keys:?} {gateway}"
                );
            }
        }
        two.roll(1, keys).await;
        for held in during.iter().chain([&before]) {
            assert_eq!(takes(&two.client(1), held).await, [true; 3], "{keys:?}");
        }
    }
    // What the new key sealed outlives the old one; what the old one sealed ends with it.
    let last = hold(&two.client(0)).await;
    two.roll(0, steps[2]).await;
    assert_eq!(takes(&two.client(0), &last).await, [true; 3]);
    two.cluster.quiet(&[]).unwrap();
}

/// Why there are two steps, and what becomes of who meets a gateway that lacks a key: it is told to
/// begin again, and does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_step_breaks_what_the_first_new_gateway_makes_and_says_so() {
    let mut two = Two::new(&[OLD]).await;
    let before = hold(&two.client(0)).await;
    two.roll(0, &[NEW, OLD]).await;
    assert_eq!(takes(&two.client(0), &before).await, [true; 3]);
    let held = hold(&two.client(0)).await;
    assert_eq!(takes(&two.client(1), &held).await, [false; 3]);
    let page = json!({"cursor": held.cursor});
    let told = two
        .client(1)
        .request("tools/list", page)
        .send()
        .await
        .unwrap();
    assert_eq!((told.status, told.error_code()), (200, Some(-32602)));
    let message = told.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("begin again"), "{message}");
    let again = hold(&two.client(1)).await;
    assert_eq!(takes(&two.client(0), &again).await, [true; 3]);
    two.cluster.quiet(&[]).unwrap();
}

/// Addresses of callbacks: a gateway that is a step behind knows them, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_known_to_a_gateway_that_is_a_step_behind() {
    let mut two = Two::new(&[OLD, NEW]).await;
    two.roll(0, &[NEW, OLD]).await;
    let ticket = Ticket {
        task: TaskId::new(0),
        key: "call".to_owned(),
        expires_ms: i64::MAX,
    };
    // 410: the address is known, and nobody waits. 404: it is not.
    for (key, status) in [(OLD, 410), (NEW, 410), (&"03".repeat(32), 404)] {
        let keys = Keys::read(&[key.to_owned()]).unwrap();
        let token = keys.sign(&ticket, "").unwrap();
        let request = crate::request::post()
            .line(&format!("POST /callbacks/{token} HTTP/1.1"))
            .body(r#"{"text":"x"}"#);
        for gateway in [0, 1] {
            let url = two.cluster.gateways[gateway].url();
            let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
            let (address, sent) = (address.parse().unwrap(), request.bytes());
            let got = harness::client::exchange(address, &sent, crate::stack::SOON).await;
            assert_eq!(row::status(&got.unwrap()), Some(status), "{key} {gateway}");
        }
    }
}
