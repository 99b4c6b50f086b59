//! Clients that send or read slowly, and what they hold meanwhile: nothing that others need.

use std::time::Duration;

use harness::client::Socket;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::frames::{self, HEADERS, PREFACE, SETTINGS, frame};
use crate::support::{SOON, World, config, text};

const MIB: usize = 1024 * 1024;

async fn settled(world: &World, series: &str, wanted: f64) {
    let look = async || world.metric(series);
    harness::wait::for_state(series, SOON, look, |n| *n == wanted)
        .await
        .unwrap();
}

fn request(world: &World, name: &str, length: usize, more: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {name}\r\n\
         Content-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n",
        world.address
    )
}

/// Requests one behind the other, none of whose answers is read.
#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off() {
    let mut config = config();
    config.limits.write_timeout = Duration::from_millis(500);
    config.limits.requests_of_principal_per_second = 0;
    let world = World::with(config).await;
    let one = format!("{}{{}}", request(&world, "mallory", 2, "")).repeat(100);
    // Little room for answers on our side, so that they pile up soon.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(world.address).await.unwrap();
    let writing = async {
        for _ in 0..100_000 {
            stream.write_all(one.as_bytes()).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    let written = tokio::time::timeout(6 * SOON, writing).await;
    assert!(written.expect("it is cut off").is_err());
    settled(&world, "mcp_tasks_gateway_connections", 0.0).await;
    assert!(world.client("bob").discover().await.is_ok());
}

/// Over HTTP/2 a client may read all that comes and yet take nothing of an answer, however short that is.
#[tokio::test]
async fn a_window_that_stays_shut_is_cut_off() {
    for length in [1, FREE, 20_000] {
        let mut config = config();
        config.limits.write_timeout = Duration::from_millis(500);
        let world = World::with(config).await;
        let alice = world.client("alice");
        let name = finished(&world, length).await;
        cut_off(ask_shut(&world, "alice", &name, 1).await).await;
        settled(&world, "mcp_tasks_gateway_connections", 0.0).await;
        settled(&world, "mcp_tasks_gateway_message_bytes", 0.0).await;
        assert!(alice.get(&name).await.is_ok());
    }
}

/// Nor do those whom we do not know, who are answered why.
#[tokio::test]
async fn who_takes_no_refusal_is_cut_off() {
    let mut config = config();
    config.limits.write_timeout = Duration::from_millis(500);
    let world = World::with(config).await;
    // No name is believed that looks like a key.
    cut_off(ask_shut(&world, "mtk_mallory", "unknown", 1).await).await;
}

/// As long as an answer waits it is one of those that its principal may have open.
#[tokio::test]
async fn answers_that_are_not_taken_are_open_requests() {
    let mut config = config();
    config.limits.write_timeout = 3 * SECOND;
    config.limits.requests_of_principal_max = 4;
    let world = World::with(config).await;
    let name = finished(&world, 1).await;
    let shut = ask_shut(&world, "alice", &name, 4).await;
    let alice = world.client("alice");
    let refused = async || alice.get(&name).await.is_err().then_some(());
    let waiting = harness::wait::until("there are as many as may be", SOON, refused);
    waiting.await.unwrap();
    assert!(world.client("bob").discover().await.is_ok());
    cut_off(shut).await;
    let answered = async || alice.get(&name).await.is_ok().then_some(());
    let waiting = harness::wait::until("they are closed", SOON, answered);
    waiting.await.unwrap();
}

/// As many bytes as are not counted.
const FREE: usize = 16 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// A task of alice's whose result is about so long.
async fn finished(world: &World, length: usize) -> String {
    let alice = world.client("alice");
    let task = alice.call("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    let frame = 600;
    let result = text(&"x".repeat(length.saturating_sub(frame)));
    world.complete(&claim, &result).await;
    task["taskId"].as_str().unwrap().to_owned()
}

/// Asks for it so many times over a connection of which the window stays shut.
async fn ask_shut(world: &World, who: &str, name: &str, times: u32) -> TcpStream {
    let body = world
        .client(who)
        .request("tasks/get", json!({"taskId": name}))
        .bytes();
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE = 0.
    let shut = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let token = format!("Bearer {who}");
    let head = frames::head(&[
        ("authorization", &token),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tasks/get"),
        ("mcp-name", name),
    ]);
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&shut).await.unwrap();
    for n in 0..times {
        let asked = [
            frame(HEADERS, 4, 1 + 2 * n, &head),
            frame(0, 1, 1 + 2 * n, &body),
        ];
        stream.write_all(&asked.concat()).await.unwrap();
    }
    stream
}

/// It is closed, whatever it reads.
async fn cut_off(mut stream: TcpStream) {
    let reading = async {
        let mut bytes = vec![0; 4096];
        while stream.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
    };
    tokio::time::timeout(SOON, reading)
        .await
        .expect("it is cut off");
}

/// A body that was refused by its head is read away for a while, so that its sender reads why.
#[tokio::test]
async fn refused_bodies_take_no_place_of_others() {
    let mut config = config();
    config.limits.requests_max = 2;
    let world = World::with(config).await;
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut socket = Socket::connect(world.address).await.unwrap();
        let head = request(
            &world,
            "mallory",
            1000,
            "Origin: http://evil.example.com\r\n",
        );
        socket.write(format!("{head}x").as_bytes()).await.unwrap();
        slow.push(socket);
    }
    let busy = async || world.metric("mcp_tasks_gateway_requests_in_flight");
    harness::wait::for_state("all are being read away", SOON, busy, |n| *n >= 6.0)
        .await
        .unwrap();
    for _ in 0..5 {
        assert!(world.client("bob").discover().await.is_ok());
    }
}

/// Below, at and above the number of requests that one principal may have open, its bodies half sent.
#[tokio::test]
async fn open_requests_of_a_principal() {
    let mut config = config();
    config.limits.requests_of_principal_max = 3;
    let world = World::with(config).await;
    let mallory = world.client("mallory");
    let mut half = Vec::new();
    for count in 1..=3_u32 {
        assert!(mallory.discover().await.is_ok(), "{count}");
        let mut socket = Socket::connect(world.address).await.unwrap();
        let head = request(&world, "mallory", 1000, "");
        socket.write(format!("{head}x").as_bytes()).await.unwrap();
        half.push(socket);
        settled(
            &world,
            "mcp_tasks_gateway_requests_in_flight",
            f64::from(count),
        )
        .await;
    }
    // They have arrived; each takes its place a moment later.
    let over = async || {
        let answer = mallory.request("server/discover", json!({})).send().await;
        let answer = answer.unwrap();
        (answer.status == 429).then_some(answer)
    };
    let refused = harness::wait::until("the fourth is refused", SOON, over)
        .await
        .unwrap();
    assert_eq!(refused.header("retry-after"), "1");
    assert!(
        refused.error()["message"]
            .as_str()
            .unwrap()
            .contains("open requests")
    );
    assert!(world.client("bob").discover().await.is_ok());
    drop(half);
    let free = async || mallory.discover().await.ok().map(drop);
    harness::wait::until("the places are free", SOON, free)
        .await
        .unwrap();
}

/// One principal's half-sent bodies take its share of the memory and no more.
#[tokio::test]
async fn half_sent_bodies_of_a_principal() {
    let mut config = config();
    config.limits.body_bytes_max = MIB;
    config.limits.memory_bytes_max = 6 * MIB;
    config.limits.memory_bytes_of_principal_max = 2 * MIB;
    let world = World::with(config).await;
    let bytes = "mcp_tasks_gateway_message_bytes";
    let half = MIB * 6 / 10;
    let mut sockets = Vec::new();
    for _ in 0..8 {
        let mut socket = Socket::connect(world.address).await.unwrap();
        let body = " ".repeat(half);
        let request = format!(
            "{}{body}",
            request(&world, "mallory", MIB, "Connection: close\r\n")
        );
        socket.write(request.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    let taken = async || world.metric(bytes);
    harness::wait::for_state("bodies are kept", SOON, taken, |n| *n >= 1e6)
        .await
        .unwrap();
    // Whoever did not fit is told so when the rest has come.
    let mut refused = 0;
    for socket in &mut sockets {
        let rest = " ".repeat(MIB - half);
        let _ = socket.write(rest.as_bytes()).await;
        let answer = String::from_utf8_lossy(&socket.read_to_end(SOON).await).into_owned();
        assert!(world.metric(bytes) <= 2.0 * 1_048_576.0);
        if answer.starts_with("HTTP/1.1 429 ") {
            assert!(
                answer.to_lowercase().contains("\r\nretry-after: "),
                "{answer}"
            );
            refused += 1;
        } else {
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
    }
    assert!(refused >= 4, "{refused} of 8 were refused");
    settled(&world, bytes, 0.0).await;
}

/// What one principal keeps in memory is no reason to refuse another one.
#[tokio::test]
async fn others_have_room_for_their_bodies_meanwhile() {
    let mut config = config();
    config.limits.body_bytes_max = MIB;
    config.limits.memory_bytes_of_principal_max = 2 * MIB;
    let world = World::with(config).await;
    let mut sockets = Vec::new();
    for _ in 0..8 {
        let mut socket = Socket::connect(world.address).await.unwrap();
        let request = format!(
            "{}{}",
            request(&world, "mallory", MIB, ""),
            " ".repeat(MIB / 2)
        );
        socket.write(request.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    let taken = async || world.metric("mcp_tasks_gateway_message_bytes");
    harness::wait::for_state("bodies are kept", SOON, taken, |n| *n >= 1e6)
        .await
        .unwrap();
    let bob = world.client("bob");
    let call = bob.request("server/discover", json!({}));
    let mut body = call.bytes().to_vec();
    body.resize(MIB, b' ');
    assert_eq!(call.body(body).send().await.unwrap().status, 200);
}
