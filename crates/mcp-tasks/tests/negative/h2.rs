//! Frames of HTTP/2 as bytes (RFC 9113), and what those of an answer say.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stack::SOON;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header in HPACK, neither indexed nor by Huffman's code.
pub fn header(name: &str, value: &[u8]) -> Vec<u8> {
    let mut header = vec![0x00];
    for text in [name.as_bytes(), value] {
        header.extend(length(text.len()));
        header.extend(text);
    }
    header
}

/// A text's length, in a prefix of seven bits (RFC 7541 §5.1).
fn length(length: usize) -> Vec<u8> {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        return vec![u8::try_from(length).unwrap()];
    };
    let mut bytes = vec![0x7f];
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

pub fn pseudo() -> Vec<u8> {
    [
        header(":method", b"POST"),
        header(":scheme", b"http"),
        header(":path", b"/mcp"),
        header(":authority", b"127.0.0.1:3000"),
    ]
    .concat()
}

/// What frames say that ends a stream or the connection, the first of it; empty if nothing does yet.
pub fn tell(mut bytes: &[u8]) -> String {
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let code = |at: usize| {
            let code = payload.get(at..at + 4).unwrap_or(&[0xff; 4]);
            u32::from_be_bytes(code.try_into().unwrap())
        };
        match head[3] {
            RST_STREAM => return format!("RESET {}", code(0)),
            GOAWAY if code(4) != 0 => return format!("GOAWAY {}", code(4)),
            HEADERS => return format!("STATUS {}", status(payload)),
            _ => {}
        }
        bytes = rest;
    }
    String::new()
}

/// Of the static table, or three digits by Huffman's code.
fn status(head: &[u8]) -> u16 {
    // Before it the table's size may be set.
    let head: Vec<u8> = head
        .iter()
        .copied()
        .skip_while(|byte| byte & 0xe0 == 0x20)
        .collect();
    match head.as_slice() {
        [0x88, ..] => 200,
        [0x8c, ..] => 400,
        [0x8d, ..] => 404,
        [0x8e, ..] => 500,
        [0x48 | 0x08, size, text @ ..] if size & 0x80 != 0 => digits(text),
        _ => 0,
    }
}

/// 0, 1 and 2 have five bits, the others six (RFC 7541, appendix B).
fn digits(text: &[u8]) -> u16 {
    let bits = text.iter().take(3);
    let bits = bits.fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let (mut number, mut at) = (0, 24);
    for _ in 0..3 {
        let next = |count: u32| bits >> (at - count) & ((1 << count) - 1);
        let (digit, count) = match next(5) {
            few @ 0..=2 => (few, 5),
            _ => (next(6).saturating_sub(0b01_1001) + 3, 6),
        };
        number = number * 10 + digit;
        at -= count;
    }
    u16::try_from(number).unwrap()
}

/// Sends frames, and reads until they are answered or the connection ends.
pub async fn exchange(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut got = Vec::new();
    let talking = async {
        // It may close before it has read everything.
        let _ = stream.write_all(sent).await;
        while tell(&got).is_empty() && stream.read_buf(&mut got).await.is_ok_and(|n| n > 0) {}
    };
    let _ = tokio::time::timeout(SOON, talking).await;
    got
}
