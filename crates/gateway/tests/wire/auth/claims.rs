//! What a token must be to let somebody in: a table.

use harness::client::Client;
use harness::tokens::{SigningKey, now};
use serde_json::{Value, json};

use super::{Doors, US, challenge, discover};

/// A value so deep.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
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
    // The good claim first, and then one that says something else.
    let twice = |second: &str| {
        let mut all = good.clone();
        all["scope"] = json!("a");
        all["org"] = json!("a");
        let all = all.to_string();
        let claims = format!("{}, {second}}}", &all[..all.len() - 1]);
        ec.sign_text("ES256", r#"{"alg": "ES256", "kid": "p256"}"#, &claims)
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
        ("typ in capitals", true, header("typ", json!("AT+JWT"))),
        // Keycloak's, of before 24.
        (
            "typ Bearer among the claims",
            true,
            claim("typ", json!("Bearer")),
        ),
        ("a nonce", true, claim("nonce", json!("n"))),
        (
            "Cognito's access token",
            true,
            claim("token_use", json!("access")),
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
            claim("exp", json!(now() - 1)),
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
        (
            "audience with its host in capitals",
            true,
            claim("aud", json!("HTTPS://MCP.Example.com/mcp")),
        ),
        ("a tenant", true, claim("org", json!("acme"))),
        (
            "a subject of 511 bytes",
            true,
            claim("sub", json!("s".repeat(511))),
        ),
        (
            "a subject of 512 bytes",
            true,
            claim("sub", json!("s".repeat(512))),
        ),
        (
            "a tenant of 512 bytes",
            true,
            claim("org", json!("t".repeat(512))),
        ),
        // From here on: 401.
        (
            "a subject of 513 bytes",
            false,
            claim("sub", json!("s".repeat(513))),
        ),
        (
            "a tenant of 513 bytes",
            false,
            claim("org", json!("t".repeat(513))),
        ),
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
        (
            "typ of an event",
            false,
            header("typ", json!("secevent+jwt")),
        ),
        (
            "typ of a request",
            false,
            header("typ", json!("oauth-authz-req+jwt")),
        ),
        (
            "typ of an introspection",
            false,
            header("typ", json!("token-introspection+jwt")),
        ),
        (
            "typ of a credential",
            false,
            header("typ", json!("dc+sd-jwt")),
        ),
        (
            "typ of a client",
            false,
            header("typ", json!("client-authentication+jwt")),
        ),
        ("an empty typ", false, header("typ", json!(""))),
        ("typ is a number", false, header("typ", json!(7))),
        // ID tokens, refresh tokens and the like, by the same key, for the same audience.
        (
            "an ID token, by the access token's hash",
            false,
            claim("at_hash", json!("x")),
        ),
        (
            "an ID token, by the code's hash",
            false,
            claim("c_hash", json!("x")),
        ),
        ("an ID token of Keycloak", false, claim("typ", json!("ID"))),
        (
            "an ID token of Cognito",
            false,
            claim("token_use", json!("id")),
        ),
        (
            "an ID token of Ory",
            false,
            claim("token_use", json!("id_token")),
        ),
        (
            "a refresh token of Ory",
            false,
            claim("token_use", json!("refresh_token")),
        ),
        ("a refresh token", false, claim("typ", json!("Refresh"))),
        ("an offline token", false, claim("typ", json!("Offline"))),
        (
            "a logout without its typ",
            false,
            claim(
                "events",
                json!({"http://schemas.openid.net/event/backchannel-logout": {}}),
            ),
        ),
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
        (
            "audience with its path in capitals",
            false,
            claim("aud", json!("https://mcp.example.com/MCP")),
        ),
        (
            "audience with its port",
            false,
            claim("aud", json!("https://mcp.example.com:443/mcp")),
        ),
        (
            "audience over an open way",
            false,
            claim("aud", json!("http://mcp.example.com/mcp")),
        ),
        (
            "audience in a list in a list",
            false,
            claim("aud", json!([[US]])),
        ),
        (
            "audience among numbers",
            false,
            claim("aud", json!([1, US])),
        ),
        ("audience twice", false, twice("\"aud\": \"x\"")),
        ("subject twice", false, twice("\"sub\": \"mallory\"")),
        ("issuer twice", false, twice("\"iss\": \"https://x\"")),
        ("expiry twice", false, twice("\"exp\": 1")),
        ("scope twice", false, twice("\"scope\": \"b\"")),
        ("tenant twice", false, twice("\"org\": \"b\"")),
        (
            "alg twice",
            false,
            ec.sign_text(
                "ES256",
                r#"{"alg": "none", "kid": "p256", "alg": "ES256"}"#,
                &good.to_string(),
            ),
        ),
        (
            "claims that end in something else",
            false,
            ec.sign_text(
                "ES256",
                r#"{"alg": "ES256", "kid": "p256"}"#,
                &format!("{good}}}"),
            ),
        ),
        (
            "claims nested beyond measure",
            false,
            claim("x", nested(1_500)),
        ),
        (
            "of nine thousand bytes",
            false,
            claim("x", json!("x".repeat(9_000))),
        ),
        ("no audience", false, ec.sign(&doors.without("aud"))),
        ("an empty audience", false, claim("aud", json!([]))),
        ("audience is a number", false, claim("aud", json!(1))),
        ("expired", false, claim("exp", json!(now() - 40))),
        ("expired long ago", false, claim("exp", json!(0))),
        ("never expires", false, ec.sign(&doors.without("exp"))),
        ("exp is text", false, claim("exp", json!("4000000000"))),
        ("not valid yet", false, claim("nbf", json!(now() + 3600))),
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
    let let_in = cases.iter().filter(|(_, is_good, _)| *is_good).count();
    println!(
        "{} tokens: {let_in} good, {} not",
        cases.len(),
        cases.len() - let_in
    );
    assert!(cases.len() >= 100, "{}", cases.len());
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

/// Of an issuer that says what its tokens are (RFC 9068 §4), and of one that does not.
#[tokio::test]
async fn where_access_tokens_say_so_no_other_jwt_is_one() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].at_jwt_only = true;
        auth
    })
    .await;
    for (typ, status) in [
        (json!("at+jwt"), 200),
        (json!("application/AT+JWT"), 200),
        (json!("JWT"), 401),
        (json!("id+jwt"), 401),
        (json!(null), 401),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "p256"});
        if !typ.is_null() {
            header["typ"] = typ.clone();
        }
        let token = doors.p256.sign_with(&header, &doors.claims());
        assert_eq!(doors.status(&token).await, status, "{typ}");
    }
}

/// Dex's access tokens have the claim that tells ID tokens elsewhere.
#[tokio::test]
async fn where_access_tokens_have_at_hash_it_refuses_none() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].access_tokens_have_at_hash = true;
        auth
    })
    .await;
    for (name, status) in [("at_hash", 200), ("c_hash", 401), ("s_hash", 401)] {
        let token = doors.p256.sign(&doors.changed(name, json!("x")));
        assert_eq!(doors.status(&token).await, status, "{name}");
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
