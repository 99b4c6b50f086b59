//! The whole way from a socket to an answer: a gateway whose Postgres and Redis are away, and bytes.
//!
//! The first byte says how much of the request is right already, so that what follows gets deeper.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use gateway::{Config, Gateway};
use queue::Queue;
use serde_json::Value;
use store::Store;
use telemetry::{Health, Registry};
use tokio_util::sync::CancellationToken;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Nothing waits so long for anything.
const HANGS: Duration = Duration::from_secs(20);
/// What `docs/errors.md` knows; 503, because nothing but the gateway is there.
const STATUSES: &[u16] = &[
    100, 200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 429, 431, 503,
];
/// A gateway's whole endpoint, and half of one of an older revision.
const MODERN: &str = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                      Accept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nConnection: close\r\n";
const OLDER: &str = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                     MCP-Protocol-Version: 2025-11-25\r\nConnection: close\r\n";

struct Entry {
    address: SocketAddr,
    registry: Registry,
    _runtime: tokio::runtime::Runtime,
}

static ENTRY: LazyLock<Entry> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (registry, address) = runtime.block_on(start());
    Entry {
        address,
        registry,
        _runtime: runtime,
    }
});

async fn start() -> (Registry, SocketAddr) {
    let registry = Registry::new();
    let store = store::Config {
        url: "postgres://127.0.0.1:1/none".to_owned(),
        wait_max: Duration::ZERO,
        ..store::Config::default()
    };
    let hints = queue::Config {
        url: "redis://127.0.0.1:1".to_owned(),
        ..queue::Config::default()
    };
    let mut config = Config {
        request_state_keys: vec![KEY.to_owned()],
        ..Config::default()
    };
    config.limits.body_bytes_max = 64 * 1024;
    config.limits.body_read_timeout = Duration::from_millis(200);
    config.limits.header_read_timeout = Duration::from_millis(200);
    config.limits.requests_of_principal_per_second = 1_000_000;
    config.limits.requests_of_principal_burst = 1_000_000;
    let gateway = Gateway::new(
        config,
        gateway::auth::Config::default(),
        Store::new(store, &registry).expect("settings"),
        Queue::new(hints, &registry).expect("settings"),
        &registry,
        Health::new(&registry),
    );
    let keys = protocol::callback::Keys::read(&[KEY.to_owned()]).expect("a key");
    let gateway = gateway.expect("settings").called_back(keys, 4096);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    let running = gateway.run(listener, CancellationToken::new());
    // Owned by the runtime, which lives as long as the process.
    tokio_util::task::TaskTracker::new().spawn(running);
    (registry, address)
}

pub(crate) fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let sent = match kind % 4 {
        0 => rest.to_vec(),
        1 => with_body(MODERN, rest),
        2 => with_body(OLDER, rest),
        // A method of ours, and everything else as the bytes say.
        _ => [
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n",
            rest,
        ]
        .concat(),
    };
    let got = exchange(&sent);
    if let Some(status) = got
        .strip_prefix(b"HTTP/1.1 ")
        .or(got.strip_prefix(b"HTTP/1.0 "))
    {
        let status = std::str::from_utf8(&status[..3])
            .ok()
            .and_then(|text| text.parse().ok());
        let known = status.is_some_and(|status| STATUSES.contains(&status));
        assert!(known, "{:?}: {:?}", text(&sent), text(&got));
        well_formed(&got);
    }
    let panics = ENTRY.registry.render();
    let panics = panics
        .lines()
        .find(|line| line.starts_with("mcp_tasks_gateway_panics_total "));
    assert!(
        panics.is_none_or(|line| line.ends_with(" 0")),
        "{:?}",
        text(&sent)
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A method that the body names is mirrored, so that more than the mirror is reached.
fn with_body(head: &str, body: &[u8]) -> Vec<u8> {
    let read: Option<Value> = serde_json::from_slice(body).ok();
    let member = |at: &str| {
        let value = read.as_ref()?.pointer(at)?.as_str()?.to_owned();
        value
            .bytes()
            .all(|byte| byte.is_ascii_graphic())
            .then_some(value)
    };
    let mut sent = head.to_owned();
    if let Some(method) = member("/method") {
        sent.push_str(&format!("Mcp-Method: {method}\r\n"));
    }
    let names = ["/params/name", "/params/uri", "/params/taskId"];
    if let Some(name) = names.into_iter().find_map(member) {
        sent.push_str(&format!("Mcp-Name: {name}\r\n"));
    }
    sent.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    [sent.as_bytes(), body].concat()
}

fn exchange(sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(ENTRY.address).expect("it accepts");
    stream.set_read_timeout(Some(HANGS)).expect("a timeout");
    // It may answer and close before it has read everything.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(Shutdown::Write);
    let mut got = Vec::new();
    if let Err(error) = stream.read_to_end(&mut got) {
        let hangs = matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        );
        assert!(!hangs, "it hangs: {:?}", text(sent));
    }
    got
}

/// One whole answer of JSON is JSON.
fn well_formed(got: &[u8]) {
    let text = text(got);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return;
    };
    let head = head.to_ascii_lowercase();
    let whole =
        head.contains("content-type: application/json") && head.contains("content-length: ");
    if whole && !body.is_empty() && !body.contains("HTTP/1.1 ") {
        let read: Result<Value, _> = serde_json::from_str(body);
        assert!(read.is_ok(), "{text}");
    }
}
