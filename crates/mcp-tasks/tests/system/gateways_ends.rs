//! What must not keep a gateway from ending, or from serving others: clients that say nothing, and
//! a trace collector that does not answer.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use harness::client::Socket;
use harness::redis::Redis;
use harness::temp::Temp;
use serde_json::json;

use crate::support::{self, SOON, System, migrate};

/// Silent connections, half a request, a request letter by letter: each is closed when its time is
/// over, and none keeps the process.
#[tokio::test(flavor = "multi_thread")]
async fn silent_and_slow_clients_are_shown_out() {
    let settings = "[gateway]\ndrain_delay = \"0s\"\ndrain_deadline = \"2s\"\n\
                    [gateway.limits]\nheader_read_timeout = \"1s\"\nbody_read_timeout = \"1s\"";
    let mut system = System::with(1, 0, settings).await;
    let address = address(&system);
    let head = "POST /mcp HTTP/1.1\r\nhost: x\r\nx-slow: ";
    let whole = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{");
    let begun = Instant::now();
    let mut silent = Socket::connect(address).await.unwrap();
    let mut half = Socket::connect(address).await.unwrap();
    half.write(head.as_bytes()).await.unwrap();
    let mut body = Socket::connect(address).await.unwrap();
    body.write(whole.as_bytes()).await.unwrap();
    let mut slow = Socket::connect(address).await.unwrap();
    slow.write(head.as_bytes()).await.unwrap();
    let dripping = async {
        // It may be closed before all is written: that is the point.
        let letters = "x".repeat(100);
        let _ = slow
            .write_slowly(letters.as_bytes(), Duration::from_millis(100))
            .await;
        slow.read_to_end(SOON).await;
        begun.elapsed()
    };
    let closed = async |socket: &mut Socket| {
        socket.read_to_end(SOON).await;
        begun.elapsed()
    };
    let (dripping, silent, half, body) = tokio::join!(
        dripping,
        closed(&mut silent),
        closed(&mut half),
        closed(&mut body)
    );
    let took = [
        ("slow", dripping),
        ("silent", silent),
        ("half", half),
        ("body", body),
    ];
    // What is left of a refused body is waited for a little, so that the refusal can be read.
    assert!(
        took.iter().all(|(_, took)| *took < Duration::from_secs(8)),
        "{took:?}"
    );

    // Fresh ones of each kind do not hold up the end.
    let mut open = Vec::new();
    for bytes in ["", head, &whole] {
        let mut socket = Socket::connect(address).await.unwrap();
        socket.write(bytes.as_bytes()).await.unwrap();
        open.push(socket);
    }
    let begun = Instant::now();
    system.cluster.gateways[0].stop(SOON).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// On one core, with a collector that takes connections and never answers: calls are served, and
/// the process ends in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_collector_holds_up_neither_calls_nor_the_end() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", collector.local_addr().unwrap());
    let settings = format!(
        "[traces]\nendpoint = \"{endpoint}\"\nbatch_delay = \"20ms\"\nexport_timeout = \"30s\"\n\
         flush_timeout = \"500ms\"\n[gateway]\ndrain_delay = \"0s\"\ndrain_deadline = \"1s\"\n\
         [worker]\ndrain_deadline = \"1s\""
    );
    let dir = Temp::new().unwrap();
    let one_core = dir.path().join("one-core");
    let script = format!(
        "#!/bin/sh\nexec taskset -c 0 {} \"$@\"\n",
        env!("CARGO_BIN_EXE_mcp-tasks")
    );
    std::fs::write(&one_core, script).unwrap();
    std::fs::set_permissions(&one_core, std::fs::Permissions::from_mode(0o755)).unwrap();
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let mut plan = support::plan(database.url(), &redis.url()).settings(&settings);
    plan.binary = one_core;
    let mut cluster = plan.of(1, 1, 1).start().await.unwrap();
    cluster.wait_for_tools(0, &["slow_compute"]).await.unwrap();
    let alice = cluster.client(0, "alice");
    for _ in 0..50 {
        let begun = Instant::now();
        let id = alice
            .start("slow_compute", json!({"seconds": 0}))
            .await
            .unwrap();
        alice.get(&id).await.unwrap();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    for node in cluster.nodes() {
        let begun = Instant::now();
        node.stop(SOON).await.unwrap();
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(4),
            "{} took {took:?}",
            node.name()
        );
    }
}

fn address(system: &System) -> SocketAddr {
    let url = system.cluster.gateways[0].url();
    let host = url.trim_start_matches("http://").trim_end_matches("/mcp");
    host.parse().unwrap()
}
