//! Our own access tokens for an upstream, and whose signature on its certificate counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tools::upstream::{OAuth, UpstreamConfig, Upstreams, Wanted};

use crate::server::{Reply, Seen, Server, legacy_script, tool};
use crate::world::{World, config};

/// Gives `t-1`, `t-2`… ; the server takes the one of this number only.
async fn server(accepted: Arc<AtomicUsize>, expires_in: Value) -> Server {
    let given = AtomicUsize::new(0);
    let script = legacy_script(json!([tool("t", json!({}))]), |seen: &Seen| {
        Reply::json(seen.result(json!({ "content": [] })))
    });
    Server::start(move |seen: &Seen| {
        if seen.path == "/token" {
            let count = given.fetch_add(1, Ordering::SeqCst) + 1;
            let token = json!({ "access_token": format!("t-{count}"), "token_type": "Bearer",
                "expires_in": expires_in });
            return Reply::json(token);
        }
        let wanted = format!("Bearer t-{}", accepted.load(Ordering::SeqCst));
        if seen.header("authorization") != wanted {
            return Reply::status(401);
        }
        script(seen)
    })
    .await
}

fn with_oauth(server: &Server, secret: &tempfile::NamedTempFile) -> UpstreamConfig {
    std::fs::write(secret.path(), "s:cret/1\n").unwrap();
    UpstreamConfig {
        oauth: Some(OAuth {
            token_url: server.url.replace("/mcp", "/token"),
            client_id: "our id".to_owned(),
            client_secret_file: secret.path().to_owned(),
            scope: Some("read write".to_owned()),
            resource: None,
        }),
        ..config(&server.url)
    }
}

#[tokio::test]
async fn a_token_is_asked_for_kept_and_replaced_when_it_is_not_taken() {
    let accepted = Arc::new(AtomicUsize::new(1));
    let server = server(Arc::clone(&accepted), json!(3600)).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    let world = World::start(vec![with_oauth(&server, &secret)]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    world.kit("up_t").run().await.result().unwrap();
    let asked = |server: &Server| {
        let seen = server.seen().into_iter();
        seen.filter(|seen| seen.path == "/token").count()
    };
    assert_eq!(asked(&server), 1);
    let seen = server.seen();
    let token = seen.iter().find(|seen| seen.path == "/token").unwrap();
    // `our%20id:s%3Acret%2F1`
    assert_eq!(
        token.header("authorization"),
        "Basic b3VyJTIwaWQ6cyUzQWNyZXQlMkYx"
    );
    assert_eq!(
        token.header("content-type"),
        "application/x-www-form-urlencoded"
    );
    // Revoked: the next call asks for another, and is not lost.
    accepted.store(2, Ordering::SeqCst);
    world.kit("up_t").run().await.result().unwrap();
    assert_eq!(asked(&server), 2);
    // One that is never taken is refused, after one more.
    accepted.store(9, Ordering::SeqCst);
    let run = world.kit("up_t").run().await;
    let why = run.error().unwrap().message;
    assert!(why.contains("401") && !why.contains("cret"), "{why}");
    assert_eq!(asked(&server), 3);
}

#[tokio::test]
async fn one_that_expires_is_renewed_before() {
    let accepted = Arc::new(AtomicUsize::new(1));
    // Over as soon as it is there.
    let server = server(Arc::clone(&accepted), json!(0)).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    let world = World::start(vec![with_oauth(&server, &secret)]);
    let asked = |seen: &[Seen]| seen.iter().filter(|seen| seen.path == "/token").count() > 1;
    server.until(asked).await;
    drop(world);
}

#[tokio::test]
async fn an_endpoint_that_gives_none_is_told() {
    for (status, body, why) in [
        (
            400,
            json!({ "error": "invalid_client", "error_description": "who?" }),
            "invalid_client, who?",
        ),
        (
            200,
            json!({ "access_token": "x", "token_type": "mac" }),
            "tokens of type \"mac\"",
        ),
        (
            200,
            json!({ "token_type": "bearer" }),
            "answered with no token",
        ),
        (503, json!({}), "answered 503"),
        (302, json!({}), "answered 302"),
    ] {
        let server = Server::start(move |_: &Seen| {
            Reply::Plain(
                status,
                vec![("location", "http://127.0.0.1:1/".to_owned())],
                body.to_string(),
            )
        })
        .await;
        let secret = tempfile::NamedTempFile::new().unwrap();
        let world = World::start(vec![with_oauth(&server, &secret)]);
        let is_told = |told: Option<&Result<(), String>>| {
            told.is_some_and(|told| told.as_ref().is_err_and(|told| told.contains(why)))
        };
        world.until(|_, told| is_told(told)).await;
        // The server itself was never asked without one.
        assert!(server.seen().iter().all(|seen| seen.path == "/token"));
    }
}

/// Neither our secret nor the request goes where the endpoint sends us.
#[tokio::test]
async fn a_token_endpoint_that_leads_elsewhere_is_not_followed() {
    let other = Server::start(|_: &Seen| Reply::status(500)).await;
    for status in [301, 302, 303, 307, 308] {
        let to = other.url.clone();
        let server = Server::start(move |_: &Seen| {
            Reply::Plain(status, vec![("location", to.clone())], String::new())
        })
        .await;
        let secret = tempfile::NamedTempFile::new().unwrap();
        let world = World::start(vec![with_oauth(&server, &secret)]);
        let why = format!("answered {status}");
        world
            .until(|_, told| matches!(told, Some(Err(told)) if told.contains(&why)))
            .await;
    }
    assert!(other.seen().is_empty());
}

/// A server that shows us our own credentials shows them to nobody else: neither in what is told of it, nor in
/// errors, nor in results.
#[tokio::test]
async fn what_servers_repeat_of_our_credentials_is_hidden() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    // Blanks at its end do not arrive, and are not what is repeated.
    std::fs::write(secret.path(), "hush/secret \t\n").unwrap();
    let bearer = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(bearer.path(), "hush-bearer").unwrap();
    let told_of = |seen: &Seen| {
        let (key, token) = (seen.header("x-key"), seen.header("authorization"));
        format!("{key} and {token}")
    };
    type Says = fn(&Seen, String) -> Reply;
    let repeats: [(Says, bool); 7] = [
        (|_, told| Reply::Plain(401, Vec::new(), told), true),
        (|_, told| Reply::Plain(500, Vec::new(), told), true),
        (
            |_, told| {
                Reply::Plain(
                    302,
                    vec![("location", format!("/{}", told.replace(' ', "_")))],
                    String::new(),
                )
            },
            true,
        ),
        (
            |_, told| {
                Reply::Plain(
                    200,
                    vec![("content-type", "application/json".to_owned())],
                    told,
                )
            },
            true,
        ),
        (
            |seen, told| {
                let id = &seen.body["id"];
                Reply::json(
                    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": told, "data": told } }),
                )
            },
            true,
        ),
        (
            |seen, told| {
                Reply::json(seen.result(json!({ "content": [{ "type": "text", "text": told }] })))
            },
            false,
        ),
        (
            |seen, told| {
                Reply::events([
                    seen.result(json!({ "content": [{ "type": "text", "text": told }] }))
                ])
            },
            false,
        ),
    ];
    for (place, (says, is_error)) in repeats.into_iter().enumerate() {
        let script = legacy_script(json!([tool("t", json!({}))]), move |seen: &Seen| {
            says(seen, told_of(seen))
        });
        let server = Server::start(script).await;
        let config = UpstreamConfig {
            secret_headers: [("X-Key".to_owned(), secret.path().to_owned())].into(),
            bearer_file: Some(bearer.path().to_owned()),
            ..config(&server.url)
        };
        let world = World::with(config).await;
        let run = world.kit("up_t").run().await;
        let said = format!("{:?} {:?}", run.result(), run.journal());
        assert_eq!(run.result().is_err(), is_error, "{place}: {said}");
        assert!(said.contains("***"), "{place}: {said}");
        assert!(!said.contains("hush"), "{place}: {said}");
        let seen = server.seen();
        assert!(
            seen.iter()
                .all(|seen| seen.header("x-key") == "hush/secret"),
            "it was shown each time"
        );
    }
    // Nothing is sent where a secret cannot be read.
    let server = Server::start(|_: &Seen| Reply::status(500)).await;
    let config = UpstreamConfig {
        secret_headers: [("X-Key".to_owned(), "/nowhere".into())].into(),
        ..config(&server.url)
    };
    let world = World::start(vec![config]);
    world
        .until(|_, told| matches!(told, Some(Err(told)) if told.contains("/nowhere")))
        .await;
    assert!(server.seen().is_empty());
}

/// Nor does what a token endpoint repeats of our secret become known.
#[tokio::test]
async fn what_a_token_endpoint_repeats_of_our_secret_is_hidden() {
    let server = Server::start(|seen: &Seen| {
        let shown = seen.header("authorization");
        let said = format!("who is {shown}, of s:cret/1 or s%3Acret%2F1?");
        let body = json!({ "error": "invalid_client", "error_description": said });
        Reply::Plain(400, Vec::new(), body.to_string())
    })
    .await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    let world = World::start(vec![with_oauth(&server, &secret)]);
    world
        .until(|_, told| {
            matches!(told, Some(Err(told)) if told.contains("who is Basic ***, of *** or ***?"))
        })
        .await;
}

#[test]
fn secrets_go_nowhere_else() {
    let upstreams = Upstreams::new();
    let mut bad = config("https://example.com/mcp");
    bad.oauth = Some(OAuth {
        token_url: "http://example.com/token".to_owned(),
        client_id: "x".to_owned(),
        client_secret_file: "x".into(),
        scope: None,
        resource: None,
    });
    let told = upstreams.set(vec![Wanted::plain(bad)]).unwrap_err();
    assert!(told.contains("oauth.token_url: "), "{told}");
    for (text, why) in [
        (None, "No such file"),
        (Some("none"), "holds no certificate"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => file.close().unwrap(),
        }
        let config = UpstreamConfig {
            ca_file: Some(path),
            ..config("https://127.0.0.1:1/mcp")
        };
        let told = upstreams.set(vec![Wanted::plain(config)]).unwrap_err();
        assert!(told.contains("ca_file: ") && told.contains(why), "{told}");
    }
}
