//! Spans reach a collector, with their contexts. One test, because logging is set up once a process.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

extern crate mcp_tasks_telemetry as telemetry;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use telemetry::traces::{context_of, current_context, link_span, set_parent_from};
use telemetry::{Config, Registry, TraceContext};

const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const REMOTE_TRACE: [u8; 16] = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();

/// A collector that takes any number of requests and passes on their bodies.
fn collector() -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (bodies, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            for line in reader.by_ref().lines() {
                let line = line.unwrap().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            reader.get_mut().write_all(answer).unwrap();
            bodies.send(body).unwrap();
        }
    });
    (endpoint, received)
}

fn trace_id(context: &TraceContext) -> String {
    let traceparent = context.traceparent.as_deref().expect("spans are made");
    traceparent.split('-').nth(1).unwrap().to_owned()
}

/// A runtime with one thread is the hardest case: flushing must not need it.
#[tokio::test(flavor = "current_thread")]
async fn spans_are_exported_and_carry_contexts_in_and_out() {
    let (endpoint, received) = collector();
    let mut config = Config::default();
    config.traces.endpoint = Some(endpoint);
    config.logs.filter = "off".to_owned();
    assert_eq!(config.validate(), Vec::<String>::new());
    let guard = telemetry::init(&config, "mcp-tasks-test").unwrap();
    let registry = Registry::new();
    guard.observe(&registry);
    assert!(telemetry::init(&config, "twice").is_err());

    assert_eq!(
        current_context(),
        TraceContext::default(),
        "no span is open"
    );
    let child = tracing::info_span!("child-of-remote");
    let remote = TraceContext {
        traceparent: Some(REMOTE.to_owned()),
        tracestate: Some("vendor=1".to_owned()),
        baggage: Some("tenant=a".to_owned()),
    };
    assert!(set_parent_from(&child, &remote));
    let passed_on = child.in_scope(current_context);
    assert_eq!(trace_id(&passed_on), REMOTE[3..35]);
    assert_ne!(passed_on.traceparent, remote.traceparent, "its own span id");
    assert_eq!(passed_on.tracestate, remote.tracestate);
    assert_eq!(passed_on.baggage, remote.baggage);

    let job = tracing::info_span!(parent: None, "linked-job");
    assert!(link_span(&job, &remote, "call"));
    assert_ne!(
        trace_id(&context_of(&job)),
        REMOTE[3..35],
        "a root of its own"
    );

    let foreign = tracing::info_span!(parent: None, "foreign");
    for malformed in [
        "",
        "00-0-0-01",
        "zz",
        &REMOTE.to_uppercase(),
        &"0".repeat(100_000),
    ] {
        let context = TraceContext {
            traceparent: Some((*malformed).to_owned()),
            ..TraceContext::default()
        };
        assert!(!link_span(&foreign, &context, "call"), "{malformed}");
    }
    assert!(!set_parent_from(&foreign, &TraceContext::default()));
    drop((child, job, foreign));
    drop(guard);

    let bodies: Vec<u8> = received.try_iter().flatten().collect();
    let holds = |needle: &[u8]| bodies.windows(needle.len()).any(|window| window == needle);
    for name in ["child-of-remote", "linked-job", "foreign", "mcp-tasks-test"] {
        assert!(holds(name.as_bytes()), "{name} was not exported");
    }
    assert!(holds(&REMOTE_TRACE));
    let text = registry.render();
    let line = r#"mcp_tasks_telemetry_spans_exported_total{outcome="ok"} 3"#;
    assert!(text.contains(line), "{text}");
}
