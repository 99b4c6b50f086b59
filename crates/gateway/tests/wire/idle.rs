//! Connections over HTTP/2 over which nothing is asked: they end like those over HTTP/1, however lively
//! they are besides.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::frames::{self, END_HEADERS, GOAWAY, HEADERS, PREFACE, SETTINGS, frame, kinds};
use crate::support::{SOON, World, config, request, whole};

/// Long enough that nobody who is about to ask is taken for idle.
const IDLE: Duration = Duration::from_secs(2);
const END_STREAM: u8 = 1;

/// A connection that answers every ping, and when it is over.
async fn lively(world: &World) -> (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let io = TokioIo::new(stream);
    let shaken = http2::handshake(TokioExecutor::new(), io).await;
    let (sender, connection) = shaken.unwrap();
    (sender, TaskTracker::new().spawn(connection))
}

/// Asks once, and then no more.
async fn stale(world: &World) {
    let (mut sender, over) = lively(world).await;
    let discover = request(world, "server/discover", json!({}));
    let answer = sender.send_request(discover).await.unwrap();
    drop(whole(answer).await);
    let ended = tokio::time::timeout(SOON, over).await;
    ended.expect("it is told to end").unwrap().unwrap();
}

/// The same, by somebody who answers nothing that we say.
async fn deaf(world: &World) {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::head(&[]));
    let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &head].concat();
    stream.write_all(&sent).await.unwrap();
    let mut came = Vec::new();
    let reading = tokio::time::timeout(SOON, stream.read_to_end(&mut came));
    drop(reading.await.expect("it is closed"));
    let came = kinds(&came);
    assert!(came.contains(&HEADERS), "it was answered: {came:?}");
    assert!(came.contains(&GOAWAY), "it was told to end: {came:?}");
}

#[tokio::test]
async fn connections_over_which_nothing_is_asked_end() {
    let mut config = config();
    config.limits.header_read_timeout = IDLE;
    let world = World::with(config).await;
    let as_alice = |method: &str, params| {
        let mut request = request(&world, method, params);
        let token = "Bearer alice".parse().unwrap();
        request.headers_mut().insert("authorization", token);
        request
    };
    // She asks for nothing more, but is still being answered.
    let (mut sender, over) = lively(&world).await;
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listening = as_alice("subscriptions/listen", listen);
    let listening = sender.send_request(listening).await.unwrap();
    assert_eq!(listening.status(), 200);
    tokio::join!(stale(&world), deaf(&world));
    assert!(!over.is_finished());
    let answer = sender
        .send_request(as_alice("server/discover", json!({})))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    whole(answer).await;
    // When the answer is over, so is the connection.
    drop(listening);
    let ended = tokio::time::timeout(SOON, over).await;
    ended.expect("it is told to end").unwrap().unwrap();
    let open = async || world.metric("mcp_tasks_gateway_connections");
    harness::wait::for_state("all are gone", SOON, open, |n| *n == 0.0)
        .await
        .unwrap();
}
