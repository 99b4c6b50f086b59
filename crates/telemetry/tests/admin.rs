//! The admin listener, asked over real sockets.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

extern crate mcp_tasks_telemetry as telemetry;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use telemetry::{Health, Registry, admin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

struct Admin {
    address: SocketAddr,
    registry: Registry,
    health: Health,
    shutdown: CancellationToken,
    serving: JoinSet<()>,
}

async fn start() -> Admin {
    let registry = Registry::new();
    let health = Health::new(&registry);
    let shutdown = CancellationToken::new();
    let listener = admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(admin::serve(
        listener,
        registry.clone(),
        health.clone(),
        shutdown.clone(),
    ));
    Admin {
        address,
        registry,
        health,
        shutdown,
        serving,
    }
}

impl Admin {
    /// Sends one request; returns the status, and everything after it as text.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

#[tokio::test]
async fn probes_say_what_is_wrong() {
    let admin = start().await;
    let (postgres, redis) = (admin.health.check("postgres"), admin.health.check("redis"));
    for path in ["/readyz", "/startupz"] {
        let (status, body) = admin.ask("GET", path).await;
        assert_eq!(status, 503, "{path}");
        assert!(body.contains(r#""postgres":"starting""#), "{body}");
    }
    postgres.ready();
    redis.degraded("unreachable");
    let (status, body) = admin.ask("GET", "/readyz").await;
    assert_eq!(status, 200, "degraded stays ready");
    assert!(
        body.contains(r#""degraded":{"redis":"unreachable"}"#),
        "{body}"
    );
    assert_eq!(admin.ask("GET", "/startupz").await.0, 200);
    postgres.not_ready("connection refused");
    assert_eq!(admin.ask("GET", "/readyz").await.0, 503);
    assert_eq!(admin.ask("GET", "/startupz").await.0, 200);
    assert_eq!(admin.ask("GET", "/livez").await.0, 200);
    let _beat = admin.health.liveness("poll", Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let (status, body) = admin.ask("GET", "/livez").await;
    assert_eq!(status, 503);
    assert!(body.contains(r#""failing":{"poll":"#), "{body}");
}

#[tokio::test]
async fn metrics_are_in_the_text_format() {
    let admin = start().await;
    admin.health.check("postgres").ready();
    let (status, answer) = admin.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
    let line = r#"mcp_tasks_health_check{check="postgres",state="ready"} 1"#;
    assert!(answer.contains(line), "{answer}");
    assert!(admin.registry.render().contains(line));
}

#[tokio::test]
async fn nothing_else_is_served() {
    let admin = start().await;
    assert_eq!(admin.ask("GET", "/").await.0, 404);
    assert_eq!(admin.ask("GET", "/metrics/").await.0, 404);
    let (status, answer) = admin.ask("POST", "/readyz").await;
    assert_eq!(status, 405);
    assert!(answer.contains("allow: GET, HEAD"), "{answer}");
    let (status, answer) = admin.ask("HEAD", "/livez").await;
    assert_eq!(status, 200);
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn silent_clients_are_cut_off_and_keep_nobody_out_for_long() {
    let admin = start().await;
    let mut silent = Vec::new();
    for _ in 0..70 {
        silent.push(TcpStream::connect(admin.address).await.unwrap());
    }
    let started = Instant::now();
    assert_eq!(admin.ask("GET", "/livez").await.0, 200);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn shutdown_does_not_wait_for_idle_connections() {
    let mut admin = start().await;
    let _idle = TcpStream::connect(admin.address).await.unwrap();
    assert_eq!(admin.ask("GET", "/livez").await.0, 200);
    admin.shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), admin.serving.join_next()).await;
    ended.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err());
}

/// The runtime of the process is stuck: its admin listener is not, and says so.
#[tokio::test(flavor = "current_thread")]
async fn a_stuck_runtime_is_told_by_its_probe() {
    let registry = Registry::new();
    let health = Health::new(&registry);
    let shutdown = CancellationToken::new();
    let listener = admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut ended = admin::spawn(listener, registry, health.clone(), shutdown.clone()).unwrap();
    let beat = health.liveness("runtime", Duration::from_millis(100));
    let asking = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        std::io::read_to_string(stream).unwrap()
    });
    // Nothing else runs here until it has its answer.
    let answer = asking.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\"runtime\":\"last came round"), "{answer}");
    beat.beat();
    assert!(ended.try_recv().is_err());
    shutdown.cancel();
    assert!(
        ended.await.is_err(),
        "it has ended, and says no more than that"
    );
}
