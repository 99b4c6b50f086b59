//! Every mode of the chaos proxy, in front of a real Redis.

use std::time::Duration;

use mcp_tasks_harness as harness;

use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(200);

/// What `PING` brings on this connection: the reply, nothing for a while, or an end.
#[derive(Debug, PartialEq)]
enum Seen {
    Pong,
    Nothing,
    End,
}

async fn ping(stream: &mut TcpStream) -> Seen {
    if stream.write_all(b"PING\r\n").await.is_err() {
        return Seen::End;
    }
    read(stream).await
}

async fn read(stream: &mut TcpStream) -> Seen {
    let mut reply = [0; 64];
    match tokio::time::timeout(SHORT, stream.read(&mut reply)).await {
        Err(_) => Seen::Nothing,
        Ok(Ok(0) | Err(_)) => Seen::End,
        Ok(Ok(count)) => {
            assert!(reply[..count].starts_with(b"+PONG"));
            Seen::Pong
        }
    }
}

#[tokio::test]
async fn every_mode_does_what_it_says() {
    let redis = Redis::temporary().await.unwrap();
    let proxy = Proxy::to_port(redis.port()).await.unwrap();
    let connect = async || TcpStream::connect(proxy.address()).await.unwrap();

    let mut old = connect().await;
    assert_eq!(ping(&mut old).await, Seen::Pong);

    proxy.set(Mode::Stall);
    assert_eq!(ping(&mut old).await, Seen::Nothing);
    proxy.set(Mode::Pass);
    assert_eq!(read(&mut old).await, Seen::Pong, "what was held arrives");

    proxy.set(Mode::Delay(SHORT / 2));
    let start = std::time::Instant::now();
    let mut delayed = connect().await;
    delayed.write_all(b"PING\r\n").await.unwrap();
    tokio::time::sleep(SHORT).await;
    assert_eq!(read(&mut delayed).await, Seen::Pong);
    assert!(start.elapsed() >= SHORT, "late both ways");
    proxy.set(Mode::Pass);

    proxy.set(Mode::Cut);
    assert_eq!(read(&mut old).await, Seen::End);
    let mut refused = connect().await;
    assert_eq!(ping(&mut refused).await, Seen::End);
    proxy.set(Mode::Pass);

    let mut once = connect().await;
    assert_eq!(ping(&mut once).await, Seen::Pong);
    proxy.cut_once();
    assert_eq!(ping(&mut once).await, Seen::End);

    let mut vanished = connect().await;
    assert_eq!(ping(&mut vanished).await, Seen::Pong);
    proxy.set(Mode::HalfOpen);
    proxy.set(Mode::Pass);
    assert_eq!(
        ping(&mut vanished).await,
        Seen::Nothing,
        "stays dead after the mode has passed"
    );
    assert_eq!(ping(&mut connect().await).await, Seen::Pong);
    drop(proxy);
    assert_eq!(read(&mut vanished).await, Seen::End);
}

#[tokio::test]
async fn a_swallowed_reply_has_taken_effect() {
    let redis = Redis::temporary().await.unwrap();
    let proxy = Proxy::to_port(redis.port()).await.unwrap();
    let mut swallowed = proxy.swallowed();
    proxy.swallow_reply_to("INCR");
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(
        ping(&mut stream).await,
        Seen::Pong,
        "another request is left alone"
    );
    stream.write_all(b"INCR n\r\n").await.unwrap();
    assert_eq!(read(&mut stream).await, Seen::End);
    assert!(swallowed.has_changed().unwrap());
    assert_eq!(*swallowed.borrow_and_update(), 1);
    let value = redis.command(&["INCR", "n"]).await.unwrap();
    assert_eq!(value, redis::Value::Int(2));
}

#[tokio::test]
async fn the_reply_lost_is_the_one_after_others_of_its_connection() {
    let redis = Redis::temporary().await.unwrap();
    let proxy = Proxy::to_port(redis.port()).await.unwrap();
    proxy.swallow_reply_after(["first", "PING"]);
    let connect = async || TcpStream::connect(proxy.address()).await.unwrap();
    let (mut one, mut other) = (connect().await, connect().await);
    one.write_all(b"SELECT 0 first\r\n").await.unwrap();
    let mut refused = [0; 256];
    let count = one.read(&mut refused).await.unwrap();
    assert!(refused[..count].starts_with(b"-ERR"), "passed on");
    assert_eq!(ping(&mut other).await, Seen::Pong, "not after the first");
    assert_eq!(ping(&mut one).await, Seen::End);
    assert_eq!(ping(&mut connect().await).await, Seen::Pong, "armed once");
}

#[tokio::test]
async fn a_silenced_client_is_heard_no_more() {
    let redis = Redis::temporary().await.unwrap();
    let proxy = Proxy::to_port(redis.port()).await.unwrap();
    let connect = async || TcpStream::connect(proxy.address()).await.unwrap();
    let (mut silent, mut other) = (connect().await, connect().await);
    assert_eq!(ping(&mut silent).await, Seen::Pong);
    proxy.silence_after(["PING"]);
    assert!(proxy.is_armed());
    assert_eq!(ping(&mut silent).await, Seen::Nothing);
    assert!(!proxy.is_armed());
    assert_eq!(
        ping(&mut silent).await,
        Seen::Nothing,
        "nor anything after it"
    );
    assert_eq!(ping(&mut other).await, Seen::Pong);
    proxy.cut_once();
    assert_eq!(read(&mut silent).await, Seen::End);
}

#[tokio::test]
async fn urls_are_led_through_it() {
    let proxy = Proxy::to_port(1).await.unwrap();
    let port = proxy.address().port();
    let url = proxy.through("postgres://postgres@127.0.0.1:5432/db");
    assert_eq!(url, format!("postgres://postgres@127.0.0.1:{port}/db"));
}
