//! The process is asked to end: nobody is cut off who could be told, and nobody keeps it.

use std::time::Instant;

use harness::client::{Client, Request, Socket};
use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use serde_json::json;

use crate::support::{SECOND, SOON, World, config, migrate};

fn call<'a>(client: &'a Client, tool: &str) -> Request<'a> {
    client.request("tools/call", json!({"name": tool, "arguments": {}}))
}

/// A call that can't become a task is not simply cut off: its caller is told to come again, and
/// its work is stopped.
#[tokio::test]
async fn what_does_not_end_in_time_is_told_so_and_stopped() {
    let mut config = config();
    config.drain_deadline = 2 * SECOND;
    let mut world = World::with(config).await;
    let undeclared = world.client("alice").undeclared();
    let mut streamed = call(&undeclared, "inline").stream().await.unwrap();
    let plain = call(&undeclared, "inline").header("accept", "application/json");
    let stopping = async {
        world.until("SELECT count(*) FROM tasks", 2).await;
        world.stop().await;
    };
    let (plain, ()) = tokio::join!(plain.send(), stopping);
    let plain = plain.unwrap();
    assert_eq!((plain.status, plain.error_code()), (503, Some(-32603)));
    assert_eq!(plain.header("retry-after"), "1");
    assert_eq!(plain.error()["data"]["reason"], "unavailable");
    let last = streamed.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["error"], *plain.error());
    assert_eq!(streamed.next(SOON).await.unwrap(), None);
    world
        .until(
            "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'",
            2,
        )
        .await;
}

/// Postgres is away, and the process is asked to end: whoever waits for Postgres is told, streams
/// get their final message, and nobody is cut off.
#[tokio::test]
async fn the_end_does_not_wait_for_postgres() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    // postgresql://user@127.0.0.1:PORT/name
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let through = proxy.through(database.url());
    let mut config = config();
    config.drain_deadline = SECOND;
    // So often that the stream waits for Postgres when the end comes.
    config.listen_recheck = SECOND / 10;
    let mut world = World::over(config, database, redis, &through).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let mut listen = alice.listen(json!({"taskIds": [id]})).await.unwrap();
    for _ in 0..2 {
        listen.next(SOON).await.unwrap().unwrap();
    }
    proxy.set(Mode::Stall);
    let (read, ()) = tokio::join!(
        alice.request("tasks/get", json!({"taskId": id})).send(),
        async {
            tokio::time::sleep(SECOND / 5).await;
            let begun = Instant::now();
            world.stop().await;
            // A request alone would wait for three seconds.
            assert!(begun.elapsed() < 5 * SECOND / 2, "{:?}", begun.elapsed());
        }
    );
    assert_eq!(read.unwrap().status, 503);
    let last = listen.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["result"]["resultType"], "complete");
}

/// Whatever a client does, the process ends by its deadline.
#[tokio::test]
async fn a_client_that_never_ends_its_request_is_cut_off() {
    let mut config = config();
    config.drain_deadline = SECOND;
    let mut world = World::with(config).await;
    let mut socket = Socket::connect(world.address).await.unwrap();
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 1000\r\n\r\n{";
    socket.write(head.as_bytes()).await.unwrap();
    tokio::time::sleep(SECOND / 5).await;
    let begun = Instant::now();
    world.stop().await;
    assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(socket.read_to_end(SOON).await, b"", "cut off, not answered");
}
