//! Which version of HTTP is spoken is known from the first bytes, however they come; what begins like one and goes on
//! like the other is refused.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::frames::{PREFACE, SETTINGS, frame, kinds};
use crate::support::{SOON, World, config};

/// Longer than it takes a gateway to look at what has come.
const PAUSE: Duration = Duration::from_millis(60);

/// What comes back when `bytes` are sent, the first `cut` of them by themselves.
async fn answer(world: &World, bytes: &[u8], cut: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&bytes[..cut]).await.unwrap();
    tokio::time::sleep(PAUSE).await;
    stream.write_all(&bytes[cut..]).await.unwrap();
    let mut came = vec![0; 64];
    let read = tokio::time::timeout(SOON, stream.read(&mut came));
    let length = read.await.expect("it is answered").unwrap();
    came.truncate(length);
    came
}

#[tokio::test]
async fn the_version_is_known_however_the_first_bytes_come() {
    let world = World::with(config()).await;
    let two = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    for method in ["POST", "PUT", "PRO", "PR", "P"] {
        let one = format!("{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n");
        for cut in 0..6 {
            let came = answer(&world, one.as_bytes(), cut).await;
            assert!(came.starts_with(b"HTTP/1.1 4"), "{method}, {cut}: {came:?}");
        }
    }
    for cut in [0, 1, 2, 3, 4, 5, 23, 24] {
        let came = kinds(&answer(&world, &two, cut).await);
        assert_eq!(came.first(), Some(&SETTINGS), "{cut}: {came:?}");
    }
    // Nobody has a method of that name.
    let neither = b"PRI /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    for cut in 0..6 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(&neither[..cut]).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        stream.write_all(&neither[cut..]).await.unwrap();
        let mut came = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut came)).await;
        assert!(ended.is_ok(), "{cut}: it stays open");
        assert!(!came.starts_with(b"HTTP/1.1 2"), "{cut}: {came:?}");
    }
}

#[tokio::test]
async fn who_says_nothing_is_sent_away() {
    let mut config = config();
    config.limits.header_read_timeout = Duration::from_millis(200);
    let world = World::with(config).await;
    for begin in ["", "P", "PR", "PRI", "PRI ", "POST /mcp HTTP/1.1\r\n"] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        let mut came = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut came)).await;
        assert!(ended.is_ok(), "{begin:?}: it stays open");
    }
}

/// What a stream's client may send before a byte of it is read: no more than HTTP/2's own default (RFC 9113 §6.9.2).
#[tokio::test]
async fn an_unread_stream_takes_little() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let world = World::with(config()).await;
    let two = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let came = answer(&world, &two, 24).await;
    assert_eq!(came[3], SETTINGS, "{came:?}");
    let length = usize::from(came[2]);
    let settings = came[9..9 + length].chunks(6).map(|setting| {
        let id = u16::from_be_bytes([setting[0], setting[1]]);
        (id, u32::from_be_bytes(setting[2..].try_into().unwrap()))
    });
    let settings: std::collections::HashMap<_, _> = settings.collect();
    let window = settings.get(&INITIAL_WINDOW_SIZE).copied();
    assert!(window.is_none_or(|bytes| bytes <= 65_535), "{window:?}");
}
