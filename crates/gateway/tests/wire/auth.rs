//! Tokens of every kind at the door, against an authorization server of our own: who is let in, what
//! everybody else is told, and what becomes of it when the server rotates its keys or is away.

use std::path::PathBuf;
use std::time::Duration;

use gateway::auth::{Config as Auth, Issuer as Settings, Mode, Scopes};
use harness::client::{Answer, Client};
use harness::tokens::{CLIENT, Issuer, Manner, SigningKey, now};
use serde_json::{Value, json};

use crate::support::{SECOND, SOON, World, config};

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
        mode: Mode::Tokens,
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

impl Doors {
    async fn new() -> Self {
        Self::with(|auth| auth).await
    }

    async fn with(change: impl FnOnce(Auth) -> Auth) -> Self {
        let (rsa, p256) = (SigningKey::rsa("rsa", 0), SigningKey::p256("p256"));
        let (p384, ed25519) = (SigningKey::p384("p384"), SigningKey::ed25519("ed"));
        let issuer = Issuer::start(&[&rsa, &p256, &p384, &ed25519])
            .await
            .unwrap();
        let files = tempfile::tempdir().unwrap();
        let auth = introspecting(settings(&issuer), &issuer, files.path().join("secret"));
        let world = World::guarded(config(), change(auth)).await;
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

#[expect(clippy::too_many_lines, reason = "a table is read in one piece")]
#[tokio::test]
async fn every_token_gets_what_it_deserves() {
    let doors = Doors::new().await;
    let (rsa, ec, ed) = (&doors.rsa, &doors.p256, &doors.ed25519);
    let good = doors.claims();
    let head = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let header = |name: &str, value: Value| {
        let mut header = head("ES256", "p256");
        header[name] = value;
        ec.sign_with(&header, &good)
    };
    let claim = |name: &str, value: Value| ec.sign(&doors.changed(name, value));
    let stranger = SigningKey::p256("p256");
    let unknown = SigningKey::p256("unknown");
    let other_rsa = SigningKey::rsa("rsa", 1);
    let tampered = {
        let token = ec.sign(&good);
        let (head, rest) = token.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let forged = ec.sign(&doors.changed("sub", json!("mallory")));
        let payload = forged.split('.').nth(1).unwrap();
        format!("{head}.{payload}.{signature}")
    };
    let plain = ec.sign(&good);
    let cut = plain[..plain.len() - 4].to_owned();
    let unsigned = format!("{}.", plain.rsplit_once('.').unwrap().0);
    // The public key as the secret of an HMAC, and no algorithm at all.
    let confused = ec.sign_with(&head("HS256", "rsa"), &good);
    let none = ec.sign_with(&json!({"alg": "none"}), &good);

    let cases: Vec<(&str, bool, String)> = vec![
        ("RS256", true, rsa.sign(&good)),
        ("RS384", true, rsa.sign_with(&head("RS384", "rsa"), &good)),
        ("RS512", true, rsa.sign_with(&head("RS512", "rsa"), &good)),
        ("PS256", true, rsa.sign_with(&head("PS256", "rsa"), &good)),
        ("PS384", true, rsa.sign_with(&head("PS384", "rsa"), &good)),
        ("PS512", true, rsa.sign_with(&head("PS512", "rsa"), &good)),
        ("ES256", true, ec.sign(&good)),
        ("ES384", true, doors.p384.sign(&good)),
        ("EdDSA", true, ed.sign(&good)),
        ("Ed25519", true, ed.sign_with(&head("Ed25519", "ed"), &good)),
        ("typ JWT", true, header("typ", json!("JWT"))),
        (
            "typ application/at+jwt",
            true,
            header("typ", json!("application/at+jwt")),
        ),
        (
            "no kid, one key of that kind",
            true,
            ec.sign_with(&json!({"alg": "ES256"}), &good),
        ),
        (
            "jku is not looked at",
            true,
            header("jku", json!("http://127.0.0.1:1/evil")),
        ),
        ("jwk is not looked at", true, header("jwk", stranger.jwk())),
        ("aud among others", true, claim("aud", json!(["x", US]))),
        (
            "exp within the leeway",
            true,
            claim("exp", json!(now() - 5)),
        ),
        (
            "exp with a fraction",
            true,
            claim("exp", json!(f64::from(2_000_000_000) + 4e9 + 0.5)),
        ),
        (
            "nbf within the leeway",
            true,
            claim("nbf", json!(now() + 5)),
        ),
        ("no iat", true, ec.sign(&doors.without("iat"))),
        ("a tenant", true, claim("org", json!("acme"))),
        // From here on: 401.
        ("alg none", false, none),
        ("alg none, unsigned", false, unsigned),
        ("alg HS256 with a public key", false, confused),
        (
            "alg of another kind of key",
            false,
            ec.sign_with(&head("RS256", "p256"), &good),
        ),
        (
            "kid of another kind of key",
            false,
            ec.sign_with(&head("ES256", "rsa"), &good),
        ),
        ("alg in lower case", false, header("alg", json!("es256"))),
        ("alg is a list", false, header("alg", json!(["ES256"]))),
        (
            "no alg",
            false,
            ec.sign_with(&json!({"kid": "p256"}), &good),
        ),
        ("crit", false, header("crit", json!(["exp"]))),
        ("crit, empty", false, header("crit", json!([]))),
        (
            "b64 that is critical",
            false,
            header("crit", json!(["b64"])),
        ),
        ("encrypted", false, header("enc", json!("A256GCM"))),
        ("typ of a proof", false, header("typ", json!("dpop+jwt"))),
        ("typ of a logout", false, header("typ", json!("logout+jwt"))),
        ("kid is a number", false, header("kid", json!(7))),
        (
            "kid is too long",
            false,
            header("kid", json!("k".repeat(300))),
        ),
        ("kid is not known", false, unknown.sign(&good)),
        (
            "another's key under a known kid",
            false,
            stranger.sign(&good),
        ),
        (
            "another's RSA key under a known kid",
            false,
            other_rsa.sign(&good),
        ),
        (
            "no kid, and no key of that kind fits",
            false,
            stranger.sign_with(&json!({"alg": "ES256"}), &good),
        ),
        ("tampered", false, tampered),
        ("signature cut", false, cut),
        (
            "signature missing",
            false,
            plain.rsplit_once('.').unwrap().0.to_owned(),
        ),
        ("four parts", false, format!("{plain}.x")),
        ("padded", false, format!("{plain}=")),
        (
            "another issuer",
            false,
            claim("iss", json!("https://evil.example.com")),
        ),
        (
            "issuer with a slash more",
            false,
            claim("iss", json!(format!("{}/", doors.issuer.url))),
        ),
        ("no issuer", false, ec.sign(&doors.without("iss"))),
        (
            "another audience",
            false,
            claim("aud", json!("https://other.example.com/mcp")),
        ),
        (
            "audience with a slash more",
            false,
            claim("aud", json!(format!("{US}/"))),
        ),
        (
            "audience that begins like ours",
            false,
            claim("aud", json!(format!("{US}.evil"))),
        ),
        (
            "our host alone as audience",
            false,
            claim("aud", json!("https://mcp.example.com")),
        ),
        ("no audience", false, ec.sign(&doors.without("aud"))),
        ("an empty audience", false, claim("aud", json!([]))),
        ("audience is a number", false, claim("aud", json!(1))),
        ("expired", false, claim("exp", json!(now() - 40))),
        ("expired long ago", false, claim("exp", json!(0))),
        ("never expires", false, ec.sign(&doors.without("exp"))),
        ("exp is text", false, claim("exp", json!("4000000000"))),
        ("not valid yet", false, claim("nbf", json!(now() + 60))),
        ("nbf is text", false, claim("nbf", json!("0"))),
        ("no subject", false, ec.sign(&doors.without("sub"))),
        ("an empty subject", false, claim("sub", json!(""))),
        ("subject is a number", false, claim("sub", json!(7))),
        ("subject with a NUL", false, claim("sub", json!("a\u{0}b"))),
        (
            "subject is too long",
            false,
            claim("sub", json!("s".repeat(600))),
        ),
        ("bound to a key", false, claim("cnf", json!({"jkt": "x"}))),
        ("tenant is a list", false, claim("org", json!(["acme"]))),
        ("claims are no object", false, ec.sign(&json!([]))),
        ("an unknown API key", false, "mtk_unknown".to_owned()),
        (
            "an opaque token nobody knows",
            false,
            "opaque-unknown".to_owned(),
        ),
    ];
    assert!(cases.len() >= 60, "{}", cases.len());
    for (what, is_good, token) in &cases {
        // Twice: what is remembered is worth the same.
        for _ in 0..2 {
            let answer = doors.discover(token).await;
            let expected = if *is_good { 200 } else { 401 };
            assert_eq!(answer.status, expected, "{what}: {:?}", answer.message);
            if !is_good {
                let challenge = challenge(&answer);
                assert!(
                    challenge.contains("error=\"invalid_token\""),
                    "{what}: {challenge}"
                );
                assert!(challenge.contains("resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/mcp\""), "{what}: {challenge}");
                assert!(!challenge.contains(token.as_str()), "{what}");
            }
        }
    }
    let answer = discover(&Client::new(&doors.world.url)).await;
    assert_eq!(answer.status, 401, "without a token");
    assert!(
        !challenge(&answer).contains("error"),
        "{}",
        challenge(&answer)
    );
}

#[tokio::test]
async fn tasks_belong_to_issuer_and_subject() {
    let other = SigningKey::ed25519("o");
    let second = Issuer::start(&[&other]).await.unwrap();
    let url = second.url.clone();
    let doors = Doors::with(|mut auth| {
        auth.issuers.push(Settings {
            issuer: url,
            ..Settings::default()
        });
        auth
    })
    .await;
    let alice = doors.world.client(&doors.p256.sign(&doors.claims()));
    let task = alice.call("task", json!({})).await.unwrap();
    let id = task["taskId"].as_str().unwrap();
    // Another token of the same principal: its owner.
    let again = doors
        .world
        .client(&doors.rsa.sign(&doors.changed("jti", json!("2"))));
    assert_eq!(again.get(id).await.unwrap()["taskId"], id);
    // The same name at another issuer, and another name: the bytes of an unknown task, and no 401.
    let namesake = doors.world.client(&other.sign(&second.claims("alice", US)));
    let bob = doors
        .world
        .client(&doors.p256.sign(&doors.changed("sub", json!("bob"))));
    let unknown = protocol::TaskId::new(0).to_string();
    for stranger in [namesake, bob] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let ask = async |id: &str| {
                let params = json!({"taskId": id, "inputResponses": {}});
                let request = stranger.request(method, params).id(json!(1));
                let answer = request.send().await.unwrap();
                (answer.status, answer.body)
            };
            let foreign = ask(id).await;
            assert_eq!(foreign.0, 200, "{method}");
            assert_eq!(foreign, ask(&unknown).await, "{method}");
        }
    }
    assert_eq!(again.get(id).await.unwrap()["status"], "working");
    let rows = doors
        .world
        .database
        .rows("SELECT issuer, subject FROM tasks")
        .await
        .unwrap();
    assert_eq!(rows[0][0].as_deref(), Some(doors.issuer.url.as_str()));
    assert_eq!(rows[0][1].as_deref(), Some("alice"));
}

#[tokio::test]
async fn scopes_open_methods_and_tools() {
    let one = |scope: &str| vec![scope.to_owned()];
    let doors = Doors::with(|mut auth| {
        auth.scopes = Scopes {
            call: one("call"),
            read: one("read"),
            update: one("update"),
            cancel: one("cancel"),
            ..Scopes::default()
        };
        auth
    })
    .await;
    let with = |scope: &str| {
        doors
            .world
            .client(&doors.p256.sign(&doors.changed("scope", json!(scope))))
    };
    let all = with("call read update cancel");
    let task = all.call("task", json!({})).await.unwrap();
    let id = task["taskId"].clone();
    let unknown = json!(protocol::TaskId::new(0).to_string());
    let none = with("other");
    assert_eq!(
        discover(&none).await.status,
        200,
        "discovery needs no scope"
    );
    for (method, params, scope) in [
        (
            "tools/call",
            json!({"name": "task", "arguments": {}}),
            "call",
        ),
        ("tasks/get", json!({"taskId": id}), "read"),
        ("tasks/get", json!({"taskId": unknown}), "read"),
        (
            "tasks/update",
            json!({"taskId": id, "inputResponses": {}}),
            "update",
        ),
        ("tasks/cancel", json!({"taskId": id}), "cancel"),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": [id]}}),
            "read",
        ),
    ] {
        let answer = none.request(method, params.clone()).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (403, Some(403)),
            "{method}"
        );
        let challenge = challenge(&answer);
        for part in [
            "error=\"insufficient_scope\"",
            &format!("scope=\"{scope}\""),
            "resource_metadata=",
        ] {
            assert!(challenge.contains(part), "{method}: {challenge}");
        }
        if method != "subscriptions/listen" {
            let other = with(&format!("x {scope}"));
            let answer = other.request(method, params).send().await.unwrap();
            assert_eq!(answer.status, 200, "{method}");
        }
    }
    // A tool with a scope of its own is only listed to who may call it.
    let names = async |client: &Client| {
        let answer = client.request("tools/list", json!({})).send().await;
        let list = answer.unwrap().message["result"].clone();
        assert_eq!(list["cacheScope"], "private");
        let tools = list["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(!names(&all).await.contains(&"scoped".to_owned()));
    let allowed = with("call reports:write");
    assert!(names(&allowed).await.contains(&"scoped".to_owned()));
    let call = json!({"name": "scoped", "arguments": {}});
    let answer = all
        .request("tools/call", call.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 403);
    let challenge = challenge(&answer);
    assert!(
        challenge.contains("scope=\"call reports:write\""),
        "{challenge}"
    );
    let answer = allowed.request("tools/call", call).send().await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn who_may_answer_for_the_tenant_does_and_is_recorded() {
    let doors = Doors::with(|mut auth| {
        auth.scopes.delegate = vec!["approve".to_owned()];
        auth
    })
    .await;
    let world = &doors.world;
    let who = |subject: &str, org: Value, scope: &str| {
        let mut claims = doors.changed("sub", json!(subject));
        claims["org"] = org;
        claims["scope"] = json!(scope);
        world.client(&doors.p256.sign(&claims))
    };
    let owner = who("alice", json!("acme"), "");
    let task = owner.call("task", json!({})).await.unwrap();
    let id = task["taskId"].as_str().unwrap().to_owned();
    let claim = world.claim("task").await;
    let keys = ["first", "second"];
    world.park(&claim, store::ParkedFor::Task, &keys).await;
    let update = async |client: &Client, id: &str, key: &str| {
        let params = json!({"taskId": id, "inputResponses": {key: crate::support::yes()}});
        let request = client.request("tasks/update", params).id(json!(1));
        let answer = request.send().await.unwrap();
        (answer.status, answer.body)
    };
    // Of another tenant, without the scope, or of no tenant: the bytes of an unknown task.
    let unknown = protocol::TaskId::new(0).to_string();
    for stranger in [
        who("bob", json!("other"), "approve"),
        who("bob", json!("acme"), "reject"),
        who("bob", json!(null), "approve"),
    ] {
        let expected = update(&stranger, &unknown, "first").await;
        assert_eq!(update(&stranger, &id, "first").await, expected);
    }
    assert_eq!(world.count("SELECT count(*) FROM audit").await, 0);
    let bob = who("bob", json!("acme"), "x approve");
    let answer = update(&bob, &id, "first").await;
    assert!(
        !String::from_utf8_lossy(&answer.1).contains("error"),
        "{answer:?}"
    );
    // To answer is all that it may.
    assert!(bob.get(&id).await.is_err() && bob.cancel(&id).await.is_err());
    // The owner's own answer is no delegation, and neither is one that changes nothing.
    update(&bob, &id, "first").await;
    update(&owner, &id, "second").await;
    world
        .until("SELECT count(*) FROM tasks WHERE phase = 'queued'", 1)
        .await;
    let sql = "SELECT operator, command, target->>'keys', task_id::text, outcome \
               FROM audit JOIN audit_tasks ON audit_id = id";
    let rows = world.database.rows(sql).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row: Vec<&str> = rows[0]
        .iter()
        .map(|cell| cell.as_deref().unwrap())
        .collect();
    let operator = format!("{} bob", doors.issuer.url);
    assert_eq!(
        row,
        [&operator, "tasks/update", "[\"first\"]", &id, "answered"]
    );
    let sql = "SELECT key, answered_by FROM inputs ORDER BY key";
    let rows = world.database.rows(sql).await.unwrap();
    let by: Vec<&str> = rows.iter().map(|row| row[1].as_deref().unwrap()).collect();
    assert_eq!(by, ["tenant", "owner"]);
}

/// How often the first is slower than the second, of all pairs: a half if nothing tells them apart
/// (the statistic of Mann and Whitney, which outliers do not move).
fn slower(first: &[Duration], second: &[Duration]) -> f64 {
    let mut wins = 0.0;
    for a in first {
        for b in second {
            wins += match a.cmp(b) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    let pairs = (first.len() * second.len()) as f64;
    wins / pairs
}

#[tokio::test]
async fn time_does_not_tell_foreign_tasks_from_unknown_ones() {
    const ROUNDS: usize = 400;
    let world = World::new().await;
    let (alice, mallory) = (world.client("alice"), world.client("mallory"));
    let mut foreign = Vec::new();
    for _ in 0..20 {
        let task = alice.call("task", json!({})).await.unwrap();
        foreign.push(task["taskId"].as_str().unwrap().to_owned());
    }
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let time = async |id: &str| {
            let params = json!({"taskId": id, "inputResponses": {}});
            let request = mallory.request(method, params);
            let started = std::time::Instant::now();
            let answer = request.send().await.unwrap();
            assert_eq!(answer.error_code(), Some(-32602));
            started.elapsed()
        };
        // In turn, so that whatever else this machine does meets both alike. A busy one may still
        // be unlucky once; a difference that is there would be there each time.
        let mut shares = Vec::new();
        for _ in 0..3 {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                let unknown = protocol::TaskId::new(0).to_string();
                if round % 2 == 0 {
                    first.push(time(&foreign[round % foreign.len()]).await);
                    second.push(time(&unknown).await);
                } else {
                    second.push(time(&unknown).await);
                    first.push(time(&foreign[round % foreign.len()]).await);
                }
            }
            let share = slower(&first, &second);
            first.sort();
            second.sort();
            println!(
                "{method}: foreign {:?}, unknown {:?} (medians); foreign is slower in {:.1} % of pairs",
                first[ROUNDS / 2],
                second[ROUNDS / 2],
                100.0 * share
            );
            shares.push(share);
            if (0.4..=0.6).contains(&share) {
                break;
            }
        }
        assert!(
            shares.iter().any(|share| (0.4..=0.6).contains(share)),
            "{method}: {shares:?}"
        );
    }
}

#[tokio::test]
async fn keys_rotate() {
    let doors = Doors::with(|mut auth| {
        auth.keys_refresh = Duration::from_millis(300);
        auth
    })
    .await;
    let old = doors.p256.sign(&doors.claims());
    assert_eq!(doors.status(&old).await, 200);
    // A new key is found as soon as a token names it.
    let new = SigningKey::p256("2026-12");
    doors.issuer.publish(&[&doors.p256, &new]);
    assert_eq!(doors.status(&new.sign(&doors.claims())).await, 200);
    assert_eq!(doors.status(&old).await, 200);
    // A key that is withdrawn takes its tokens with it, also those that are remembered.
    doors.issuer.publish(&[&new]);
    let refused = async || (doors.status(&old).await == 401).then_some(());
    harness::wait::until("the old key is gone", SOON, refused)
        .await
        .unwrap();
    // The same name for another key: the old key's tokens stay refused.
    let renamed = SigningKey::p256("2026-12");
    let token = new.sign(&doors.claims());
    doors.issuer.publish(&[&renamed]);
    let refused = async || (doors.status(&token).await == 401).then_some(());
    harness::wait::until("the key was replaced", SOON, refused)
        .await
        .unwrap();
    assert_eq!(doors.status(&renamed.sign(&doors.claims())).await, 200);
}

#[tokio::test]
async fn made_up_keys_cost_the_issuer_nothing() {
    let doors = Doors::with(|mut auth| {
        auth.keys_cooldown = 3600 * SECOND;
        auth
    })
    .await;
    assert_eq!(doors.status(&doors.rsa.sign(&doors.claims())).await, 200);
    let before = doors.issuer.requests("/jwks");
    let stranger = SigningKey::p256("x");
    let tokens: Vec<String> = (0..50)
        .map(|n| {
            stranger.sign_with(
                &json!({"alg": "ES256", "kid": format!("made-up-{n}")}),
                &doors.claims(),
            )
        })
        .collect();
    let asked = tokens.iter().map(|token| doors.status(token));
    let statuses = futures::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let asked = doors.issuer.requests("/jwks") - before;
    assert!(asked <= 1, "{asked} requests for 50 unknown keys");
}

#[tokio::test]
async fn an_issuer_that_is_away_shuts_nobody_out_whom_it_let_in() {
    let doors = Doors::new().await;
    assert_eq!(doors.status(&doors.p256.sign(&doors.claims())).await, 200);
    let new = SigningKey::p256("new");
    for manner in [
        Manner::Down,
        Manner::Status(500),
        Manner::Garbage("<html>".to_owned()),
        Manner::Garbage("x".repeat(600 * 1024)),
        Manner::Redirect("http://127.0.0.1:1/jwks".to_owned()),
        Manner::Slow(60 * SECOND),
    ] {
        doors.issuer.behave(manner.clone());
        // Tokens that were never seen, by keys that are known.
        let fresh = doors
            .rsa
            .sign(&doors.changed("jti", json!(format!("{manner:?}").len())));
        assert_eq!(doors.status(&fresh).await, 200, "{manner:?}");
        // By a key that is not: nobody knows whether it is good.
        let answer = doors.discover(&new.sign(&doors.claims())).await;
        assert_eq!((answer.status, answer.error_code()), (503, Some(-32603)));
        assert_eq!(answer.header("retry-after"), "5");
        assert_eq!(challenge(&answer), "", "nobody shall log in again for that");
        // What is wrong without asking stays wrong.
        assert_eq!(
            doors
                .status(&new.sign(&doors.changed("aud", json!("x"))))
                .await,
            401
        );
    }
    doors.issuer.behave(Manner::Up);
    doors.issuer.publish(&[&doors.rsa, &new]);
    let token = new.sign(&doors.claims());
    let back = async || (doors.status(&token).await == 200).then_some(());
    harness::wait::until("the new key is known", SOON, back)
        .await
        .unwrap();
}

#[tokio::test]
async fn keys_are_not_believed_for_ever() {
    let doors = Doors::with(|mut auth| {
        auth.keys_refresh = Duration::from_millis(100);
        auth.keys_age_max = SECOND;
        auth
    })
    .await;
    let token = doors.p256.sign(&doors.claims());
    assert_eq!(doors.status(&token).await, 200);
    doors.issuer.behave(Manner::Down);
    let too_old = async || (doors.status(&token).await == 503).then_some(());
    harness::wait::until("the keys are too old", SOON, too_old)
        .await
        .unwrap();
    doors.issuer.behave(Manner::Up);
    let back = async || (doors.status(&token).await == 200).then_some(());
    harness::wait::until("the keys are read again", SOON, back)
        .await
        .unwrap();
}

#[tokio::test]
async fn metadata_of_another_issuer_is_not_believed() {
    let key = SigningKey::p256("k");
    let issuer = Issuer::start(&[&key]).await.unwrap();
    issuer.pretend("https://evil.example.com");
    let world = World::guarded(config(), settings(&issuer)).await;
    let token = key.sign(&issuer.claims("alice", US));
    assert_eq!(discover(&world.client(&token)).await.status, 503);
    assert_eq!(issuer.requests("/jwks"), 0);
}

#[tokio::test]
async fn keys_come_from_an_address_or_a_file_as_well() {
    let (first, second) = (SigningKey::p256("k"), SigningKey::ed25519("k2"));
    let issuer = Issuer::start(&[&first]).await.unwrap();
    let mut by_url = settings(&issuer);
    by_url.issuers[0].jwks_url = format!("{}/jwks", issuer.url);
    let world = World::guarded(config(), by_url).await;
    let token = first.sign(&issuer.claims("alice", US));
    assert_eq!(discover(&world.client(&token)).await.status, 200);
    assert_eq!(issuer.requests("/.well-known/openid-configuration"), 0);

    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("jwks.json");
    std::fs::write(&file, json!({"keys": [first.jwk()]}).to_string()).unwrap();
    let mut by_file = settings(&issuer);
    by_file.issuers[0].jwks_file = Some(file.clone());
    by_file.issuers[0].algorithms = vec![
        gateway::auth::Algorithm::ES256,
        gateway::auth::Algorithm::EdDsa,
    ];
    by_file.keys_refresh = Duration::from_millis(200);
    let asked = issuer.requests("/jwks");
    let world = World::guarded(config(), by_file).await;
    assert_eq!(discover(&world.client(&token)).await.status, 200);
    std::fs::write(&file, json!({"keys": [second.jwk()]}).to_string()).unwrap();
    let token = second.sign(&issuer.claims("alice", US));
    let read = async || (discover(&world.client(&token)).await.status == 200).then_some(());
    harness::wait::until("the file is read again", SOON, read)
        .await
        .unwrap();
    // An algorithm that this issuer may not use.
    let rsa = SigningKey::rsa("r", 0);
    let token = rsa.sign(&issuer.claims("alice", US));
    assert_eq!(discover(&world.client(&token)).await.status, 401);
    assert_eq!(issuer.requests("/jwks"), asked, "it was not asked at all");
}

#[tokio::test]
async fn opaque_tokens_are_introspected() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].introspection_cache = Duration::from_millis(500);
        auth
    })
    .await;
    let good = || {
        json!({"active": true, "sub": "alice", "aud": US, "scope": "read", "org": "acme",
                         "token_type": "Bearer", "exp": now() + 600})
    };
    let with = |name: &str, value: Value| {
        let mut said = good();
        said[name] = value;
        said
    };
    doors.issuer.know("good", good());
    let cases = [
        ("inactive", with("active", json!(false))),
        (
            "for-others",
            with("aud", json!("https://other.example.com")),
        ),
        ("for-anyone", json!({"active": true, "sub": "alice"})),
        ("of-nobody", json!({"active": true, "aud": US})),
        ("expired", with("exp", json!(now() - 60))),
        ("early", with("nbf", json!(now() + 600))),
        ("elsewhere", with("iss", json!("https://evil.example.com"))),
        ("proof", with("token_type", json!("DPoP"))),
        ("bound", with("cnf", json!({"x5t#S256": "x"}))),
    ];
    for (token, said) in &cases {
        doors.issuer.know(token, said.clone());
        assert_eq!(doors.status(token).await, 401, "{token}");
    }
    // Once for all who wait, and not again for a while.
    let before = doors.issuer.requests("/introspect");
    doors
        .issuer
        .behave(Manner::Slow(Duration::from_millis(300)));
    let asked = (0..20).map(|_| doors.status("good"));
    let statuses = futures::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(doors.issuer.requests("/introspect") - before, 1);
    doors.issuer.behave(Manner::Up);
    // What is revoked is refused soon.
    doors.issuer.know("good", json!({"active": false}));
    let revoked = async || (doors.status("good").await == 401).then_some(());
    harness::wait::until("the token is revoked", SOON, revoked)
        .await
        .unwrap();
    // Away: nobody can say, except of tokens that were just asked about.
    doors.issuer.behave(Manner::Status(500));
    assert_eq!(doors.status("another").await, 503);
    assert_eq!(doors.status("good").await, 401);
    // An answer that is none is not a yes.
    for garbage in ["", "[]", "{}", "{\"active\":\"true\"}", "true"] {
        doors.issuer.behave(Manner::Garbage(garbage.to_owned()));
        assert_eq!(
            doors.status(&format!("g{}", garbage.len())).await,
            503,
            "{garbage}"
        );
    }
}

#[tokio::test]
async fn revoked_jwts_are_refused_where_issuers_are_asked() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].introspect_jwts = true;
        auth.issuers[0].introspection_cache = Duration::ZERO;
        auth
    })
    .await;
    let token = doors.p256.sign(&doors.claims());
    assert_eq!(
        doors.status(&token).await,
        401,
        "its issuer does not know it"
    );
    let token = doors.p256.sign(&doors.changed("jti", json!("2")));
    doors
        .issuer
        .know(&token, json!({"active": true, "sub": "alice", "aud": US}));
    assert_eq!(doors.status(&token).await, 200);
    doors.issuer.know(&token, json!({"active": false}));
    assert_eq!(doors.status(&token).await, 401);
}

#[tokio::test]
async fn api_keys_are_for_machines() {
    use sha2::{Digest as _, Sha256};
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    let entry = |key: &str, more: &str| {
        let hash: String = Sha256::digest(key)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!("[[key]]\nsha256 = \"{hash}\"\n{more}\n")
    };
    let good = entry(
        "mtk_ci",
        "subject = \"ci\"\ntenant = \"acme\"\nscopes = [\"call\"]",
    );
    let expired = entry(
        "mtk_old",
        "subject = \"ci\"\nexpires = 2020-01-01T00:00:00Z",
    );
    let unprefixed = entry("plain", "subject = \"ci\"");
    std::fs::write(&file, format!("{good}{expired}{unprefixed}")).unwrap();
    let auth = Auth {
        mode: Mode::Tokens,
        api_keys_file: Some(file.clone()),
        scopes: Scopes {
            call: vec!["call".to_owned()],
            cancel: vec!["cancel".to_owned()],
            ..Scopes::default()
        },
        ..Auth::default()
    };
    let world = World::guarded(config(), auth).await;
    let status = async |token: &str| discover(&world.client(token)).await.status;
    let ci = world.client("mtk_ci");
    let task = ci.call("task", json!({})).await.unwrap();
    let rows = world
        .database
        .rows("SELECT issuer, subject, tenant FROM tasks")
        .await
        .unwrap();
    let row: Vec<_> = rows[0]
        .iter()
        .map(|cell| cell.as_deref().unwrap())
        .collect();
    assert_eq!(row, ["api-keys", "ci", "acme"]);
    let cancel = ci.request("tasks/cancel", json!({"taskId": task["taskId"]}));
    assert_eq!(cancel.send().await.unwrap().status, 403);
    for bad in ["mtk_old", "mtk_", "mtk_ci2", "MTK_CI", "plain"] {
        assert_eq!(status(bad).await, 401, "{bad}");
    }
    let answer = discover(&world.client("mtk_ci2")).await;
    assert_eq!(
        challenge(&answer),
        "Bearer error=\"invalid_token\", error_description=\"the API key is not known\", \
         scope=\"call cancel\"",
        "there is no authorization server to go to"
    );
    // A broken file changes nothing; a good one does.
    std::fs::write(&file, "[[key]]\nsha256 = 1").unwrap();
    assert_eq!(status("mtk_ci").await, 200);
    std::fs::write(&file, entry("mtk_new", "subject = \"ci\"")).unwrap();
    let read = async || (status("mtk_new").await == 200).then_some(());
    harness::wait::until("the new key is known", SOON, read)
        .await
        .unwrap();
    assert_eq!(status("mtk_ci").await, 401, "the old one is gone");
}

#[tokio::test]
async fn metadata_is_for_everybody() {
    let doors = Doors::with(|mut auth| {
        auth.scopes.call = vec!["call".to_owned()];
        auth
    })
    .await;
    let http = harness::http::Http::new(SOON);
    let root = format!("http://{}", doors.world.address);
    for path in ["", "/mcp"] {
        let url = format!("{root}/.well-known/oauth-protected-resource{path}");
        let page = http.get(&url).await.unwrap();
        assert_eq!(page.status, 200, "{url}");
        let document: Value = serde_json::from_slice(&page.body).unwrap();
        assert_eq!(
            document,
            json!({"resource": US, "authorization_servers": [doors.issuer.url],
                   "bearer_methods_supported": ["header"], "scopes_supported": ["call"]})
        );
        assert_eq!(page.headers["content-type"], "application/json");
        assert_eq!(page.headers["access-control-allow-origin"], "*");
    }
    let other = format!("{root}/.well-known/oauth-protected-resource/other");
    assert_eq!(http.get(&other).await.unwrap().status, 404);
    // In development there is no authorization server to be named.
    let world = World::new().await;
    let url = format!(
        "http://{}/.well-known/oauth-protected-resource",
        world.address
    );
    assert_eq!(http.get(&url).await.unwrap().status, 404);
}

#[tokio::test]
async fn files_that_cannot_be_used_end_the_start() {
    for auth in [
        Auth {
            mode: Mode::Tokens,
            api_keys_file: Some("/does/not/exist".into()),
            ..Auth::default()
        },
        Auth {
            mode: Mode::Tokens,
            ca_file: Some("/does/not/exist".into()),
            api_keys_file: Some("/does/not/exist".into()),
            ..Auth::default()
        },
    ] {
        let error = crate::support::refused_start(auth).await;
        assert!(error.to_string().contains("/does/not/exist"), "{error}");
    }
}

#[tokio::test]
async fn no_log_and_no_answer_holds_a_token() {
    let doors = Doors::new().await;
    let secret = doors.p256.sign(&doors.changed("aud", json!("x")));
    let answer = doors.discover(&secret).await;
    assert!(!String::from_utf8_lossy(&answer.body).contains(&secret[..40]));
    let rendered = doors.world.registry.render();
    assert!(!rendered.contains(&secret[..40]));
    assert!(
        doors
            .world
            .metric("mcp_tasks_gateway_tokens_total{kind=\"jwt\",outcome=\"refused\"}")
            >= 1.0
    );
}
