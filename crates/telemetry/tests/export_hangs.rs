//! A collector that never answers must not hold up serving, nor the end of the process.

extern crate mcp_tasks_telemetry as telemetry;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use telemetry::{Config, Registry};

#[tokio::test(flavor = "current_thread")]
async fn a_hung_collector_holds_up_nothing() {
    // Connections land in the backlog, and nobody reads them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::default();
    config.traces.endpoint = Some(format!(
        "http://{}/v1/traces",
        listener.local_addr().unwrap()
    ));
    config.traces.batch_delay = Duration::from_millis(20);
    config.traces.queue_spans_max = 100;
    config.traces.export_timeout = Duration::from_secs(30);
    config.traces.flush_timeout = Duration::from_millis(500);
    config.logs.filter = "off".to_owned();
    let guard = telemetry::init(&config, "mcp-tasks-test").unwrap();
    guard.observe(&Registry::new());
    let started = Instant::now();
    for _ in 0..10_000 {
        tracing::info_span!("span").in_scope(|| ());
    }
    // An export hangs by now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..10_000 {
        tracing::info_span!("span").in_scope(|| ());
    }
    let made = started.elapsed();
    assert!(made < Duration::from_secs(5), "making spans took {made:?}");
    let started = Instant::now();
    drop(guard);
    let dropped = started.elapsed();
    assert!(dropped < Duration::from_secs(2), "the end took {dropped:?}");
}
