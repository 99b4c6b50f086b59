//! TLS at the door, and certificates that are replaced while it is open.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::support::{SOON, World, config};

/// Writes a new certificate for localhost, and its key.
fn certify(dir: &Path) -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(dir.join("cert.pem"), certificate.pem()).unwrap();
    CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()
}

/// The status and the version of an answer to who believes this certificate only.
async fn discover(
    world: &World,
    trusted: &CertificateDer<'static>,
) -> Option<(u16, http::Version)> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .build();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}}});
    let request = http::Request::post(format!("https://localhost:{}/mcp", world.address.port()))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "server/discover")
        .body(Full::from(body.to_string()))
        .unwrap();
    let answer = client.request(request).await.ok()?;
    let seen = (answer.status().as_u16(), answer.version());
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("supportedVersions"));
    Some(seen)
}

#[tokio::test]
async fn certificates_are_replaced_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let first = certify(dir.path());
    let mut config = config();
    config.tls.certificate_file = Some(dir.path().join("cert.pem"));
    config.tls.key_file = Some(dir.path().join("key.pem"));
    let mut world = World::with(config).await;
    let seen = discover(&world, &first).await;
    assert_eq!(seen, Some((200, http::Version::HTTP_11)));
    // Who speaks no TLS gets nothing, and holds up nobody.
    let plain = harness::client::Client::new(&world.url);
    assert!(plain.discover().await.is_err());
    let mut silent = tokio::net::TcpStream::connect(world.address).await.unwrap();
    // A key that does not fit changes nothing.
    std::fs::write(dir.path().join("key.pem"), "no key").unwrap();
    assert!(discover(&world, &first).await.is_some());
    let second = certify(dir.path());
    let replaced = async || discover(&world, &second).await.map(drop);
    harness::wait::until("the certificate is replaced", SOON, replaced)
        .await
        .unwrap();
    assert_eq!(discover(&world, &first).await, None, "the old one is gone");
    world.stop().await;
    // A connection that never agreed upon anything is closed with the rest.
    let read = tokio::time::timeout(SOON, silent.read(&mut [0; 1]))
        .await
        .unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn half_a_pair_is_refused() {
    let mut config = config();
    config.tls.key_file = Some("key.pem".into());
    let problems = config.validate(&gateway::auth::Config::default());
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("gateway.tls.certificate_file:"),
        "{problems:?}"
    );
}

async fn encrypted(change: impl FnOnce(&mut gateway::Config)) -> (World, CertificateDer<'static>) {
    let dir = tempfile::tempdir().unwrap();
    let certificate = certify(dir.path());
    let mut config = config();
    config.tls.certificate_file = Some(dir.path().join("cert.pem"));
    config.tls.key_file = Some(dir.path().join("key.pem"));
    change(&mut config);
    (World::with(config).await, certificate)
}

/// The first message of a client that speaks this version of TLS at most: 0x0301 is TLS 1.0.
fn hello(version: u16) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    // No session; suites with AES-CBC and RSA; no compression.
    body.extend([0, 0, 4, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut hello = vec![1, length[1], length[2], length[3]];
    hello.extend(body);
    let length = u16::try_from(hello.len()).unwrap().to_be_bytes();
    let mut record = vec![22, 3, 1, length[0], length[1]];
    record.extend(hello);
    record
}

#[tokio::test]
async fn old_versions_are_refused() {
    use tokio::io::AsyncWriteExt as _;
    let (world, certificate) = encrypted(|_| {}).await;
    // SSL 3.0, TLS 1.0, TLS 1.1.
    for version in [0x0300, 0x0301, 0x0302] {
        let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
        stream.write_all(&hello(version)).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(SOON, stream.read_to_end(&mut answer));
        let _ = read.await.expect("it is closed");
        // An alert, and no ServerHello.
        assert_eq!(answer.first(), Some(&21), "{version:#x}: {answer:?}");
    }
    assert!(discover(&world, &certificate).await.is_some());
}

/// Handshakes that are begun and not carried on: each ends when its time is over, and meanwhile others
/// come in.
#[tokio::test]
async fn slow_handshakes_are_shown_out() {
    use tokio::io::AsyncWriteExt as _;
    let second = std::time::Duration::from_secs(1);
    let (world, certificate) =
        encrypted(|config| config.limits.header_read_timeout = 2 * second).await;
    let mut half = Vec::new();
    for n in 0..300 {
        let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
        // Nothing, or a part of the first message.
        let hello = hello(0x0303);
        stream.write_all(&hello[..n % 40]).await.unwrap();
        half.push(stream);
    }
    assert!(discover(&world, &certificate).await.is_some());
    let open = async || world.metric("mcp_tasks_gateway_connections");
    harness::wait::for_state("all are closed", SOON, open, |n| *n < 0.5)
        .await
        .unwrap();
    for mut stream in half {
        let read = tokio::time::timeout(SOON, stream.read(&mut [0; 64])).await;
        assert!(matches!(read.unwrap(), Ok(_) | Err(_)));
    }
}

/// A client may say much, and not as much as TLS lets it: until its first message is whole it is kept.
#[tokio::test]
async fn a_handshake_has_its_size() {
    use rustls::pki_types::ServerName;
    use tokio_rustls::TlsConnector;
    let (world, certificate) = encrypted(|_| {}).await;
    let shake = async |bytes: usize| {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        tls.alpn_protocols
            .extend((0..bytes / 100).map(|n| format!("{n:099}").into_bytes()));
        let stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let shaking = TlsConnector::from(Arc::new(tls)).connect(name, stream);
        tokio::time::timeout(SOON, shaking)
            .await
            .expect("it is told at once")
    };
    for (bytes, good) in [(0, true), (14_000, true), (26_000, false), (60_000, false)] {
        assert_eq!(shake(bytes).await.is_ok(), good, "{bytes}");
    }
}
