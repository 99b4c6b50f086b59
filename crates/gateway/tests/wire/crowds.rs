//! Many connections, and many refused tokens: of one address, of all, and through a proxy. The tests
//! come from several loopback addresses.

use std::net::{Ipv4Addr, SocketAddr};

use gateway::Config;
use gateway::config::AddressHeader;
use harness::client::Client;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{SOON, World, config};

const GOOD: &str = "mtk_good";

async fn connect(world: &World, from: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, from), 0));
    socket.bind(from).unwrap();
    socket.connect(world.address).await.unwrap()
}

/// All that comes until the end.
async fn read(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes));
    let _ = read.await.expect("it is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn open(world: &World, count: u32) {
    let open = async || world.metric("mcp_tasks_gateway_connections");
    harness::wait::for_state("so many are open", SOON, open, |n| *n == f64::from(count))
        .await
        .unwrap();
}

fn is_sent_away(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("\"retryAfterSeconds\":1"), "{answer}");
}

#[tokio::test]
async fn connections_of_one_address() {
    let mut config = config();
    config.limits.connections_of_address_max = 3;
    let world = World::with(config).await;
    let mut kept = Vec::new();
    for count in 1..=3 {
        kept.push(connect(&world, 2).await);
        open(&world, count).await;
    }
    is_sent_away(&read(connect(&world, 2).await).await);
    let refused = "mcp_tasks_gateway_connections_refused_total{of=\"address\"}";
    assert_eq!(world.metric(refused), 1.0);
    // Another one has its own, and the first gets a place back.
    kept.push(connect(&world, 3).await);
    open(&world, 4).await;
    drop(kept.remove(0));
    open(&world, 3).await;
    kept.push(connect(&world, 2).await);
    open(&world, 4).await;
}

#[tokio::test]
async fn connections_of_all() {
    let mut config = config();
    config.limits.connections_max = 3;
    let world = World::with(config).await;
    let mut kept = Vec::new();
    for from in 2..=4 {
        kept.push(connect(&world, from).await);
        open(&world, u32::from(from) - 1).await;
    }
    // It has asked already: the answer comes all the same.
    let mut fourth = connect(&world, 5).await;
    let _ = fourth.write_all(&vec![b'x'; 4096]).await;
    is_sent_away(&read(fourth).await);
    assert_eq!(
        world.metric("mcp_tasks_gateway_connections_refused_total{of=\"all\"}"),
        1.0
    );
    drop(kept.pop());
    open(&world, 2).await;
    assert!(world.client("alice").discover().await.is_ok());
}

/// Three refused tokens at once, one a second.
async fn guarded(change: impl FnOnce(&mut Config)) -> (TempDir, World) {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    let hash: String = Sha256::digest(GOOD)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    std::fs::write(
        &file,
        format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"good\"\n"),
    )
    .unwrap();
    let auth = gateway::auth::Config {
        mode: Some(gateway::auth::Mode::Tokens),
        api_keys_file: Some(file),
        ..gateway::auth::Config::default()
    };
    let mut config = config();
    config.limits.refused_tokens_of_address_per_second = 1;
    config.limits.refused_tokens_of_address_burst = 3;
    change(&mut config);
    let world = World::guarded(config, auth).await;
    (files, world)
}

/// The status of a request from that address with this token, if it is one, and these headers.
async fn status(world: &World, from: u8, token: &str, headers: &str) -> u16 {
    let mut stream = connect(world, from).await;
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\n{authorization}{headers}\
         Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}",
        world.address
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read(stream).await;
    answer[9..12].parse().unwrap()
}

/// Until it is answered 429; the header is another one each time.
async fn exhaust(world: &World, from: u8, header: impl Fn(u32) -> String) -> bool {
    for n in 0..200 {
        match status(world, from, "mtk_bad", &header(n)).await {
            401 => {}
            429 => return true,
            other => panic!("{other}"),
        }
    }
    false
}

#[tokio::test]
async fn refused_tokens_of_one_address() {
    let (_files, world) = guarded(|_| {}).await;
    for n in 0..3 {
        assert_eq!(status(&world, 2, "mtk_bad", "").await, 401, "the {n}th");
    }
    assert!(exhaust(&world, 2, |_| String::new()).await);
    // Neither one that is known to be good, nor another address, nor who shows none: who begins to log in does so.
    assert_eq!(status(&world, 2, GOOD, "").await, 400);
    assert_eq!(status(&world, 2, "", "").await, 401);
    assert_eq!(status(&world, 3, "mtk_bad", "").await, 401);
    assert!(
        Client::new(&world.url)
            .bearer(GOOD)
            .discover()
            .await
            .is_ok()
    );
    // Nobody is believed who says to be somebody else.
    for name in [
        "X-Forwarded-For",
        "Forwarded",
        "X-Real-IP",
        "CF-Connecting-IP",
    ] {
        assert!(
            exhaust(&world, 4, |n| format!("{name}: 9.9.9.{}\r\n", n % 250)).await,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_trusted_proxy_says_who_it_is() {
    let (_files, world) = guarded(|config| {
        config.trusted_proxies = vec!["127.0.0.8/31".to_owned()];
        config.limits.connections_of_address_max = 1;
    })
    .await;
    let forwarded =
        |client: &str, n: u32| format!("X-Forwarded-For: 6.6.6.{}, {client}\r\n", n % 250);
    // What the client wrote before it is never read.
    assert!(exhaust(&world, 8, |n| forwarded("9.9.9.1", n)).await);
    assert_eq!(
        status(&world, 8, "mtk_bad", &forwarded("9.9.9.2", 0)).await,
        401
    );
    // Neither is the other header.
    assert!(exhaust(&world, 8, |n| format!("Forwarded: for=9.9.9.{n}\r\n")).await);
    // Two proxies, one behind the other.
    let header = "X-Forwarded-For: 9.9.9.1, 127.0.0.9\r\n";
    assert!(exhaust(&world, 8, |_| header.to_owned()).await);
    // A proxy's connections are everybody's.
    let kept = [connect(&world, 8).await, connect(&world, 8).await];
    open(&world, 2).await;
    drop(kept);
}

#[tokio::test]
async fn the_standard_header_is_read_where_it_is_named() {
    let (_files, world) = guarded(|config| {
        config.trusted_proxies = vec!["127.0.0.8".to_owned()];
        config.client_address_header = AddressHeader::Forwarded;
    })
    .await;
    let forwarded = |n: u32| format!("Forwarded: for=6.6.6.{}, for=\"9.9.9.1:{n}\"\r\n", n % 250);
    assert!(exhaust(&world, 8, forwarded).await);
    assert!(exhaust(&world, 8, |n| format!("X-Forwarded-For: 9.9.9.{n}\r\n")).await);
    let other = "Forwarded: for=\"[2001:db8::1]\"\r\n";
    assert_eq!(status(&world, 8, "mtk_bad", other).await, 401);
}

/// Neither version, not even of a trusted proxy: nobody's address is taken from it.
#[tokio::test]
async fn the_proxy_protocol_is_not_spoken() {
    let mut config = config();
    config.trusted_proxies = vec!["127.0.0.8".to_owned()];
    let world = World::with(config).await;
    let first = b"PROXY TCP4 9.9.9.9 10.0.0.1 4711 443\r\n".to_vec();
    // LOCAL and PROXY over TCP4, with 12 bytes of addresses.
    let second = |command: u8| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([
            0x20 | command,
            0x11,
            0,
            12,
            9,
            9,
            9,
            9,
            10,
            0,
            0,
            1,
            18,
            103,
            1,
            187,
        ]);
        header
    };
    for header in [first, second(0), second(1)] {
        for from in [2, 8] {
            let mut stream = connect(&world, from).await;
            let request = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", world.address);
            let bytes = [&header[..], request.as_bytes()].concat();
            stream.write_all(&bytes).await.unwrap();
            let answer = read(stream).await;
            assert!(
                answer.starts_with("HTTP/1.1 400 "),
                "{header:?}: {answer:?}"
            );
        }
    }
}
