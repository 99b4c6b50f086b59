//! How a token may come, and what exactly is said to whoever sends none, a wrong one, or a good one
//! that allows too little (RFC 6750 §3, RFC 9728 §5.1, MCP 2026-07-28 §Error Handling).

use gateway::auth::Scopes;
use harness::client::Client;
use serde_json::json;

use super::{Doors, US, challenge};
use crate::support::{SECOND, config};

const PLACE: &str =
    "resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/mcp\"";

async fn doors() -> Doors {
    let one = |scope: &str| vec![scope.to_owned()];
    Doors::with(|mut auth| {
        auth.scopes = Scopes {
            call: one("tools:call"),
            read: one("tasks:read"),
            cancel: one("tasks:cancel"),
            delegate: one("tasks:approve"),
            ..Scopes::default()
        };
        let implied = vec!["tasks:read".to_owned(), "tasks:cancel".to_owned()];
        auth.implied_scopes = [("tasks:admin".to_owned(), implied)].into();
        auth
    })
    .await
}

/// At an address that has shown too many wrong tokens, good ones are looked up and not checked.
#[tokio::test]
async fn what_scopes_imply_holds_at_a_limited_address() {
    use sha2::{Digest as _, Sha256};
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    let hash = Sha256::digest("mtk_machine");
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!(
        "[[key]]\nsha256 = \"{hash}\"\nsubject = \"machine\"\nscopes = [\"tasks:admin\"]\n"
    );
    std::fs::write(&file, entry).unwrap();
    let mut gateway = config();
    gateway.limits.refused_tokens_of_address_per_second = 1;
    gateway.limits.refused_tokens_of_address_burst = 3;
    let doors = Doors::of(gateway, |mut auth| {
        let lists = vec!["tools:list".to_owned()];
        auth.scopes.list.clone_from(&lists);
        auth.implied_scopes = [("tasks:admin".to_owned(), lists)].into();
        auth.api_keys_file = Some(file);
        auth.issuers[0].introspection_cache = 3600 * SECOND;
        auth
    })
    .await;
    let jwt = doors
        .p256
        .sign(&doors.changed("scope", json!("tasks:admin")));
    let said = json!({"active": true, "sub": "alice", "aud": US, "scope": "tasks:admin"});
    doors.issuer.know("opaque", said);
    let list = async |token: &str| {
        let client = doors.world.client(token);
        let request = client.request("tools/list", json!({}));
        request.send().await.unwrap().status
    };
    let good = [jwt.as_str(), "opaque", "mtk_machine"];
    for token in good {
        assert_eq!(list(token).await, 200, "{token}");
    }
    for token in good {
        let mut limited = 0;
        for _ in 0..500 {
            if list("mtk_wrong").await != 429 {
                limited = 0;
                continue;
            }
            // Between two refusals for the address it was limited, too.
            limited += 1;
            if limited == 2 {
                break;
            }
            assert_eq!(list(token).await, 200, "{token}");
        }
        assert_eq!(limited, 2, "the address is never limited");
    }
}

#[tokio::test]
async fn credentials_come_in_one_header() {
    let doors = doors().await;
    let good = doors.p256.sign(&doors.claims());
    let nobody = Client::new(&doors.world.url);
    let none = format!("Bearer {PLACE}, scope=\"tasks:cancel tasks:read tools:call\"");
    let with = |error: &str, told: &str| {
        format!(
            "Bearer {PLACE}, error=\"{error}\", error_description=\"{told}\", \
             scope=\"tasks:cancel tasks:read tools:call\""
        )
    };
    let invalid = with("invalid_token", "the bearer token is malformed");
    let long = "the bearer token is longer than this server takes";
    let long = with("invalid_token", long);
    for (value, status, told) in [
        (format!("Bearer {good}"), 200, ""),
        (format!("bearer {good}"), 200, ""),
        (format!("BEARER   {good}  "), 200, ""),
        // Another scheme is no mistake with a token: nobody said yet that one is needed.
        ("Basic YTpi".to_owned(), 401, none.as_str()),
        (format!("DPoP {good}"), 401, &none),
        (format!("Bearer\t{good}"), 401, &none),
        (good.clone(), 401, &none),
        (String::new(), 401, &none),
        ("Bearer".to_owned(), 401, &invalid),
        (format!("Bearer {good}, Bearer {good}"), 401, &invalid),
        (format!("Bearer \"{good}\""), 401, &invalid),
        (format!("Bearer {good}%00"), 401, &invalid),
        (format!("Bearer {}", "x".repeat(8_193)), 401, &long),
    ] {
        let request = nobody.request("server/discover", json!({}));
        let answer = request.header("authorization", &value).send().await;
        let answer = answer.unwrap();
        let shown = &value[..value.len().min(20)];
        assert_eq!(answer.status, status, "{shown}: {}", answer.message);
        assert_eq!(challenge(&answer), told, "{shown}");
    }
    let request = nobody.request("server/discover", json!({}));
    let answer = request.send().await.unwrap();
    assert_eq!((answer.status, challenge(&answer)), (401, none.as_str()));
}

#[tokio::test]
async fn two_headers_and_urls_are_bad_requests() {
    let doors = doors().await;
    let good = doors.p256.sign(&doors.claims());
    let bearer = format!("Bearer {good}");
    let alice = doors.world.client(&good);
    let refused = |answer: &harness::client::Answer, told: &str| {
        assert_eq!((answer.status, answer.error_code()), (400, Some(400)));
        let expected =
            format!("Bearer {PLACE}, error=\"invalid_request\", error_description=\"{told}\"");
        assert_eq!(challenge(answer), expected);
    };
    // Twice the same is twice, too: a proxy before us may have judged another one than we would.
    let twice = alice
        .request("server/discover", json!({}))
        .header_beside("authorization", &bearer);
    let answer = twice.send().await.unwrap();
    refused(&answer, "the Authorization header occurs twice");
    // With a header beside it or alone, a good token in the URL opens nothing.
    for query in [
        format!("access_token={good}"),
        format!("a=b&access_token={good}"),
        "access_token".to_owned(),
    ] {
        let url = format!("{}?{query}", doors.world.url);
        for client in [Client::new(&url), Client::new(&url).bearer(&good)] {
            let answer = client.request("server/discover", json!({})).send().await;
            refused(&answer.unwrap(), "an access token must not be in the URL");
        }
    }
    let url = format!("{}?token=x&no_access_token=y", doors.world.url);
    let client = Client::new(&url).bearer(&good);
    let answer = client.request("server/discover", json!({})).send().await;
    assert_eq!(answer.unwrap().status, 200, "other parameters are ignored");
    // As a form's field it is not even read: only JSON is.
    let nobody = Client::new(&doors.world.url);
    let form = nobody
        .request("server/discover", json!({}))
        .header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(form.send().await.unwrap().status, 401);
}

#[tokio::test]
async fn who_may_too_little_is_told_all_that_it_takes() {
    let doors = doors().await;
    let with = |scope: &str| {
        let claims = doors.changed("scope", json!(scope));
        doors.world.client(&doors.p256.sign(&claims))
    };
    let unknown = json!({"taskId": protocol::TaskId::new(0).to_string()});
    let reader = with("tasks:read");
    let cases = [
        ("tasks/cancel", unknown.clone(), "tasks:cancel"),
        (
            "tools/call",
            json!({"name": "task", "arguments": {}}),
            "tools:call",
        ),
    ];
    for (method, params, scope) in cases {
        let answer = reader.request(method, params).send().await.unwrap();
        assert_eq!(answer.status, 403, "{method}");
        let expected = format!(
            "Bearer {PLACE}, error=\"insufficient_scope\", \
             error_description=\"the access token lacks a scope\", scope=\"{scope}\""
        );
        assert_eq!(challenge(&answer), expected, "{method}");
    }
    // What the tool asks for comes along at once.
    let caller = with("tools:call");
    let scoped = json!({"name": "scoped", "arguments": {}});
    let answer = caller.request("tools/call", scoped).send().await.unwrap();
    let told = challenge(&answer);
    assert!(
        told.ends_with("scope=\"tools:call reports:write\""),
        "{told}"
    );
    // A broad scope is worth the narrower ones that it implies, and nothing beyond.
    let admin = with("tasks:admin");
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = admin.request(method, unknown.clone()).send().await.unwrap();
        assert_eq!((answer.status, answer.error_code()), (200, Some(-32602)));
    }
    let call = json!({"name": "task", "arguments": {}});
    let answer = admin.request("tools/call", call).send().await.unwrap();
    assert_eq!(answer.status, 403);
}
