//! Tokens of every kind at the door, against an authorization server of our own: who is let in, what
//! everybody else is told, and what becomes of it when the server rotates its keys or is away.

mod claims;
mod delegation;
mod files;
mod introspection;
mod keys;
mod keysets;
mod owners;
mod ways;

use std::path::PathBuf;
use std::time::Duration;

use gateway::auth::{Config as Auth, Issuer as Settings, Mode};
use harness::client::{Answer, Client};
use harness::tokens::{CLIENT, Issuer, SigningKey};
use serde_json::{Value, json};

use crate::support::{SECOND, World, config};

/// What we are called; where we listen is another matter, as behind a proxy.
const US: &str = "https://mcp.example.com/mcp";

/// A gateway, its issuer, and the keys that the issuer publishes.
struct Doors {
    world: World,
    issuer: Issuer,
    rsa: SigningKey,
    p256: SigningKey,
    p384: SigningKey,
    ed25519: SigningKey,
    _files: tempfile::TempDir,
}

fn settings(issuer: &Issuer) -> Auth {
    Auth {
        mode: Some(Mode::Tokens),
        resource: US.to_owned(),
        issuers: vec![Settings {
            issuer: issuer.url.clone(),
            tenant_claim: "org".to_owned(),
            ..Settings::default()
        }],
        keys_cooldown: Duration::from_millis(200),
        issuer_timeout: SECOND,
        ..Auth::default()
    }
}

/// With introspection, and the secret in a file.
fn introspecting(mut auth: Auth, issuer: &Issuer, secret: PathBuf) -> Auth {
    std::fs::write(&secret, format!("{}\n", CLIENT.1)).unwrap();
    auth.issuers[0].introspection_url = format!("{}/introspect", issuer.url);
    auth.issuers[0].introspection_client_id = CLIENT.0.to_owned();
    auth.issuers[0].introspection_secret_file = Some(secret);
    auth
}

/// The key as an issuer publishes it that gives its keys no names.
fn nameless(key: &SigningKey) -> Value {
    let mut jwk = key.jwk();
    jwk.as_object_mut().unwrap().remove("kid");
    jwk
}

impl Doors {
    async fn new() -> Self {
        Self::with(|auth| auth).await
    }

    async fn with(change: impl FnOnce(Auth) -> Auth) -> Self {
        // Tables of wrong tokens come from one address.
        let mut gateway = config();
        gateway.limits.refused_tokens_of_address_burst = 10_000;
        Self::of(gateway, change).await
    }

    async fn of(gateway: gateway::Config, change: impl FnOnce(Auth) -> Auth) -> Self {
        let (rsa, p256) = (SigningKey::rsa("rsa", 0), SigningKey::p256("p256"));
        let (p384, ed25519) = (SigningKey::p384("p384"), SigningKey::ed25519("ed"));
        let issuer = Issuer::start(&[&rsa, &p256, &p384, &ed25519])
            .await
            .unwrap();
        let files = tempfile::tempdir().unwrap();
        let auth = introspecting(settings(&issuer), &issuer, files.path().join("secret"));
        let world = World::guarded(gateway, change(auth)).await;
        Self {
            world,
            issuer,
            rsa,
            p256,
            p384,
            ed25519,
            _files: files,
        }
    }

    fn claims(&self) -> Value {
        self.issuer.claims("alice", US)
    }

    fn changed(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[name] = value;
        claims
    }

    fn without(&self, name: &str) -> Value {
        let mut claims = self.claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    }

    async fn discover(&self, token: &str) -> Answer {
        discover(&self.world.client(token)).await
    }

    async fn status(&self, token: &str) -> u16 {
        self.discover(token).await.status
    }
}

async fn discover(client: &Client) -> Answer {
    let request = client.request("server/discover", json!({}));
    request.send().await.unwrap()
}

fn challenge(answer: &Answer) -> &str {
    answer.header("www-authenticate")
}
