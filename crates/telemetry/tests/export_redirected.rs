//! Spans go to their collector and nowhere else, wherever it sends them.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

extern crate mcp_tasks_telemetry as telemetry;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use telemetry::{Config, Registry};

/// Answers every request with this, and passes on that there was one.
fn server(answer: impl Fn() -> String + Send + 'static) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (asked, requests) = mpsc::channel();
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
            reader.read_exact(&mut vec![0; length]).unwrap();
            reader.get_mut().write_all(answer().as_bytes()).unwrap();
            // Nobody listens any more once the test is over.
            asked.send(()).ok();
        }
    });
    (url, requests)
}

#[tokio::test(flavor = "current_thread")]
async fn spans_are_led_nowhere_else() {
    let (elsewhere, came) = server(|| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned());
    let (endpoint, asked) = server(move || {
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\
             connection: close\r\n\r\n"
        )
    });
    let mut config = Config::default();
    config.traces.endpoint = Some(endpoint);
    config.traces.batch_delay = Duration::from_millis(20);
    config.logs.filter = "off".to_owned();
    let guard = telemetry::init(&config, "mcp-tasks-test").unwrap();
    let registry = Registry::new();
    guard.observe(&registry);
    tracing::info_span!("span").in_scope(|| ());
    // The end sends what is left, and waits for the answer.
    drop(guard);
    assert!(asked.try_recv().is_ok(), "the collector was asked");
    assert!(came.try_recv().is_err(), "and nobody else");
    let text = registry.render();
    let line = r#"mcp_tasks_telemetry_spans_exported_total{outcome="error"} 1"#;
    assert!(text.contains(line), "{text}");
}
