//! Floods of frames that HTTP/2 makes cheap for who sends them: streams that are opened and reset at
//! once (CVE-2023-44487), and headers that never end (CVE-2024-27316). Raw frames, since no library
//! sends such.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::frames::{
    self, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, kinds,
};
use crate::support::{SOON, World, config};

/// More than anybody would let through.
const ENOUGH_BYTES: usize = 64 * 1024 * 1024;

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
        let mut frames = frame(HEADERS, END_HEADERS, stream, &frames::head(&[]));
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
        0 => frame(HEADERS, 0, 1, &frames::head(&[])),
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
        0 => frame(HEADERS, 0, 1, &frames::head(&[])),
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
        let bytes = frame(HEADERS, END_HEADERS, 2 * n + 1, &frames::head(&[]));
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

/// Frames that are answered, sent by somebody who reads no answer: they end with its window of TCP
/// and of time, and the answers that wait for it are bounded.
async fn answers_nobody_reads(what: &str, next: impl Fn(u32) -> Vec<u8>) {
    let mut config = config();
    config.limits.write_timeout = std::time::Duration::from_millis(500);
    let world = World::with(config).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let sending = async {
        stream.write_all(PREFACE).await?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        let mut sent = 0;
        for n in 0.. {
            let bytes: Vec<u8> = (0..1_000).flat_map(|m| next(1_000 * n + m)).collect();
            stream.write_all(&bytes).await?;
            sent += bytes.len();
            assert!(sent < 8 * ENOUGH_BYTES, "it takes everything");
        }
        Ok::<_, std::io::Error>(())
    };
    let ended = tokio::time::timeout(3 * SOON, sending).await;
    assert!(ended.expect("the gateway ends it").is_err(), "{what}");
    drop(stream);
    others_are_served(&world).await;
}

#[tokio::test]
async fn pings_whose_answers_nobody_reads() {
    answers_nobody_reads("ping", |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes())).await;
}

#[tokio::test]
async fn settings_whose_answers_nobody_reads() {
    answers_nobody_reads("settings", |n| {
        // SETTINGS_INITIAL_WINDOW_SIZE, changed each time.
        let mut change = vec![0, 4];
        change.extend((n % 1000 + 1).to_be_bytes());
        frame(SETTINGS, 0, 0, &change)
    })
    .await;
}

/// Frames that carry nothing and are answered by nothing (CVE-2019-9518): they take the core time of
/// their connection and none of its memory, and everybody else is served.
#[tokio::test]
async fn frames_that_say_nothing_hold_up_nobody() {
    let world = World::new().await;
    let head = frames::head(&[
        ("authorization", "Bearer mallory"),
        ("content-type", "application/json"),
    ]);
    let window = 1_u32.to_be_bytes();
    for empty in [frame(DATA, 0, 1, &[]), frame(WINDOW_UPDATE, 0, 1, &window)] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let opened = frame(HEADERS, END_HEADERS, 1, &head);
        stream.write_all(&opened).await.unwrap();
        let many = empty.repeat(10_000);
        for _ in 0..20 {
            if stream.write_all(&many).await.is_err() {
                break;
            }
        }
        let bob = world.client("bob").timeout(SOON);
        let answer = bob.request("server/discover", json!({})).send().await;
        assert_eq!(answer.unwrap().status, 200);
        drop(stream);
        drop(bob);
        others_are_served(&world).await;
    }
}

/// A list of headers that is longer than it may be, in few frames: the request is refused and nothing
/// of it is kept.
#[tokio::test]
async fn long_lists_of_headers_are_refused() {
    let world = World::new().await;
    let value = "v".repeat(100);
    for (count, allowed) in [(100, true), (100_000, false)] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let mut sent = PREFACE.to_vec();
        sent.extend(frame(SETTINGS, 0, 0, &[]));
        let list: Vec<(&str, &str)> = (0..count).map(|_| ("x-long", value.as_str())).collect();
        let block = frames::head(&list);
        let mut parts = block.chunks(16_000).peekable();
        let mut kind = HEADERS;
        while let Some(part) = parts.next() {
            let ends = if parts.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            sent.extend(frame(kind, ends | u8::from(kind == HEADERS), 1, part));
            kind = CONTINUATION;
        }
        let _ = stream.write_all(&sent).await;
        let reading = async {
            let mut all = Vec::new();
            let mut some = vec![0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut some).await {
                all.extend_from_slice(&some[..n]);
                // An answer's head, or that the stream or the connection is over.
                if kinds(&all)
                    .iter()
                    .any(|kind| [HEADERS, RST_STREAM, 7].contains(kind))
                {
                    break;
                }
            }
            kinds(&all)
        };
        let came = tokio::time::timeout(SOON, reading).await.unwrap();
        let refused = [RST_STREAM, GOAWAY].iter().any(|kind| came.contains(kind));
        assert!(
            if allowed {
                came.contains(&HEADERS)
            } else {
                refused
            },
            "{count} headers: {came:?}"
        );
        drop(stream);
        others_are_served(&world).await;
    }
}

/// More streams at once than one connection may have: the connection ends or they are refused, and the
/// process has no more requests than a connection may bring.
#[tokio::test]
async fn streams_beyond_their_number_are_refused() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = frames::head(&[
        ("authorization", "Bearer mallory"),
        ("content-type", "application/json"),
    ]);
    let mut sent = PREFACE.to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..256 {
        sent.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &head));
    }
    stream.write_all(&sent).await.unwrap();
    let busy = async || world.metric("mcp_tasks_gateway_requests_in_flight");
    harness::wait::for_state("all of them are open", SOON, busy, |n| *n == 256.0)
        .await
        .unwrap();
    let more: Vec<u8> = (256..300)
        .flat_map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &head))
        .collect();
    let _ = stream.write_all(&more).await;
    let reading = async {
        let (mut all, mut some) = (Vec::new(), vec![0; 4096]);
        while let Ok(n @ 1..) = stream.read(&mut some).await {
            all.extend_from_slice(&some[..n]);
            if kinds(&all).contains(&RST_STREAM) || kinds(&all).contains(&7) {
                break;
            }
        }
        kinds(&all)
    };
    let came = tokio::time::timeout(SOON, reading).await.unwrap();
    assert!(came.contains(&RST_STREAM) || came.contains(&7), "{came:?}");
    assert!(world.metric("mcp_tasks_gateway_requests_in_flight") <= 256.0);
    drop(stream);
    others_are_served(&world).await;
}
