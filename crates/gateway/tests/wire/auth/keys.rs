//! An issuer's keys: where they come from, how they change, and what is believed while it is away.

use std::time::Duration;

use harness::tokens::{Issuer, Manner, SigningKey};
use serde_json::json;

use super::{Doors, US, challenge, discover, nameless, settings};
use crate::support::{SECOND, SOON, World, config};

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

/// By issuers that give their keys no name, or give the next one the name of the last: that a key is
/// missing is told by nothing but a signature then.
#[tokio::test]
async fn keys_rotate_without_a_new_name() {
    let (old, new) = (SigningKey::p256("k"), SigningKey::p256("k"));
    for is_named in [false, true] {
        let jwk = |key: &SigningKey| if is_named { key.jwk() } else { nameless(key) };
        let issuer = Issuer::start(&[]).await.unwrap();
        issuer.publish_jwks(vec![jwk(&old)]);
        let mut auth = settings(&issuer);
        auth.keys_refresh = 3600 * SECOND;
        let world = World::guarded(config(), auth).await;
        let status = async |key: &SigningKey, id: &str| {
            let mut claims = issuer.claims("alice", US);
            claims["jti"] = json!(id);
            let mut head = json!({"alg": "ES256"});
            if is_named {
                head["kid"] = json!("k");
            }
            let token = key.sign_with(&head, &claims);
            discover(&world.client(&token)).await.status
        };
        assert_eq!(status(&old, "1").await, 200, "{is_named}");
        // Both are there for a while, in whatever order.
        issuer.publish_jwks(vec![jwk(&old), jwk(&new)]);
        assert_eq!(status(&new, "2").await, 200, "{is_named}");
        assert_eq!(status(&old, "3").await, 200, "{is_named}");
        assert_eq!(issuer.requests("/jwks"), 2, "one more look, {is_named}");
    }
    // One in place of the other: tokens of the old one are refused, also those that are remembered.
    let issuer = Issuer::start(&[&old]).await.unwrap();
    let mut auth = settings(&issuer);
    auth.keys_refresh = 3600 * SECOND;
    let world = World::guarded(config(), auth).await;
    let (before, after) = (
        old.sign(&issuer.claims("a", US)),
        new.sign(&issuer.claims("b", US)),
    );
    assert_eq!(discover(&world.client(&before)).await.status, 200);
    issuer.publish(&[&new]);
    assert_eq!(discover(&world.client(&after)).await.status, 200);
    assert_eq!(discover(&world.client(&before)).await.status, 401);
}

/// Keys are known, and asked for once more at most; and how often they were asked for.
async fn cooling_for_long() -> (Doors, usize) {
    let doors = Box::pin(Doors::with(|mut auth| {
        auth.keys_cooldown = 3600 * SECOND;
        auth
    }))
    .await;
    assert_eq!(doors.status(&doors.rsa.sign(&doors.claims())).await, 200);
    let before = doors.issuer.requests("/jwks");
    (doors, before)
}

#[tokio::test]
async fn forged_signatures_cost_the_issuer_one_look() {
    let (doors, before) = cooling_for_long().await;
    let stranger = SigningKey::p256("p256");
    let heads = [
        json!({"alg": "ES256", "kid": "p256"}),
        json!({"alg": "ES256"}),
    ];
    let forged = |n: usize| {
        let claims = doors.changed("jti", json!(n.to_string()));
        stranger.sign_with(&heads[n % 2], &claims)
    };
    let tokens: Vec<String> = (0..50).map(forged).collect();
    let asked = tokens.iter().map(|token| doors.status(token));
    let statuses = futures::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let asked = doors.issuer.requests("/jwks") - before;
    assert_eq!(asked, 1, "looks for 50 forged tokens");
}

#[tokio::test]
async fn made_up_keys_cost_the_issuer_nothing() {
    let (doors, before) = cooling_for_long().await;
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
    let (new, stranger) = (SigningKey::p256("new"), SigningKey::p256("p256"));
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
        // What is wrong without asking stays wrong, and what the key that it names did not sign.
        for head in [
            json!({"alg": "ES256", "kid": "p256"}),
            json!({"alg": "ES256"}),
        ] {
            let forged = stranger.sign_with(&head, &doors.claims());
            assert_eq!(doors.status(&forged).await, 401, "{manner:?} {head}");
        }
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

/// Whoever answers for an issuer cannot send us on: neither its metadata nor its keys are looked for elsewhere,
/// for elsewhere may be anywhere that we reach and callers do not.
#[tokio::test]
async fn keys_are_asked_of_their_issuer_and_of_nobody_else() {
    let doors = Doors::new().await;
    let new = SigningKey::p256("new");
    let elsewhere = Issuer::start(&[&new]).await.unwrap();
    let cases = [
        "/jwks",
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
    ];
    let requests = |issuer: &Issuer| -> usize {
        let paths = cases.iter();
        paths.map(|path| issuer.requests(path)).sum()
    };
    for path in &cases[..2] {
        let target = format!("{}{path}", elsewhere.url);
        doors.issuer.behave(Manner::Redirect(target));
        let before = requests(&doors.issuer);
        // It is asked, and what it says is not done.
        let asked = async || {
            assert_eq!(doors.status(&new.sign(&doors.claims())).await, 503);
            (requests(&doors.issuer) > before).then_some(())
        };
        harness::wait::until("a look for keys", SOON, asked)
            .await
            .unwrap();
        assert_eq!(doors.status(&new.sign(&doors.claims())).await, 503);
        assert_eq!(requests(&elsewhere), 0, "{path}");
    }
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

/// Some servers answer 200 to whatever they are asked for, and some have several metadata.
#[tokio::test]
async fn one_place_without_good_metadata_hides_no_other() {
    const FIRST: &str = "/.well-known/oauth-authorization-server";
    let key = SigningKey::p256("k");
    for page in [
        "<!doctype html><div id=app></div>".to_owned(),
        "{}".to_owned(),
        json!({"issuer": "https://evil.example.com", "jwks_uri": "http://127.0.0.1:1/"})
            .to_string(),
        r#"{"issuer": "US"}"#.to_owned(),
        r#"{"issuer": "US", "jwks_uri": "http://id.example.com/jwks"}"#.to_owned(),
    ] {
        let issuer = Issuer::start(&[&key]).await.unwrap();
        issuer.say(FIRST, &page.replace("US", &issuer.url));
        let auth = settings(&issuer);
        let looks = gateway::auth::doctor::look(&auth).await;
        assert_eq!(looks[0].seen, Ok("1 keys".to_owned()), "{page}");
        // Where none is good, all that is wrong is told.
        issuer.say("/.well-known/openid-configuration", "<html>");
        let looks = gateway::auth::doctor::look(&auth).await;
        let problem = looks[0].seen.clone().unwrap_err();
        for place in [FIRST, "/.well-known/openid-configuration is no metadata"] {
            assert!(problem.contains(place), "{page}: {problem}");
        }
    }
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
