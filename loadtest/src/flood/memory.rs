//! What many connections, half heads, half handshakes, half bodies, unread answers and open streams take of a gateway's
//! memory, and how long others wait meanwhile.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::{Error, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::latency::{Seen, quiet};
use super::target::Target;

/// How long a flood is held, by itself.
pub const HELD: Duration = Duration::from_secs(5);
/// What a peer sends that never reads takes no longer to write.
const WRITING: Duration = Duration::from_secs(10);

/// A flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Connections that say nothing.
    Idle,
    /// Requests whose head, almost as long as it may be, does not end.
    Heads,
    /// Handshakes of TLS whose first message, as long as is taken in, does not end.
    Hellos,
    /// Connections with TLS whose first record, as long as they are, does not end.
    Records,
    /// Requests whose body ends half way.
    Bodies,
    /// Requests one behind the other, none of whose answers is read.
    Unread,
    /// Streams of HTTP/2, each with a head and no body.
    Streams,
}

impl Kind {
    /// All of them, with how many connections each takes.
    pub const ALL: [(Kind, usize); 7] = [
        (Kind::Idle, 9_900),
        (Kind::Heads, 9_900),
        (Kind::Hellos, 9_900),
        (Kind::Records, 9_900),
        (Kind::Bodies, 2_000),
        (Kind::Unread, 500),
        (Kind::Streams, 200),
    ];

    /// Whether a gateway keeps all of its connections open. Bodies beyond a principal's share are refused and shown out,
    /// and so is who reads nothing.
    #[must_use]
    pub fn is_kept(self) -> bool {
        !matches!(self, Kind::Bodies | Kind::Unread)
    }
}

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Resident bytes before.
    pub before: u64,
    /// The most while it lasted.
    pub most: u64,
    /// The most connections at once, as the gateway counts them.
    pub connections: u64,
    /// Of the quiet one meanwhile; it speaks no TLS.
    pub seen: Option<Seen>,
}

/// Floods and holds it for so long.
///
/// # Errors
/// If the quiet one is not answered.
pub async fn flood(
    target: &Target,
    (kind, connections): (Kind, usize),
    held: Duration,
) -> Result<Taken> {
    let address = target.address()?;
    let before = target.resident();
    let connector = match kind {
        Kind::Records => Some(target.connector()?),
        _ => None,
    };
    let bytes = bytes(target, kind);
    let flooding = async {
        let mut open = Vec::new();
        for some in (0..connections).collect::<Vec<_>>().chunks(100) {
            let opening = some
                .iter()
                .map(|n| begin(address, *n, connector.as_ref(), &bytes));
            for begun in futures::future::join_all(opening).await {
                open.push(begun?);
            }
        }
        tokio::time::sleep(held).await;
        Ok::<_, Error>(open)
    };
    let (most, held_open) = (AtomicU64::new(before), AtomicU64::new(0));
    let watched = async {
        loop {
            most.fetch_max(target.resident(), Ordering::Relaxed);
            if let Ok(open) = target.metric("mcp_tasks_gateway_connections").await {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count"
                )]
                held_open.fetch_max(open as u64, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let all = async {
        let reading = async {
            match kind {
                Kind::Hellos | Kind::Records => Ok(None),
                _ => quiet(target, held * 2).await.map(Some),
            }
        };
        let (open, seen) = tokio::join!(flooding, reading);
        drop(open?);
        seen
    };
    let seen = tokio::select! {
        seen = all => seen?,
        () = watched => unreachable!("it watches for ever"),
    };
    Ok(Taken {
        before,
        most: most.load(Ordering::Relaxed),
        connections: held_open.load(Ordering::Relaxed),
        seen,
    })
}

/// One connection of the flood; it stays open. From several addresses, since one may not have so many.
async fn begin(
    to: SocketAddr,
    n: usize,
    connector: Option<&TlsConnector>,
    bytes: &[u8],
) -> Result<TcpStream> {
    let connecting = async {
        let socket = TcpSocket::new_v4()?;
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(1 + n % 5).unwrap_or(1));
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(to).await?;
        let Some(connector) = connector else {
            return Ok(stream);
        };
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stream = connector.connect(name, stream).await?;
        Ok(stream.into_inner().0)
    };
    let mut stream = connecting.await.map_err(Error::io("connect"))?;
    let writing = stream.write_all(bytes);
    // A peer that stops reading is part of it, and so is one that has enough of this.
    drop(tokio::time::timeout(WRITING, writing).await);
    Ok(stream)
}

fn bytes(target: &Target, kind: Kind) -> Vec<u8> {
    const BODY: usize = 4 * 1024 * 1024;
    match kind {
        Kind::Idle => Vec::new(),
        Kind::Heads => {
            let mut bytes = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ".to_vec();
            bytes.resize(31 * 1024, b'x');
            bytes
        }
        Kind::Hellos => hello(),
        // The head of a record (RFC 8446 §5.1) and all but the end of what it announces.
        Kind::Records => {
            let mut bytes = vec![23, 3, 3];
            bytes.extend((16_384 + 256_u16).to_be_bytes());
            bytes.resize(16_500, 0);
            bytes
        }
        Kind::Bodies => {
            let request = target.wire("mallory").get("x");
            let text = String::from_utf8_lossy(&request).into_owned();
            let head = text.split("\r\n\r\n").next().unwrap_or_default();
            let head = head.split("Content-Length").next().unwrap_or_default();
            let mut bytes = format!("{head}Content-Length: {BODY}\r\n\r\n").into_bytes();
            bytes.resize(bytes.len() + BODY / 2, b' ');
            bytes
        }
        Kind::Unread => target.wire("mallory").get("x").repeat(1_000),
        Kind::Streams => streams(),
    }
}

/// 20,000 bytes of a ClientHello of 65,000 (RFC 8446 §4), in records of 16,384: a little less than is taken in.
fn hello() -> Vec<u8> {
    const LENGTH: u32 = 65_000;
    let mut message = vec![1];
    message.extend(&LENGTH.to_be_bytes()[1..]);
    message.resize(20_000, 0);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap_or_default().to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    };
    message.chunks(16_384).flat_map(record).collect()
}

/// 250 requests of HTTP/2 whose bodies never come.
fn streams() -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    };
    // `POST http://127.0.0.1/mcp` in HPACK, without Huffman coding.
    let mut head = vec![0x83, 0x86];
    for (index, text) in [(0x04, "/mcp"), (0x01, "127.0.0.1")] {
        head.push(index);
        head.push(u8::try_from(text.len()).unwrap_or(0));
        head.extend(text.bytes());
    }
    for (name, value) in [
        ("content-type", "application/json"),
        ("authorization", "Bearer mallory"),
    ] {
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).unwrap_or(0));
            head.extend(text.bytes());
        }
    }
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(4, 0, 0, &[]));
    for n in 0..250 {
        all.extend(frame(1, 4, 2 * n + 1, &head));
        all.extend(frame(0, 0, 2 * n + 1, &[b' '; 200]));
    }
    all
}
