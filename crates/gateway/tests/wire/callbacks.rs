//! Floods at the door of services: whoever has an address, or many, takes no more than its part, and
//! nothing that principals need.

use gateway::Config;
use harness::client::Socket;
use protocol::TaskId;
use protocol::callback::{Keys, Ticket};
use serde_json::json;

use crate::support::{KEY, SOON, World, config};

/// An address of some task that never was: it is as good as any until Postgres is asked.
fn address(expires_ms: i64) -> String {
    address_of("call", expires_ms)
}

fn address_of(key: &str, expires_ms: i64) -> String {
    let ticket = Ticket {
        task: TaskId::new(0),
        key: key.to_owned(),
        expires_ms,
    };
    let keys = Keys::read(&[KEY.to_owned()]).unwrap();
    format!("/callbacks/{}", keys.sign(&ticket, "").unwrap())
}

fn head(world: &World, path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n",
        world.address
    )
}

/// A call of which only a part comes.
async fn half(world: &World, path: &str, (sent, length): (usize, usize)) -> Socket {
    let mut socket = Socket::connect(world.address).await.unwrap();
    let head = head(world, path, length);
    let begun = [format!("{head}\r\n").into_bytes(), vec![b' '; sent]].concat();
    socket.write(&begun).await.unwrap();
    socket
}

/// What a call is answered that says nothing, once it was let in.
async fn call(world: &World, path: &str) -> (u16, String) {
    let mut socket = Socket::connect(world.address).await.unwrap();
    let whole = format!("{}\r\n{{}}", head(world, path, 2));
    socket.write(whole.as_bytes()).await.unwrap();
    let answer = socket.read_to_end(SOON).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer[9..12].parse().unwrap(), answer)
}

/// Calls until it is answered so.
async fn until(world: &World, path: &str, status: u16) -> String {
    harness::wait::until("it is answered so", SOON, async || {
        let (answered, answer) = call(world, path).await;
        (answered == status).then_some(answer)
    })
    .await
    .unwrap()
}

fn is_limited(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
}

async fn principals_are_served(world: &World) {
    let alice = world.client("alice").timeout(SOON);
    assert!(alice.discover().await.is_ok());
    // As large as they come: it needs memory, too.
    let large = json!({"x": "x".repeat(60_000)});
    let started = alice.call("task", large).await.unwrap();
    assert_eq!(started["resultType"], "task", "{started}");
}

/// Settings with as much for all as two services could take that nobody held back.
fn tight(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = config();
    config.limits.body_bytes_max = 64 * 1024;
    config.limits.memory_bytes_max = 512 * 1024;
    config.limits.memory_bytes_of_principal_max = 128 * 1024;
    config.limits.memory_bytes_of_callbacks_max = 128 * 1024;
    change(&mut config);
    config
}

/// As workers may be set to (`worker.key_bytes_max`); one that is longer is none of ours.
#[tokio::test]
async fn the_key_of_an_address_may_be_as_long_as_a_workers() {
    let world = World::new().await;
    for (length, status) in [(1_023, 400), (1_024, 400), (1_025, 404)] {
        let address = address_of(&"k".repeat(length), i64::MAX);
        assert_eq!(call(&world, &address).await.0, status, "{length} bytes");
    }
}

#[tokio::test]
async fn calls_for_one_task_at_once() {
    let world = World::with(tight(|config| config.limits.callbacks_of_task_max = 2)).await;
    let (one, other) = (address(i64::MAX), address(i64::MAX));
    let first = half(&world, &one, (1, 100)).await;
    let second = half(&world, &one, (1, 100)).await;
    is_limited(&until(&world, &one, 429).await);
    assert_eq!(
        call(&world, &other).await.0,
        400,
        "another task's is its own"
    );
    principals_are_served(&world).await;
    assert!(world.metric("mcp_tasks_gateway_callbacks_total{result=\"limited\"}") >= 1.0);
    // Who goes away gives the place back.
    drop(first);
    until(&world, &one, 400).await;
    drop(second);
}

#[tokio::test]
async fn calls_for_one_task_in_a_while() {
    let world = World::with(tight(|config| {
        config.limits.callbacks_of_task_burst = 3;
        config.limits.callbacks_of_task_per_second = 1;
    }))
    .await;
    let (one, other) = (address(i64::MAX), address(i64::MAX));
    for n in 0..3 {
        assert_eq!(call(&world, &one).await.0, 400, "the {n}th");
    }
    is_limited(&until(&world, &one, 429).await);
    assert_eq!(
        call(&world, &other).await.0,
        400,
        "another task's are its own"
    );
    until(&world, &one, 400).await;
}

/// Of many tasks, each within what it may.
#[tokio::test]
async fn calls_of_all_leave_places_to_principals() {
    let world = World::with(tight(|config| {
        config.limits.requests_max = 8;
        config.limits.callbacks_max = 4;
    }))
    .await;
    let mut halves = Vec::new();
    for _ in 0..12 {
        halves.push(half(&world, &address(i64::MAX), (1, 100)).await);
    }
    is_limited(&until(&world, &address(i64::MAX), 429).await);
    principals_are_served(&world).await;
    drop(halves);
    until(&world, &address(i64::MAX), 400).await;
}

#[tokio::test]
async fn calls_of_all_leave_memory_to_principals() {
    let world = World::with(tight(|_| {})).await;
    let mut halves = Vec::new();
    for _ in 0..16 {
        halves.push(half(&world, &address(i64::MAX), (60_000, 60_001)).await);
    }
    let refused = async || {
        let series = "mcp_tasks_gateway_callbacks_total{result=\"limited\"}";
        world.metric(series)
    };
    harness::wait::for_state("two are kept", SOON, refused, |n| *n == 14.0)
        .await
        .unwrap();
    principals_are_served(&world).await;
    drop(halves);
    let taken = async || world.metric("mcp_tasks_gateway_message_bytes");
    harness::wait::for_state("it is given back", SOON, taken, |n| *n == 0.0)
        .await
        .unwrap();
}

/// Not a byte of a body is waited for.
#[tokio::test]
async fn an_address_that_was_over_long_ago_opens_nothing() {
    let world = World::new().await;
    let now = "SELECT (extract(epoch FROM now()) * 1000)::bigint";
    let now_ms = world.count(now).await;
    let day_ms = 24 * 60 * 60 * 1000;
    let mut socket = Socket::connect(world.address).await.unwrap();
    let head = head(&world, &address(now_ms - 2 * day_ms), 1_000);
    // Who asks first has nothing read away.
    let asks = format!("{head}Expect: 100-continue\r\n\r\n");
    socket.write(asks.as_bytes()).await.unwrap();
    let answer = socket.read_to_end(SOON).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 410 "), "{answer}");
    // One that was over a moment ago is looked up: a service may repeat what was kept.
    let (status, _) = call(&world, &address(now_ms - 60_000)).await;
    assert_eq!(status, 400, "its body is read");
}
