//! Floods of frames that HTTP/2 makes cheap for who sends them: streams that are opened and reset at
//! once (CVE-2023-44487), and headers that never end (CVE-2024-27316). Raw frames, since no library
//! sends such.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{SOON, World};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// More than anybody would let through.
const ENOUGH_BYTES: usize = 64 * 1024 * 1024;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `POST http://a/mcp` in HPACK, without Huffman coding.
fn head() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (index, text) in [(0x04, "/mcp"), (0x01, "127.0.0.1")] {
        head.push(index);
        head.push(u8::try_from(text.len()).unwrap());
        head.extend(text.bytes());
    }
    head
}

/// Sends a flood until the gateway has enough of it, and reads what it says meanwhile. The bytes it
/// took.
async fn flood(world: &World, mut next: impl FnMut(u32) -> Vec<u8>) -> usize {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let reading = tokio_util::task::TaskTracker::new().spawn(async move {
        // Who does not read is stopped by TCP alone.
        let mut bytes = vec![0; 64 * 1024];
        while read.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
    });
    let mut sent = 0;
    let sending = async {
        write.write_all(PREFACE).await?;
        write.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        for n in 0.. {
            let bytes = next(n);
            write.write_all(&bytes).await?;
            sent += bytes.len();
            assert!(sent < ENOUGH_BYTES, "it takes everything");
        }
        Ok::<_, std::io::Error>(())
    };
    let ended = tokio::time::timeout(3 * SOON, sending).await;
    assert!(ended.expect("the gateway ends it").is_err());
    reading.abort();
    sent
}

async fn others_are_served(world: &World) {
    let bob = world.client("bob").timeout(SOON);
    for _ in 0..5 {
        let answer = bob.request("server/discover", json!({})).send().await;
        assert_eq!(answer.unwrap().status, 200);
    }
    let free = async || {
        let open = world.metric("mcp_tasks_gateway_connections");
        (open <= 1.0).then_some(())
    };
    harness::wait::until("its connection is gone", SOON, free)
        .await
        .unwrap();
    let idle = async || {
        let busy = world.metric("mcp_tasks_gateway_requests_in_flight");
        (busy == 0.0).then_some(())
    };
    harness::wait::until("its requests are gone", SOON, idle)
        .await
        .unwrap();
    assert!(world.metric("mcp_tasks_gateway_panics_total") == 0.0);
}

#[tokio::test]
async fn streams_that_are_reset_at_once_end_their_connection() {
    let world = World::new().await;
    let sent = flood(&world, |n| {
        let stream = 2 * n + 1;
        let mut frames = frame(HEADERS, END_HEADERS, stream, &head());
        frames.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        frames
    })
    .await;
    println!("rapid reset: ended after {sent} bytes");
    others_are_served(&world).await;
}

#[tokio::test]
async fn headers_without_an_end_end_their_connection() {
    let world = World::new().await;
    let sent = flood(&world, |n| match n {
        0 => frame(HEADERS, 0, 1, &head()),
        // A new header in each, none of them long.
        n => {
            let mut header = vec![0x00, 8];
            header.extend(format!("x-{n:06}").bytes());
            header.extend([1, b'v']);
            frame(CONTINUATION, 0, 1, &header)
        }
    })
    .await;
    println!("continuation: ended after {sent} bytes");
    others_are_served(&world).await;
}

#[tokio::test]
async fn empty_continuations_end_their_connection_too() {
    let world = World::new().await;
    let sent = flood(&world, |n| match n {
        0 => frame(HEADERS, 0, 1, &head()),
        _ => frame(CONTINUATION, 0, 1, &[]),
    })
    .await;
    println!("empty continuation: ended after {sent} bytes");
    others_are_served(&world).await;
}

#[tokio::test]
async fn who_opens_streams_and_says_nothing_holds_up_nobody() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    for n in 0..200_u32 {
        let bytes = frame(HEADERS, END_HEADERS, 2 * n + 1, &head());
        if stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let bob = world.client("bob").timeout(SOON);
    let answer = bob.request("server/discover", json!({})).send().await;
    assert_eq!(answer.unwrap().status, 200);
    drop((stream, bob));
    others_are_served(&world).await;
}
