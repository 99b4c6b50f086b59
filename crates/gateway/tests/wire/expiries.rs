//! Streams and the tokens that opened them: none tells anything once its token is no longer good.

use std::path::Path;
use std::time::Duration;

use gateway::auth::{Config as Auth, Issuer as Settings, Mode};
use harness::client::Client;
use harness::sse::Stream;
use harness::tokens::{CLIENT, Issuer, Manner, SigningKey, now};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{SECOND, SOON, World, config, text};

const US: &str = "https://mcp.example.com/mcp";

fn settings(issuer: &Issuer) -> Auth {
    Auth {
        mode: Some(Mode::Tokens),
        resource: US.to_owned(),
        leeway: Duration::ZERO,
        issuers: vec![Settings {
            issuer: issuer.url.clone(),
            ..Settings::default()
        }],
        issuer_timeout: SECOND,
        ..Auth::default()
    }
}

async fn next(stream: &mut Stream) -> Value {
    let message = stream.next(SOON).await.unwrap();
    message.expect("the stream is open")
}

/// A stream about a task, after its first two messages.
async fn listen(client: &Client, id: &str) -> Stream {
    let mut stream = client.listen(json!({"taskIds": [id]})).await.unwrap();
    assert_eq!(
        next(&mut stream).await["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(next(&mut stream).await["params"]["status"], "working");
    stream
}

/// The final message, as when the process ends, and then the end.
async fn ends(mut stream: Stream) {
    assert_eq!(next(&mut stream).await["result"]["resultType"], "complete");
    assert_eq!(stream.next(SOON).await.unwrap(), None);
}

async fn complete(world: &World, id: &str) {
    let claim = world.claim_task("task", id.parse().unwrap()).await;
    world.complete(&claim, &text("done")).await;
}

#[tokio::test]
async fn streams_end_when_their_token_expires() {
    let key = SigningKey::p256("p256");
    let issuer = Issuer::start(&[&key]).await.unwrap();
    let world = World::guarded(config(), settings(&issuer)).await;
    let token = |seconds: i64| {
        let mut claims = issuer.claims("alice", US);
        claims["exp"] = json!(now() + seconds);
        world.client(&key.sign(&claims))
    };
    let long = token(600);
    let id = long.start("task", json!({})).await.unwrap();
    let mut stays = listen(&long, &id).await;
    let short = token(10);
    let waiting = short
        .request("tasks/result", json!({}))
        .params(json!({"taskId": id}))
        .header("mcp-protocol-version", "2025-11-25")
        .without_header("mcp-method")
        .without_header("mcp-name");
    let stream = listen(&short, &id).await;
    let (answer, ()) = tokio::join!(waiting.send(), ends(stream));
    let answer = answer.unwrap();
    assert_eq!(answer.error()["message"], "the access token has expired");
    complete(&world, &id).await;
    assert_eq!(next(&mut stays).await["params"]["status"], "completed");
}

fn write_key(file: &Path, key: &str) {
    let hash = Sha256::digest(key);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"ci\"\n");
    std::fs::write(file, entry).unwrap();
}

#[tokio::test]
async fn streams_end_when_their_key_is_removed() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    write_key(&file, "mtk_old");
    let auth = Auth {
        mode: Some(Mode::Tokens),
        api_keys_file: Some(file.clone()),
        ..Auth::default()
    };
    let mut config = config();
    config.listen_recheck = SECOND / 5;
    let world = World::guarded(config, auth).await;
    let old = world.client("mtk_old");
    let id = old.start("task", json!({})).await.unwrap();
    let stream = listen(&old, &id).await;
    write_key(&file, "mtk_new");
    ends(stream).await;
}

#[tokio::test]
async fn streams_end_when_their_token_is_revoked() {
    let issuer = Issuer::start(&[]).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let secret = files.path().join("secret");
    std::fs::write(&secret, CLIENT.1).unwrap();
    let mut auth = settings(&issuer);
    auth.issuers[0].introspection_url = format!("{}/introspect", issuer.url);
    auth.issuers[0].introspection_client_id = CLIENT.0.to_owned();
    auth.issuers[0].introspection_secret_file = Some(secret);
    auth.issuers[0].introspection_cache = SECOND / 5;
    let mut config = config();
    config.listen_recheck = SECOND / 5;
    let world = World::guarded(config, auth).await;
    let said = |active: bool| json!({"active": active, "sub": "alice", "aud": US});
    issuer.know("opaque", said(true));
    let alice = world.client("opaque");
    let id = alice.start("task", json!({})).await.unwrap();
    let mut stream = listen(&alice, &id).await;
    // An issuer that is away ends nothing.
    issuer.behave(Manner::Status(500));
    let before = issuer.requests("/introspect");
    let asked = async || (issuer.requests("/introspect") >= before + 3).then_some(());
    harness::wait::until("the issuer is asked", SOON, asked)
        .await
        .unwrap();
    complete(&world, &id).await;
    assert_eq!(next(&mut stream).await["params"]["status"], "completed");
    issuer.know("opaque", said(false));
    issuer.behave(Manner::Up);
    ends(stream).await;
}
