//! What is not even looked at: one test, because logging is set up once a process.

extern crate mcp_tasks_telemetry as telemetry;

use telemetry::Config;
use telemetry::traces::{DETAIL, LOOP, inside_span};
use tracing::Level;

#[test]
fn libraries_say_no_more_than_they_may_and_detail_is_for_collectors_only() {
    let mut config = Config::default();
    config.logs.filter = "trace".to_owned();
    let _guard = telemetry::init(&config, "mcp-tasks-test").expect("logging is not set up yet");

    assert!(tracing::enabled!(target: "acme_tools", Level::DEBUG));
    assert!(tracing::enabled!(target: "redistribution", Level::DEBUG));
    assert!(!tracing::enabled!(target: "tokio_postgres::query", Level::DEBUG));
    assert!(tracing::enabled!(target: "tokio_postgres::connection", Level::INFO));
    assert!(!tracing::enabled!(target: "deadpool.postgres", Level::WARN));
    assert!(!tracing::enabled!(target: "opentelemetry_sdk", Level::ERROR));
    assert!(!tracing::enabled!(target: "hyper_util::client", Level::TRACE));
    // The `log` crate's lines go the same way.
    assert!(!tracing::enabled!(target: "redis", Level::DEBUG));

    let detail = tracing::info_span!(target: DETAIL, "detail");
    assert!(detail.is_disabled(), "nobody would see it");
    assert!(!inside_span());
    tracing::info_span!("request").in_scope(|| assert!(inside_span()));
    tracing::info_span!(target: LOOP, "sweep").in_scope(|| assert!(!inside_span()));
}
