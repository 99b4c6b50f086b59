//! What a call becomes on the wire, and what an answer becomes for the caller.

use serde_json::{Value, json};

use crate::world::{Folder, Reply, Server, run, text};

#[tokio::test]
async fn a_call_is_one_request_that_can_be_told_from_others() {
    let server = Server::start(|_, _| Reply::json(r#"{"ok":true}"#)).await;
    let tool = Folder::new().tool(&server.url, "");
    let run = run(tool, json!({"x": 1.50, "y": "é"})).await;
    let result = run.result().unwrap();
    assert_eq!(result.structured_content, Some(json!({"ok": true})));
    assert_eq!(result.content[0].as_text(), Some(r#"{"ok":true}"#));
    assert_eq!(run.acts(), ["call"]);
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    let seen = &seen[0];
    assert_eq!((seen.verb.as_str(), seen.path.as_str()), ("POST", "/"));
    assert_eq!(seen.body, r#"{"x":1.5,"y":"é"}"#);
    assert_eq!(seen.header("content-type"), "application/json");
    let task = seen.header("mcp-tasks-task-id");
    assert_eq!(seen.header("idempotency-key"), format!("{task}:call"));
    assert_eq!(seen.header("mcp-tasks-attempt"), "1");
    assert_eq!(seen.header("mcp-tasks-callback-url"), "");
}

#[tokio::test]
async fn url_headers_and_body_take_values_and_stay_what_they_are() {
    let server = Server::start(|_, _| Reply::of(200, "text/plain", "fine")).await;
    let folder = Folder::new();
    std::fs::write(folder.path().join("token"), "sesame-1\n").unwrap();
    std::fs::write(folder.path().join("key"), "sesame-2\n").unwrap();
    let more = r#"
        method = "PUT"
        headers = { X-Who = "{x}/{task_id}", X-Left-Out = "a{z}", X-Key = "{idempotency_key}" }
        bearer_file = "token"
        secret_headers = { X-Api-Key = "key" }
        body = { input = "{x}", "n{}" = "{y}", text = "x is {x}", gone = "{z}" }
    "#;
    let tool = folder.tool(&format!("{}/jobs/{{x}}?q={{y}}&z={{z}}", server.url), more);
    let done = run(tool.clone(), json!({"x": "a/b\"c", "y": [1, "&"]})).await;
    assert_eq!(text(&done), "fine");
    let seen = &server.seen()[0];
    assert_eq!(seen.verb, "PUT");
    assert_eq!(seen.path, "/jobs/a%2Fb%22c?q=%5B1%2C%22%26%22%5D&z=");
    let task = seen.header("mcp-tasks-task-id");
    assert_eq!(seen.header("x-who"), format!("a/b\"c/{task}"));
    assert_eq!(seen.header("x-key"), format!("{task}:call"));
    assert!(!seen.headers.contains_key("x-left-out"));
    assert_eq!(seen.header("authorization"), "Bearer sesame-1");
    assert_eq!(seen.header("x-api-key"), "sesame-2");
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(
        body,
        json!({"input": "a/b\"c", "n{}": [1, "&"], "text": "x is a/b\"c"})
    );
    // Nothing is sent with a value that does not fit its place.
    for (arguments, word) in [
        (json!({"x": "a\r\nX-Evil: 1", "y": 1}), "one line"),
        (json!({"x": "a\nb", "y": 1}), "one line"),
        (json!({"x": "\u{e9}", "y": 1}), "ASCII"),
        (json!({"x": "../admin", "y": 1}), "part of a path"),
        (json!({"y": 1}), "needed"),
        (json!({"x": "a".repeat(20_000), "y": 1}), "too long"),
    ] {
        let refused = run(tool.clone(), arguments).await;
        assert!(
            refused.result().unwrap().is_error,
            "{word}: {}",
            text(&refused)
        );
        assert!(text(&refused).contains(word), "{}", text(&refused));
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_get_says_everything_in_its_url() {
    let server = Server::start(|_, _| Reply::of(200, "text/html; charset=utf-8", "<p>")).await;
    let url = format!("{}/{{x}}", server.url);
    let more = "method = \"GET\"\nannotations = { readOnlyHint = true }";
    let run = run(Folder::new().tool(&url, more), json!({"x": "a b"})).await;
    assert_eq!(text(&run), "<p>");
    assert_eq!(run.acts(), [""; 0], "what only reads costs no journal");
    let seen = &server.seen()[0];
    assert_eq!((seen.verb.as_str(), seen.path.as_str()), ("GET", "/a%20b"));
    assert!(seen.body.is_empty() && seen.header("content-type").is_empty());
}

#[tokio::test]
async fn secrets_are_read_at_every_call_and_never_told() {
    let echo = |seen: &crate::world::Seen, _: usize| {
        let said = format!("you are {}", seen.header("authorization"));
        Reply::of(
            if seen.path == "/bad" { 400 } else { 200 },
            "text/plain",
            said,
        )
    };
    let server = Server::start(echo).await;
    let folder = Folder::new();
    let token = folder.path().join("token");
    std::fs::write(&token, "sesame-1").unwrap();
    let tool = folder.tool(&format!("{}/{{x}}", server.url), "bearer_file = \"token\"");
    for (path, is_error) in [("good", false), ("bad", true)] {
        let run = run(tool.clone(), json!({ "x": path })).await;
        assert_eq!(run.result().unwrap().is_error, is_error);
        assert!(text(&run).contains("you are Bearer ***"), "{}", text(&run));
        let journal = format!("{:?}", run.journal());
        assert!(!journal.contains("sesame"), "{journal}");
    }
    std::fs::write(&token, "sesame-3").unwrap();
    run(tool.clone(), json!({"x": "good"})).await;
    let seen = server.seen();
    assert_eq!(
        seen.last().unwrap().header("authorization"),
        "Bearer sesame-3"
    );
    for content in ["", "a\nb"] {
        std::fs::write(&token, content).unwrap();
        let refused = run(tool.clone(), json!({"x": "good"})).await;
        assert!(text(&refused).contains("secret"), "{}", text(&refused));
    }
    std::fs::remove_file(&token).unwrap();
    let refused = run(tool, json!({"x": "good"})).await;
    assert!(refused.result().unwrap().is_error);
    assert_eq!(
        server.seen().len(),
        seen.len(),
        "nothing is sent without it"
    );
}

/// Libraries write JSON in their own ways, and a `Content-Type` is told as well.
#[tokio::test]
async fn secrets_are_hidden_however_they_are_told() {
    let server = Server::start(|seen, _| {
        let key = seen.header("x-api-key");
        match seen.path.as_str() {
            "/kind" => Reply::of(200, &format!("application/{key}"), "x"),
            _ => {
                let key = key.replace('+', "\\u002B").replace('=', "\\u003d");
                Reply::json(&format!("{{\"key\":\"{key}\"}}"))
            }
        }
    })
    .await;
    let folder = Folder::new();
    std::fs::write(folder.path().join("key"), "sesame+1= \t\n").unwrap();
    let url = format!("{}/{{x}}", server.url);
    let tool = folder.tool(&url, "secret_headers = { X-Api-Key = \"key\" }");
    let told = run(tool.clone(), json!({"x": "json"})).await;
    assert_eq!(
        told.result().unwrap().structured_content,
        Some(json!({"key": "***"}))
    );
    let error = crate::world::error(&run(tool, json!({"x": "kind"})).await);
    assert!(
        error.contains("application/***") && !error.contains("sesame"),
        "{error}"
    );
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|s| s.header("x-api-key") == "sesame+1="));
}

#[tokio::test]
async fn each_kind_of_answer_becomes_its_kind_of_content() {
    let answer = |seen: &crate::world::Seen, _: usize| match seen.path.as_str() {
        "/json" => Reply::of(200, "application/problem+json; charset=utf-8", "[1]"),
        "/text" => Reply::of(201, "text/csv", "a,b"),
        "/image" => Reply::of(200, "image/png", vec![0x89, 0x50]),
        "/audio" => Reply::of(200, "audio/wav", "RIFF"),
        "/none" => Reply::Whole(204, Vec::new(), Vec::new()),
        "/zip" => Reply::of(200, "application/zip", "PK"),
        "/bad" => Reply::json("{\"a\":"),
        _ => Reply::of(404, "text/plain", "no such thing"),
    };
    let server = Server::start(answer).await;
    let folder = Folder::new();
    let tool = folder.tool(&format!("{}/{{x}}", server.url), "");
    let call = async |path: &str| run(tool.clone(), json!({ "x": path })).await;
    let kinds = async |path: &str| {
        let run = call(path).await;
        let result = serde_json::to_value(run.result().unwrap()).unwrap();
        result["content"][0].clone()
    };
    assert_eq!(
        call("json").await.result().unwrap().structured_content,
        Some(json!([1]))
    );
    assert_eq!(kinds("text").await, json!({"type": "text", "text": "a,b"}));
    assert_eq!(
        kinds("image").await,
        json!({"type": "image", "data": "iVA=", "mimeType": "image/png"})
    );
    assert_eq!(kinds("audio").await["mimeType"], "audio/wav");
    assert_eq!(kinds("none").await["text"], "");
    for (path, word) in [("zip", "application/zip"), ("bad", "no JSON")] {
        let error = crate::world::error(&call(path).await);
        assert!(error.contains(word), "{error}");
    }
    let missing = call("other").await;
    assert!(missing.result().unwrap().is_error);
    assert_eq!(
        text(&missing),
        "the service answered 404 Not Found\nno such thing"
    );
    let tool = folder.tool(&format!("{}/json", server.url), "output = \"text\"");
    assert_eq!(text(&run(tool, json!({})).await), "[1]");
}

#[tokio::test]
async fn what_was_promised_is_checked() {
    let server = Server::start(|seen, _| match seen.path.as_str() {
        "/text" => Reply::of(200, "text/plain", "a"),
        path => Reply::json(
            &path[1..]
                .replace("%22", "\"")
                .replace("%7B", "{")
                .replace("%7D", "}")
                .replace("%3A", ":"),
        ),
    })
    .await;
    let more = "output_schema = { type = \"object\", required = [\"n\"], properties = { n = { type = \"number\" } } }";
    let tool = Folder::new().tool(&format!("{}/{{x}}", server.url), more);
    let fits = run(tool.clone(), json!({"x": "{\"n\":1}"})).await;
    assert_eq!(
        fits.result().unwrap().structured_content,
        Some(json!({"n": 1}))
    );
    for (path, word) in [
        ("{\"n\":\"a\"}", "outputSchema, at /n: "),
        ("{}", "outputSchema"),
        ("text", "promises JSON"),
    ] {
        let error = crate::world::error(&run(tool.clone(), json!({ "x": path })).await);
        assert!(error.contains(word), "{error}");
    }
}
