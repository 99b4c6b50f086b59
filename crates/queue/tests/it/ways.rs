//! Ways to Redis: encrypted, with a password from a file, and refused. Losing any of it costs time
//! and never more; but what waiting does not mend is said, with what to do.

use std::path::{Path, PathBuf};

use harness::redis::{Options, Redis};
use harness::temp::Temp;
use queue::{Config, Queue};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use telemetry::Registry;

use crate::support::{PATIENCE, Process, config, connect};

/// An authority's certificate, and a server's, which it signed.
fn sign(dir: &Path, name: &str, host: &str) -> (PathBuf, PathBuf, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let write = |what: &str, text: String| {
        let file = dir.join(format!("{name}-{what}.pem"));
        std::fs::write(&file, text).unwrap();
        file
    };
    let authority = write("ca", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap();
    (
        authority,
        write("cert", certificate.pem()),
        write("key", key.serialize_pem()),
    )
}

/// A server with a second, encrypted port.
async fn encrypted(dir: &Path, host: &str) -> (Redis, u16, PathBuf) {
    let (authority, certificate, key) = sign(dir, "ours", host);
    let port = harness::ports::free().unwrap();
    let mut options = Options::test();
    for (name, value) in [
        ("tls-port", port.to_string()),
        ("tls-cert-file", certificate.display().to_string()),
        ("tls-key-file", key.display().to_string()),
        ("tls-ca-cert-file", authority.display().to_string()),
        ("tls-auth-clients", "no".to_owned()),
    ] {
        options.settings.push((name.to_owned(), value));
    }
    (
        Redis::temporary_with(options).await.unwrap(),
        port,
        authority,
    )
}

/// What is refused, and what to do.
async fn refused(config: Config) -> &'static str {
    let process = Process::new(config);
    let told = async || process.queue.refused();
    let told = harness::wait::for_state("a refusal", PATIENCE, told, Option::is_some);
    let told = told.await.unwrap().unwrap();
    assert!(!*process.queue.connected().borrow());
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_is_encrypted_and_checked() {
    let dir = Temp::new().unwrap();
    let (redis, port, authority) = encrypted(dir.path(), "127.0.0.1").await;
    let at = |authority: Option<&Path>| Config {
        url: format!("rediss://127.0.0.1:{port}"),
        ca_file: authority.map(Path::to_owned),
        ..config(&redis)
    };
    let process = connect(at(Some(&authority))).await;
    assert_eq!(process.queue.refused(), None);
    let (other, ..) = sign(dir.path(), "other", "127.0.0.1");
    // Somebody else's authority, and those of this machine, which do not know ours.
    for unknown in [Some(other.as_path()), None] {
        let told = refused(at(unknown)).await;
        assert!(told.contains("redis.ca_file"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_refused() {
    let dir = Temp::new().unwrap();
    let (redis, port, authority) = encrypted(dir.path(), "elsewhere.example").await;
    let told = refused(Config {
        url: format!("rediss://127.0.0.1:{port}"),
        ca_file: Some(authority),
        ..config(&redis)
    })
    .await;
    assert!(told.contains("certificate"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_may_change() {
    let redis = Redis::temporary().await.unwrap();
    let admin = async |command: &[&str]| {
        let client = redis::Client::open(redis.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut asked = redis::cmd(command[0]);
        asked.arg(&command[1..]);
        asked
            .query_async::<redis::Value>(&mut connection)
            .await
            .unwrap();
    };
    admin(&["ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all"]).await;
    let dir = Temp::new().unwrap();
    let secret = dir.path().join("password");
    std::fs::write(&secret, "first\n").unwrap();
    let settings = Config {
        url: redis.url().replace("redis://", "redis://app@"),
        password_file: Some(secret.clone()),
        ..config(&redis)
    };
    let process = connect(settings.clone()).await;
    admin(&["ACL", "SETUSER", "app", "resetpass", ">second"]).await;
    admin(&["CLIENT", "KILL", "USER", "app"]).await;
    process.connected(false).await;
    let told = async || process.queue.refused();
    let told = harness::wait::for_state("a refusal", PATIENCE, told, Option::is_some);
    assert!(told.await.unwrap().unwrap().contains("password_file"));
    std::fs::write(&secret, "second").unwrap();
    process.connected(true).await;
    assert_eq!(process.queue.refused(), None);
    admin(&["ACL", "SETUSER", "app", "resetchannels"]).await;
    assert!(refused(settings.clone()).await.contains("lacks a right"));
    admin(&["ACL", "SETUSER", "app", "allchannels", "-@all"]).await;
    assert!(refused(settings).await.contains("lacks a right"));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let refuse = |url: &str, file: Option<&str>| {
        let config = Config {
            url: url.to_owned(),
            ca_file: file.map(PathBuf::from),
            ..Config::default()
        };
        let error = Queue::new(config, &Registry::new()).map(drop).unwrap_err();
        error.to_string()
    };
    for (url, file, told) in [
        ("rediss://h/#insecure", None, "not supported"),
        ("redis://h", Some("/none"), "rediss://"),
        ("rediss://h", Some("/none"), "/none"),
    ] {
        let said = refuse(url, file);
        assert!(said.contains(told), "{url}: {said}");
    }
}
