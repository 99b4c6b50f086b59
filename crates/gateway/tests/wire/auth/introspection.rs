//! Tokens that their issuer is asked about.

use std::time::Duration;

use harness::tokens::{Issuer, Manner, now};
use serde_json::{Value, json};

use super::{Doors, US};
use crate::support::{SECOND, SOON};

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
        ("refresh", with("token_type", json!("refresh_token"))),
        ("refresh-of-ory", with("token_use", json!("refresh_token"))),
        ("bound", with("cnf", json!({"x5t#S256": "x"}))),
    ];
    for (token, said) in &cases {
        doors.issuer.know(token, said.clone());
        assert_eq!(doors.status(token).await, 401, "{token}");
    }
    // Duende's: what it is, not how it is used. Ory says both.
    doors
        .issuer
        .know("duende", with("token_type", json!("access_token")));
    assert_eq!(doors.status("duende").await, 200);
    doors
        .issuer
        .know("ory", with("token_use", json!("access_token")));
    assert_eq!(doors.status("ory").await, 200);
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
async fn an_answer_is_believed_no_longer_than_the_token_lives() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].introspection_cache = 3600 * SECOND;
        auth.leeway = Duration::ZERO;
        auth
    })
    .await;
    let said = json!({"active": true, "sub": "alice", "aud": US, "exp": now() + 3});
    doors.issuer.know("short", said);
    assert_eq!(doors.status("short").await, 200);
    let asked = doors.issuer.requests("/introspect");
    assert_eq!(doors.status("short").await, 200);
    assert_eq!(doors.issuer.requests("/introspect"), asked, "remembered");
    // The issuer still calls it active: its clock is its own affair.
    let over = async || (doors.status("short").await == 401).then_some(());
    harness::wait::until("the token has expired", SOON, over)
        .await
        .unwrap();
}

/// Made-up tokens of one stranger wait for their issuer, and whoever needs it not has places left.
#[tokio::test]
async fn who_waits_for_an_issuer_leaves_places_to_others() {
    let mut gateway = crate::support::config();
    gateway.limits.requests_max = 300;
    gateway.limits.refused_tokens_of_address_burst = 10_000;
    let doors = Doors::of(gateway, |auth| auth).await;
    let good = doors.p256.sign(&doors.claims());
    doors.issuer.behave(Manner::Slow(60 * SECOND));
    let tokens: Vec<String> = (0..400).map(|n| format!("made-up-{n}")).collect();
    let strangers = futures::future::join_all(tokens.iter().map(|token| doors.status(token)));
    let others = async {
        // Once the crowd is there.
        let refused = async || (doors.world.metric(CROWDED) >= 100.0).then_some(());
        harness::wait::until("some were told to come again", SOON, refused)
            .await
            .unwrap();
        doors.status(&good).await
    };
    let (told, status) = futures::future::join(strangers, others).await;
    assert_eq!(status, 200);
    assert!(told.iter().all(|status| *status == 503), "{told:?}");
}

/// What came of so many made-up tokens at one time, and how often their issuer was asked.
async fn wave(doors: &Doors, of: &str) -> (usize, usize, usize) {
    let asked = doors.issuer.requests("/introspect");
    let tokens: Vec<String> = (0..60).map(|n| format!("{of}-{n}")).collect();
    let told = futures::future::join_all(tokens.iter().map(|token| doors.status(token))).await;
    let limited = told.iter().filter(|status| **status == 429).count();
    let asked = doors.issuer.requests("/introspect") - asked;
    (limited, told.len() - limited, asked)
}

/// They count before it is known what they are worth, and also where that cannot be told: else whoever makes an issuer
/// answer no more could go on.
#[tokio::test]
async fn a_wave_of_made_up_tokens_asks_as_often_as_one_after_the_other() {
    for throttles in [false, true] {
        let mut gateway = crate::support::config();
        gateway.limits.refused_tokens_of_address_per_second = 1;
        gateway.limits.refused_tokens_of_address_burst = 5;
        let doors = Doors::of(gateway, |auth| auth).await;
        if throttles {
            doors.issuer.behave(Manner::Status(429));
        }
        let (limited, looked_at, asked) = wave(&doors, "first").await;
        // A second or two may have passed.
        assert!((5..=8).contains(&looked_at), "{throttles}: {looked_at}");
        assert_eq!(limited + looked_at, 60);
        assert_eq!(asked, looked_at);
        let (_, looked_at, _) = wave(&doors, "second").await;
        assert!(looked_at <= 3, "{throttles}: {looked_at}");
    }
}

/// Whoever does not wait for the answer has asked all the same.
#[tokio::test]
async fn who_hangs_up_is_counted() {
    use tokio::io::AsyncWriteExt as _;
    let mut gateway = crate::support::config();
    gateway.limits.refused_tokens_of_address_per_second = 1;
    gateway.limits.refused_tokens_of_address_burst = 5;
    let doors = Doors::of(gateway, |auth| auth).await;
    doors.issuer.behave(Manner::Slow(60 * SECOND));
    for n in 0..5 {
        let asked = doors.issuer.requests("/introspect");
        let mut stream = tokio::net::TcpStream::connect(doors.world.address)
            .await
            .unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer gone-{n}\r\n\
             Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let looked_at = async || (doors.issuer.requests("/introspect") > asked).then_some(());
        harness::wait::until("its issuer is asked", SOON, looked_at)
            .await
            .unwrap();
        drop(stream);
    }
    doors.issuer.behave(Manner::Up);
    let limited = async || (doors.status("another").await == 429).then_some(());
    harness::wait::until("there were too many", SOON, limited)
        .await
        .unwrap();
}

/// From behind one address, after a restart: none is refused for coming with others.
#[tokio::test]
async fn a_wave_of_good_tokens_is_let_in() {
    let mut gateway = crate::support::config();
    gateway.limits.refused_tokens_of_address_per_second = 1;
    gateway.limits.refused_tokens_of_address_burst = 5;
    let doors = Doors::of(gateway, |auth| auth).await;
    let tokens: Vec<String> = (0..100).map(|n| format!("good-{n}")).collect();
    for token in &tokens {
        let said = json!({"active": true, "sub": token, "aud": US});
        doors.issuer.know(token, said);
    }
    let told = futures::future::join_all(tokens.iter().map(|token| doors.status(token))).await;
    assert!(told.iter().all(|status| *status == 200), "{told:?}");
}

const CROWDED: &str =
    "mcp_tasks_gateway_issuer_requests_total{kind=\"introspection\",outcome=\"crowded\"}";

/// A JWT says itself when it ends, whether or not its issuer does when it is asked.
#[tokio::test]
async fn an_answer_about_a_jwt_is_believed_no_longer_than_it_says() {
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].introspect_jwts = true;
        auth.issuers[0].introspection_cache = 3600 * SECOND;
        auth.leeway = Duration::ZERO;
        auth
    })
    .await;
    let token = doors.p256.sign(&doors.changed("exp", json!(now() + 3)));
    let said = json!({"active": true, "sub": "alice", "aud": US});
    doors.issuer.know(&token, said);
    assert_eq!(doors.status(&token).await, 200);
    let over = async || (doors.status(&token).await == 401).then_some(());
    harness::wait::until("the token has expired", SOON, over)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_looks_like_a_jwt_is_judged_as_one() {
    let doors = Doors::new().await;
    let active = json!({"active": true, "sub": "alice", "aud": US});
    for token in [
        "eyJhbGciOiJub25lIn0.e30.",
        "eyJhbGciOiJIUzI1NiJ9.e30.c2ln",
        "eyJ.eyJ.x",
        "ey.a.b.c.d",
    ] {
        // Also where the issuer would take its own word for it.
        doors.issuer.know(token, active.clone());
        assert_eq!(doors.status(token).await, 401, "{token}");
    }
    assert_eq!(doors.issuer.requests("/introspect"), 0);
    // With one dot it is no JWT, whatever it begins with.
    doors.issuer.know("eyJ.opaque", active);
    assert_eq!(doors.status("eyJ.opaque").await, 200);
}

#[tokio::test]
async fn tokens_go_to_their_issuer_and_nowhere_else() {
    let elsewhere = Issuer::start(&[]).await.unwrap();
    let target = format!("{}/introspect", elsewhere.url);
    let doors = Doors::new().await;
    for manner in [
        Manner::Redirect(target),
        Manner::Slow(60 * SECOND),
        Manner::Status(401),
        Manner::Garbage("x".repeat(600 * 1024)),
    ] {
        doors.issuer.behave(manner.clone());
        let token = format!("opaque-{}", format!("{manner:?}").len());
        doors
            .issuer
            .know(&token, json!({"active": true, "sub": "alice", "aud": US}));
        assert_eq!(doors.status(&token).await, 503, "{manner:?}");
    }
    assert_eq!(
        elsewhere.requests("/introspect"),
        0,
        "with our secret in it"
    );
}

/// Each would take any token for its own, and only one is asked; whoever else is shown it could use it
/// here, or call it dead.
#[tokio::test]
async fn of_several_issuers_one_is_shown_an_opaque_token() {
    let other = Issuer::start(&[]).await.unwrap();
    let doors = Doors::with(|mut auth| {
        auth.issuers[0].introspection_token_prefixes = Some(vec!["a_".to_owned()]);
        let mut second = auth.issuers[0].clone();
        second.issuer.clone_from(&other.url);
        second.introspection_url = format!("{}/introspect", other.url);
        second.introspection_token_prefixes = Some(vec!["b_".to_owned(), "bb".to_owned()]);
        auth.issuers.insert(0, second);
        auth
    })
    .await;
    let asked = || {
        (
            doors.issuer.requests("/introspect"),
            other.requests("/introspect"),
        )
    };
    let active = json!({"active": true, "sub": "alice", "aud": US});
    for token in ["a_1", "b_1", "bb1", "c_1", "A_1"] {
        doors.issuer.know(token, active.clone());
        other.know(token, active.clone());
    }
    for (token, status, (first, second)) in [
        ("a_1", 200, (1, 0)),
        ("b_1", 200, (1, 1)),
        ("bb1", 200, (1, 2)),
        // Of neither: nobody is asked.
        ("c_1", 401, (1, 2)),
        ("A_1", 401, (1, 2)),
        // Not known to its own: the other one is not asked what it thinks.
        ("a_unknown", 401, (2, 2)),
        ("b_unknown", 401, (2, 3)),
    ] {
        assert_eq!(doors.status(token).await, status, "{token}");
        assert_eq!(asked(), (first, second), "{token}");
    }
    // Away: the other one is no substitute, and hinders nobody.
    other.know("a_2", active.clone());
    doors.issuer.know("b_2", active.clone());
    other.know("b_3", active);
    doors.issuer.behave(Manner::Down);
    assert_eq!(doors.status("a_2").await, 503);
    assert_eq!(asked().1, 3);
    assert_eq!(doors.status("b_3").await, 200);
    other.behave(Manner::Down);
    let before = asked().0;
    assert_eq!(doors.status("b_2").await, 503);
    assert_eq!(asked().0, before);
}
