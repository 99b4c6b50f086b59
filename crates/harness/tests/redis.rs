//! The private Redis, for real.

use mcp_tasks_harness as harness;

use harness::redis::{Options, Redis};
use harness::temp::Temp;
use redis::Value;

async fn get(server: &Redis) -> Value {
    server
        .command(&["GET", "key"])
        .await
        .expect("redis answers")
}

#[tokio::test]
async fn a_restart_is_empty_unless_it_persists() {
    let mut server = Redis::temporary().await.unwrap();
    server.command(&["SET", "key", "1"]).await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(get(&server).await, Value::Nil);

    let dir = Temp::new().unwrap();
    let mut server = Redis::start(dir.path(), Options::durable()).await.unwrap();
    server.command(&["SET", "key", "1"]).await.unwrap();
    server.restart().await.unwrap();
    assert_ne!(get(&server).await, Value::Nil);
    server.flush().await.unwrap();
    assert_eq!(get(&server).await, Value::Nil);
}

#[tokio::test]
async fn killed_and_frozen() {
    let mut server = Redis::temporary().await.unwrap();
    let url = server.url();
    server.kill9();
    assert!(server.command(&["PING"]).await.is_err());
    server.start_again().await.unwrap();
    assert_eq!(server.url(), url);
    server.freeze();
    let frozen = server.command(&["PING"]);
    let frozen = tokio::time::timeout(std::time::Duration::from_millis(300), frozen).await;
    assert!(frozen.is_err());
    server.thaw();
    server.command(&["PING"]).await.unwrap();
}

#[tokio::test]
async fn a_leftover_is_ended() {
    let dir = Temp::new().unwrap();
    let first = Redis::start(dir.path(), Options::durable()).await.unwrap();
    let old = first.pid().unwrap();
    std::mem::forget(first);
    let second = Redis::start(dir.path(), Options::durable()).await.unwrap();
    assert_ne!(second.pid().unwrap(), old);
}
