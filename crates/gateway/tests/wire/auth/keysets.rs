//! What issuers publish as their keys, and which of it is believed for what.

use std::time::Duration;

use harness::tokens::{Issuer, SigningKey};
use serde_json::{Value, json};

use super::{Doors, US, discover, nameless, settings};
use crate::support::{SECOND, World, config};

/// The key as published, but for this.
fn but(key: &SigningKey, name: &str, value: Value) -> Value {
    let mut jwk = key.jwk();
    jwk[name] = value;
    jwk
}

#[tokio::test]
async fn a_published_key_is_believed_for_what_it_is_for() {
    let keys = ["plain", "private", "enc", "wrap", "other-alg", "no-use"].map(SigningKey::p256);
    let [plain, private, enc, wrap, other_alg, no_use] = &keys;
    let (rsa, pss) = (SigningKey::rsa("rsa", 0), SigningKey::rsa("pss", 1));
    let issuer = Issuer::start(&[]).await.unwrap();
    let mut bare = no_use.jwk();
    bare.as_object_mut().unwrap().remove("use");
    issuer.publish_jwks(vec![
        // Secrets are no public keys, whoever publishes them.
        json!({"kty": "oct", "kid": "secret", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "alg": "HS256"}),
        json!("no key"),
        json!({"kty": "EC", "crv": "P-256", "kid": "off-the-curve", "x": plain.jwk()["x"], "y": plain.jwk()["x"]}),
        json!({"kty": "RSA", "kid": "weak", "n": "wJx5", "e": "AQAB"}),
        plain.jwk(),
        but(private, "d", json!("AAAA")),
        but(enc, "use", json!("enc")),
        but(wrap, "key_ops", json!(["wrapKey"])),
        but(other_alg, "alg", json!("ES384")),
        bare,
        but(&rsa, "alg", json!("RS256")),
        but(&pss, "alg", json!("PS256")),
    ]);
    let mut auth = settings(&issuer);
    auth.keys_cooldown = 3600 * SECOND;
    let world = World::guarded(config(), auth).await;
    let claims = issuer.claims("alice", US);
    let head = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    for (what, is_good, token) in [
        ("the plain one", true, plain.sign(&claims)),
        ("without a use", true, no_use.sign(&claims)),
        ("RS256 by its key", true, rsa.sign(&claims)),
        (
            "PS256 by its key",
            true,
            pss.sign_with(&head("PS256", "pss"), &claims),
        ),
        (
            "RS256 by the key for PS256",
            false,
            pss.sign_with(&head("RS256", "pss"), &claims),
        ),
        (
            "PS256 by the key for RS256",
            false,
            rsa.sign_with(&head("PS256", "rsa"), &claims),
        ),
        ("a private key", false, private.sign(&claims)),
        ("for encryption", false, enc.sign(&claims)),
        ("for wrapping keys", false, wrap.sign(&claims)),
        ("for another algorithm", false, other_alg.sign(&claims)),
        (
            "the secret's name",
            false,
            plain.sign_with(&head("ES256", "secret"), &claims),
        ),
        (
            "the secret itself",
            false,
            plain.sign_with(&head("HS256", "secret"), &claims),
        ),
        (
            "off the curve",
            false,
            plain.sign_with(&head("ES256", "off-the-curve"), &claims),
        ),
        (
            "too weak",
            false,
            rsa.sign_with(&head("RS256", "weak"), &claims),
        ),
    ] {
        let status = discover(&world.client(&token)).await.status;
        assert_eq!(status, if is_good { 200 } else { 401 }, "{what}");
    }
}

/// A name is a hint (RFC 7515 §4.1.4), and a key need not have one (RFC 7517 §4.5).
#[tokio::test]
async fn a_name_chooses_among_keys_that_have_one() {
    let [named, first, second] = ["named", "first", "second"].map(SigningKey::p256);
    let issuer = Issuer::start(&[]).await.unwrap();
    issuer.publish_jwks(vec![named.jwk(), nameless(&first), nameless(&second)]);
    let mut auth = settings(&issuer);
    auth.keys_cooldown = 3600 * SECOND;
    let world = World::guarded(config(), auth).await;
    let claims = issuer.claims("alice", US);
    let head = |kid: &str| json!({"alg": "ES256", "kid": kid});
    let bare = json!({"alg": "ES256"});
    for (what, is_good, token) in [
        (
            "of no name, by the first",
            true,
            first.sign_with(&bare, &claims),
        ),
        (
            "of no name, by the last",
            true,
            second.sign_with(&bare, &claims),
        ),
        (
            "of no name, by the one that has one",
            true,
            named.sign_with(&bare, &claims),
        ),
        ("of a name that no key has", true, second.sign(&claims)),
        (
            "of another key's name",
            false,
            second.sign_with(&head("named"), &claims),
        ),
        (
            "of no key's name, by one that has another",
            false,
            named.sign_with(&head("x"), &claims),
        ),
    ] {
        let status = discover(&world.client(&token)).await.status;
        assert_eq!(status, if is_good { 200 } else { 401 }, "{what}");
    }
}

#[tokio::test]
async fn keys_of_one_name_at_two_issuers_are_two_keys() {
    let (ours, theirs) = (SigningKey::p256("k"), SigningKey::p256("k"));
    let first = Issuer::start(&[&ours]).await.unwrap();
    let second = Issuer::start(&[&theirs]).await.unwrap();
    let mut auth = settings(&first);
    auth.issuers.extend(settings(&second).issuers);
    let world = World::guarded(config(), auth).await;
    let status = async |key: &SigningKey, claims: Value| {
        discover(&world.client(&key.sign(&claims))).await.status
    };
    assert_eq!(status(&ours, first.claims("alice", US)).await, 200);
    assert_eq!(status(&theirs, second.claims("alice", US)).await, 200);
    // Each signs for itself alone, also right after the other's token was remembered.
    assert_eq!(status(&ours, second.claims("alice", US)).await, 401);
    assert_eq!(status(&theirs, first.claims("alice", US)).await, 401);
}

#[tokio::test]
async fn a_set_that_is_none_is_an_issuer_that_is_away() {
    let key = SigningKey::p256("k");
    for set in [
        json!([]),
        json!([{"kty": "oct", "kid": "k", "k": "AAAA"}]),
        json!([{"kid": "k"}]),
    ] {
        let issuer = Issuer::start(&[]).await.unwrap();
        issuer.publish_jwks(set.as_array().unwrap().clone());
        let mut auth = settings(&issuer);
        auth.keys_cooldown = Duration::from_millis(50);
        let world = World::guarded(config(), auth).await;
        let token = key.sign(&issuer.claims("alice", US));
        let answer = discover(&world.client(&token)).await;
        assert_eq!(answer.status, 503, "{set}");
    }
}

#[tokio::test]
async fn all_who_miss_a_key_wait_for_one_look() {
    let doors = Doors::with(|mut auth| {
        auth.keys_cooldown = Duration::from_millis(1);
        auth.issuer_timeout = 10 * SECOND;
        auth
    })
    .await;
    assert_eq!(doors.status(&doors.rsa.sign(&doors.claims())).await, 200);
    let new = SigningKey::p256("new");
    doors.issuer.publish(&[&doors.rsa, &new]);
    let before = doors.issuer.requests("/jwks");
    let slow = Duration::from_millis(300);
    doors.issuer.behave(harness::tokens::Manner::Slow(slow));
    let tokens: Vec<String> = (0..20)
        .map(|n| new.sign(&doors.changed("jti", json!(n.to_string()))))
        .collect();
    let asked = tokens.iter().map(|token| doors.status(token));
    let statuses = futures::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    // A caller who came too late for the look that was under way may have begun a second one.
    let looks = doors.issuer.requests("/jwks") - before;
    assert!((1..=2).contains(&looks), "{looks} looks for 20 callers");
}
