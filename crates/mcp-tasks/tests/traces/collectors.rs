//! A collector that is gone, silent or slow costs spans, and nothing else.

use std::time::{Duration, Instant};

use harness::client::Client;
use harness::logs;
use harness::node::Node;
use harness::wait;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner};
use crate::stack::{SOON, Stack, plan};

/// Spans that may wait; a few calls make more.
const WAITING_MAX: usize = 64;
/// Calls of each gateway.
const CALLS: usize = 60;

fn export_to(node: &mut Node, endpoint: &str) {
    let settings = format!(
        "[traces]\nendpoint = {endpoint:?}\nqueue_spans_max = {WAITING_MAX}\n\
         export_timeout = \"60s\"\nflush_timeout = \"1s\"\n"
    );
    let over = settings.parse().unwrap();
    harness::config::merge(&mut node.plan_mut().common.settings, &over);
}

async fn call(client: &Client, name: String) -> Duration {
    let began = Instant::now();
    let result = client
        .call("chaos_quick", plan(&name, json!([]), "result"))
        .await;
    assert!(result.unwrap()["content"].is_array(), "answered inline");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Lines that are no good news, by what they say.
fn complaints(node: &Node) -> Vec<Value> {
    let lines = logs::lines(node.log()).unwrap().into_iter();
    lines
        .filter(|line| line["level"] == "WARN" || line["level"] == "ERROR")
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_goes_on_while_collectors_are_gone_silent_or_slow() {
    let silent = Collector::start(Manner::Silent).await;
    let slow = Collector::start(Manner::Slow(Duration::from_secs(1))).await;
    // A port that nobody listens at: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}/v1/traces", free.local_addr().unwrap());
    drop(free);
    let mut stack = Stack::of((4, 1), "").await;
    let endpoints = [gone.as_str(), &silent.endpoint, &slow.endpoint];
    for (node, endpoint) in stack.cluster.gateways[1..].iter_mut().zip(endpoints) {
        export_to(node, endpoint);
        node.restart().await.unwrap();
    }
    let clients: Vec<Client> = (0..4).map(|at| stack.cluster.client(at, "alice")).collect();
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..CALLS {
        // In turn, so that what else this machine does meets all of them.
        for (at, client) in clients.iter().enumerate() {
            times[at].push(call(client, format!("{at} {round}")).await);
        }
    }
    let [none, gone, silent, slow] = times.map(median);
    let most = none * 3 + Duration::from_millis(50);
    println!("median of a call: without {none:?}, gone {gone:?}, silent {silent:?}, slow {slow:?}");
    assert!(gone < most && silent < most && slow < most);

    let [_, gone, silent, slow] = &stack.cluster.gateways[..] else {
        panic!("there are four");
    };
    let exported = "mcp_tasks_telemetry_spans_exported_total";
    let dropped = "mcp_tasks_telemetry_spans_dropped_total";
    let failed = wait::until("failed exports", SOON, async || {
        let failed = gone.metric(exported, "outcome=\"error\"").await.ok()?;
        (failed > 0.0).then_some(failed)
    });
    failed.await.unwrap();
    assert!(silent.metric(dropped, "").await.unwrap() > 0.0);
    assert!(slow.metric(exported, "outcome=\"ok\"").await.unwrap() > 0.0);
    for node in [gone, silent, slow] {
        let waiting = node.metric("mcp_tasks_telemetry_spans_waiting", "").await;
        assert!(waiting.unwrap() <= 64.0);
    }
    // Families exist where nothing is exported, too.
    let page = stack.cluster.gateways[0].metrics().await.unwrap();
    for family in [exported, dropped, "mcp_tasks_telemetry_spans_waiting"] {
        assert!(page.contains(family), "{family}");
    }

    let told = complaints(gone);
    assert_eq!(told.len(), 1, "once, and not once a second: {told:?}");
    assert!(
        told[0]["message"]
            .as_str()
            .unwrap()
            .starts_with("spans cannot be exported")
    );
    assert_eq!(
        (complaints(silent), complaints(slow)),
        (Vec::new(), Vec::new())
    );

    for node in &mut stack.cluster.gateways[1..] {
        let began = Instant::now();
        let ended = node.stop(SOON).await.unwrap();
        assert!(ended.success(), "{ended}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "the end took {took:?}");
    }
}
