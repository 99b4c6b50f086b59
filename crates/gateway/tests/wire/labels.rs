//! What clients send, and what tools answer with, becomes no label: the series of a process are bounded.

use futures::future::join_all;
use harness::client::Client;
use serde_json::{Value, json};

use crate::support::{World, config};

/// A flood is sent on so many connections.
const AT_ONCE: usize = 16;
/// Of names that nobody knows.
const FLOOD: usize = 10_000;
/// Clients by name: the first 20, and `other`; each by the four paces.
const CLIENT_SERIES_MAX: usize = 21 * 4;

/// The series of one metric, without their values.
fn series(world: &World, metric: &str) -> Vec<String> {
    let text = world.registry.render();
    let samples = text
        .lines()
        .filter(|line| line.starts_with(&format!("{metric}{{")));
    samples
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn all(world: &World) -> usize {
    let text = world.registry.render();
    let own = |line: &&str| line.starts_with("mcp_tasks_gateway_");
    text.lines().filter(own).count()
}

/// Sends what `request` makes of each number, and does not care for the answers.
async fn flood(numbers: usize, request: impl AsyncFn(usize)) {
    for first in (0..numbers).step_by(AT_ONCE) {
        let some = first..numbers.min(first + AT_ONCE);
        join_all(some.map(|number| request(number))).await;
    }
}

async fn send(client: &Client, method: &str, params: Value) {
    client.request(method, params).send().await.unwrap();
}

#[tokio::test]
async fn made_up_methods_and_tools_add_no_series() {
    // Refusals of a flood are another series, and on a fast machine they would be among these.
    let mut config = config();
    config.limits.requests_of_principal_per_second = 0;
    let world = World::with(config).await;
    let alice = world.client("alice");
    // Each way to be wrong once.
    send(&alice, "made/up", json!({})).await;
    send(&alice, "tools/call", json!({"name": "made_up"})).await;
    let before = all(&world);
    flood(FLOOD / 2, async |number| {
        send(&alice, &format!("made/up/{number}"), json!({})).await;
    })
    .await;
    flood(FLOOD / 2, async |number| {
        let tool = format!("made_up_{number}");
        send(&alice, "tools/call", json!({"name": tool})).await;
    })
    .await;
    assert_eq!(all(&world), before);
    let unknown =
        r#"{code="-32601",http_status="404",method="unknown",outcome="method_not_found"}"#;
    let counted = world.metric(&format!("mcp_tasks_gateway_requests_total{unknown}"));
    assert_eq!(counted, (FLOOD / 2 + 1) as f64);
}

#[tokio::test]
async fn made_up_client_names_share_one_label() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    flood(1_000, async |number| {
        let client = json!({"name": format!("client-{number}"), "version": "1"});
        let poll = alice.request("tasks/get", json!({"taskId": id}));
        let poll = poll.meta("io.modelcontextprotocol/clientInfo", client);
        assert_eq!(poll.send().await.unwrap().status, 200);
    })
    .await;
    let polls = series(&world, "mcp_tasks_gateway_polls_total");
    assert!(polls.len() <= CLIENT_SERIES_MAX, "{polls:#?}");
    assert!(
        polls.iter().any(|one| one.contains("client-")),
        "{polls:#?}"
    );
}

#[tokio::test]
async fn codes_that_tools_make_up_share_one_label() {
    let world = World::new().await;
    let alice = world.client("alice");
    for code in [-32602, -31_999, 7, 1_000_000] {
        let call = alice.call("call", json!({}));
        let work = async {
            let claim = world.claim("call").await;
            world
                .fail(&claim, &json!({"code": code, "message": "no"}))
                .await;
        };
        let (answer, ()) = tokio::join!(call, work);
        answer.unwrap_err();
    }
    let of = |code: &str| {
        let labels =
            format!(r#"{{code="{code}",http_status="200",method="tools/call",outcome="failed"}}"#);
        world.metric(&format!("mcp_tasks_gateway_requests_total{labels}"))
    };
    assert_eq!((of("-32602"), of("other")), (1.0, 3.0));
}

/// An answer that somebody watches counts from zero: the first one shows as an increase.
#[tokio::test]
async fn what_alerts_look_at_exists_before_it_happens() {
    let world = World::new().await;
    let requests = series(&world, "mcp_tasks_gateway_requests_total");
    for labels in [
        r#"code="none",http_status="200",method="tools/call",outcome="ok""#,
        r#"code="none",http_status="200",method="tools/call",outcome="task""#,
        r#"code="429",http_status="429",method="tasks/get",outcome="overloaded""#,
        r#"code="-32603",http_status="503",method="tasks/get",outcome="unavailable""#,
        r#"code="-32603",http_status="500",method="tools/list",outcome="internal""#,
    ] {
        assert!(
            requests.iter().any(|one| one.contains(labels)),
            "{labels}: {requests:#?}"
        );
    }
}
