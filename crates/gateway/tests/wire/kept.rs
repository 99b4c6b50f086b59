//! Connections that clients keep, when the process is asked to end: none is closed in the moment in
//! which the next request comes over it, as far as HTTP lets a server see to that.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use crate::support::{SECOND, SOON, World, config, request, text, whole};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// One connection over HTTP/1, which nothing opens anew.
struct Kept {
    sender: http1::SendRequest<Full<Bytes>>,
    open: AbortHandle,
}

impl Kept {
    async fn open(world: &World, connections: &mut JoinSet<hyper::Result<()>>) -> Kept {
        let stream = TcpStream::connect(world.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let open = connections.spawn(connection);
        Kept { sender, open }
    }

    /// The value of `Connection` in the answer to a request that is answered.
    async fn ask(&mut self, world: &World) -> Option<String> {
        let mut asked = request(world, "server/discover", json!({}));
        let host = world.address.to_string().parse().unwrap();
        asked.headers_mut().insert("host", host);
        let answer = self.sender.send_request(asked).await.unwrap();
        assert_eq!(answer.status(), 200);
        let told = answer.headers().get("connection").cloned();
        assert!(whole(answer).await.contains("supportedVersions"));
        told.map(|value| value.to_str().unwrap().to_owned())
    }
}

/// Waits until no more connections are taken.
async fn until_closing(world: &World) {
    harness::wait::until("the listener is closed", SOON, async || {
        TcpStream::connect(world.address).await.err()
    })
    .await
    .unwrap();
}

/// While load balancers still send requests here, each is answered, and told to go elsewhere next.
#[tokio::test]
async fn from_the_signal_on_answers_end_their_connections() {
    let mut config = config();
    config.drain_delay = LONG;
    let world = World::with(config).await;
    let mut connections = JoinSet::new();
    let mut kept = Kept::open(&world, &mut connections).await;
    assert_eq!(kept.ask(&world).await, None);
    assert_eq!(kept.ask(&world).await, None);
    world.shutdown.cancel();
    assert_eq!(kept.ask(&world).await.as_deref(), Some("close"));
    connections.join_next().await.unwrap().unwrap().unwrap();
    // Whoever comes anew is served too.
    let mut fresh = Kept::open(&world, &mut connections).await;
    assert_eq!(fresh.ask(&world).await.as_deref(), Some("close"));
    connections.join_next().await.unwrap().unwrap().unwrap();
}

/// After that nobody comes anew, but whoever kept a connection may ask once more over it.
#[tokio::test]
async fn idle_connections_are_answered_once_more() {
    let mut config = config();
    config.drain_deadline = LONG;
    let mut world = World::with(config).await;
    let mut connections = JoinSet::new();
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut one = Kept::open(&world, &mut connections).await;
        assert_eq!(one.ask(&world).await, None);
        kept.push(one);
    }
    // Not a word was said over this one yet.
    kept.push(Kept::open(&world, &mut connections).await);
    world.shutdown.cancel();
    until_closing(&world).await;
    for (n, mut one) in kept.into_iter().enumerate() {
        assert!(!one.open.is_finished(), "connection {n} was closed unasked");
        assert_eq!(one.ask(&world).await.as_deref(), Some("close"), "{n}");
        connections.join_next().await.unwrap().unwrap().unwrap();
    }
    let begun = Instant::now();
    world.stop().await;
    assert!(begun.elapsed() < LONG / 2, "nobody is waited for any more");
}

/// One that nobody uses again holds up nothing beyond the deadline, and is closed, not reset.
#[tokio::test]
async fn an_unused_connection_is_closed_in_good_order() {
    let mut config = config();
    config.drain_deadline = 2 * SECOND;
    let mut world = World::with(config).await;
    let mut connections = JoinSet::new();
    let mut kept = Kept::open(&world, &mut connections).await;
    assert_eq!(kept.ask(&world).await, None);
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    world.stop().await;
    connections.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
}

/// Over HTTP/2 the connection itself says that it ends: what is under way is answered, and nothing is
/// waited for.
#[tokio::test]
async fn http2_says_goodbye_at_once() {
    let mut config = config();
    config.drain_deadline = LONG;
    let mut world = World::with(config).await;
    let mut connections = JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..2 {
        let stream = TcpStream::connect(world.address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.unwrap();
        connections.spawn(connection);
        let asked = request(&world, "server/discover", json!({}));
        let answer = sender.send_request(asked).await.unwrap();
        assert!(whole(answer).await.contains("supportedVersions"));
        senders.push(sender);
    }
    let call = json!({"name": "inline", "arguments": {}});
    let held = senders[0].send_request(request(&world, "tools/call", call));
    let ending = async {
        let claim = world.claim("inline").await;
        world.shutdown.cancel();
        until_closing(&world).await;
        world.complete(&claim, &text("done")).await;
    };
    let (held, ()) = tokio::join!(held, ending);
    let held = held.unwrap();
    assert_eq!(held.headers().get("connection"), None);
    assert!(whole(held).await.contains("done"));
    let begun = Instant::now();
    world.stop().await;
    assert!(begun.elapsed() < LONG / 2, "nobody is waited for any more");
    while let Some(ended) = connections.join_next().await {
        ended.unwrap().unwrap();
    }
}
