//! Services that are down, slow, or answer what is no answer; and files that are wrong.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use worker::testkit::{Kit, Run};
use worker::{Tool, ToolError};

use crate::world::{Folder, Reply, SOON, Server, error, run, text};

const EFFECTS: [&str; 3] = ["none", "repeatable", "once"];

fn of(effects: &str) -> String {
    format!("effects = \"{effects}\"")
}

/// How a try ended: `again`, `in doubt`, `failed` or `result`.
fn ending(run: &Run) -> &'static str {
    match run.result() {
        Ok(_) => "result",
        Err(error) if error.as_failed().is_none() => "again",
        Err(_) if run.reason().as_deref() == Some("step_in_doubt") => "in doubt",
        Err(_) => "failed",
    }
}

async fn endings(url: &str, more: &str) -> [&'static str; 3] {
    let folder = Folder::new();
    let mut endings = [""; 3];
    for (ending_of, effects) in endings.iter_mut().zip(EFFECTS) {
        let tool = folder.tool(url, &format!("{}\n{more}", of(effects)));
        *ending_of = ending(&run(tool, json!({})).await);
    }
    endings
}

#[tokio::test]
async fn what_was_not_sent_did_not_happen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(endings(&url, "").await, ["again"; 3], "refused");
    let nowhere = endings("http://no-such-host.invalid/", "").await;
    assert_eq!(nowhere, ["again"; 3], "no such host");
}

#[tokio::test]
async fn what_was_sent_and_never_answered_is_in_doubt() {
    let in_doubt = ["again", "again", "in doubt"];
    let closes = Server::start(|_, _| Reply::Raw(Vec::new())).await;
    assert_eq!(
        endings(&closes.url, "").await,
        in_doubt,
        "closed without a word"
    );
    let garbage = Server::start(|_, _| Reply::Raw(b"SSH-2.0-x\r\n\r\n".to_vec())).await;
    assert_eq!(endings(&garbage.url, "").await, in_doubt, "garbage");
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-type: text/plain\r\n\r\nhalf";
    let half = Server::start(|_, _| Reply::Raw(half.to_vec())).await;
    assert_eq!(endings(&half.url, "").await, in_doubt, "half an answer");
    let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab";
    let chunk = Server::start(|_, _| Reply::Raw(chunk.to_vec())).await;
    assert_eq!(endings(&chunk.url, "").await, in_doubt, "half a chunk");
    let silent = Server::start(|_, _| Reply::Silence).await;
    let slow = endings(&silent.url, "timeout = \"200ms\"").await;
    assert_eq!(slow, in_doubt, "no answer in time");
}

#[tokio::test]
async fn statuses_say_what_happened() {
    let server = Server::start(|seen, _| {
        let status = seen.path[1..].parse().unwrap();
        Reply::of(status, "text/plain", "because")
    })
    .await;
    let of =
        async |status: u16, more: &str| endings(&format!("{}/{status}", server.url), more).await;
    for status in [408, 425, 429, 503] {
        assert_eq!(of(status, "").await, ["again"; 3], "{status}");
    }
    for status in [502, 504] {
        assert_eq!(
            of(status, "").await,
            ["again", "again", "in doubt"],
            "{status}"
        );
    }
    for status in [400, 401, 403, 404, 409, 422, 500, 501] {
        assert_eq!(of(status, "").await, ["result"; 3], "{status}");
    }
    let more = "retry_statuses = [500, 502]";
    assert_eq!(of(500, more).await, ["again"; 3], "the operator's word");
    assert_eq!(of(502, more).await, ["again"; 3]);
    assert_eq!(of(503, more).await, ["result"; 3]);
    assert_eq!(of(504, more).await, ["result", "result", "in doubt"]);
}

#[tokio::test]
async fn a_repeated_request_is_the_same_request() {
    let server = Server::start(|_, before| match before {
        0 => Reply::Raw(Vec::new()),
        1 => Reply::Whole(503, vec![("retry-after", "1".to_owned())], Vec::new()),
        _ => Reply::of(200, "text/plain", "at last"),
    })
    .await;
    let tool = Folder::new().tool(&server.url, &of("repeatable"));
    let running = Kit::of(tool).arguments(json!({"x": 1})).simulate();
    let run = tokio::time::timeout(SOON, running).await.unwrap();
    assert_eq!(text(&run), "at last");
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    let same = |name: &str| seen.iter().all(|s| s.header(name) == seen[0].header(name));
    assert!(same("idempotency-key") && seen.iter().all(|s| s.body == seen[0].body));
    let attempts: Vec<&str> = seen.iter().map(|s| s.header("mcp-tasks-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
}

#[tokio::test]
async fn redirects_stay_within_the_server_and_repeat_the_request() {
    let other = Server::start(|_, _| Reply::of(200, "text/plain", "stolen")).await;
    let elsewhere = other.url.clone();
    let server = Server::start(move |seen, _| {
        let to = |status: u16, to: &str| {
            Reply::Whole(status, vec![("location", to.to_owned())], Vec::new())
        };
        match seen.path.as_str() {
            "/same" => to(307, "/there"),
            "/there" => Reply::of(200, "text/plain", "there"),
            "/other" => to(308, &elsewhere),
            "/odd" => to(307, "//evil.example/x"),
            "/get" => to(302, "/there"),
            "/posted" => to(303, "/there"),
            "/nowhere" => Reply::Whole(307, Vec::new(), Vec::new()),
            _ => to(307, "/round"),
        }
    })
    .await;
    let folder = Folder::new();
    std::fs::write(folder.path().join("token"), "sesame").unwrap();
    let tool = folder.tool(&format!("{}/{{x}}", server.url), "bearer_file = \"token\"");
    let call = async |path: &str| run(tool.clone(), json!({ "x": path })).await;
    assert_eq!(text(&call("same").await), "there");
    let seen = server.seen();
    assert_eq!(
        (seen[1].verb.as_str(), seen[1].body.as_str()),
        ("POST", r#"{"x":"same"}"#)
    );
    for (path, word) in [
        ("other", "another server"),
        ("odd", "another server"),
        ("get", "would not repeat"),
        ("posted", "would not repeat"),
        ("nowhere", "no URL"),
        ("round", "more than 3 times"),
    ] {
        let error = error(&call(path).await);
        assert!(error.contains(word), "{path}: {error}");
    }
    assert_eq!(other.seen().len(), 0);
}

#[tokio::test]
async fn a_giant_answer_is_not_read_to_its_end() {
    let server = Server::start(|_, _| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
        bytes.resize(3 * 1024 * 1024, b'x');
        Reply::Raw(bytes)
    })
    .await;
    let tool = Folder::new().tool(&server.url, "response_bytes_max = 1000");
    let run = run(tool, json!({})).await;
    assert!(run.result().unwrap().is_error);
    assert_eq!(
        text(&run),
        "the service answered more than the 1000 bytes that are allowed"
    );
    let refusing = Server::start(|_, _| Reply::of(500, "text/plain", "x".repeat(100_000))).await;
    let told = crate::world::run(Folder::new().tool(&refusing.url, ""), json!({})).await;
    assert!(text(&told).len() < 9_000);
}

#[tokio::test]
async fn an_answer_may_be_as_long_as_is_allowed() {
    for (length, fits) in [(999, true), (1000, true), (1001, false)] {
        let server =
            Server::start(move |_, _| Reply::of(200, "text/plain", "x".repeat(length))).await;
        let tool = Folder::new().tool(&server.url, "response_bytes_max = 1000");
        let run = run(tool, json!({})).await;
        assert_eq!(run.result().unwrap().is_error, !fits, "{length}");
        assert_eq!(text(&run) == "x".repeat(length), fits, "{length}");
    }
}

#[tokio::test]
async fn a_cancel_drops_the_request() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let tool: Arc<dyn Tool> = Folder::new().tool(&server.url, &of("none"));
    let stop = CancellationToken::new();
    let running = Kit::of(tool).stopped_by(stop.clone()).run();
    let (run, ()) = tokio::join!(running, async {
        server.wait_for(1).await;
        stop.cancel();
    });
    let ended: &ToolError = run.result().unwrap_err();
    assert!(ended.is_retryable() || ended.is_stopped(), "{ended}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn without_settings_nobody_is_asked_to_call_back() {
    let server = Server::start(|_, _| Reply::of(202, "text/plain", "")).await;
    let tool = Folder::new().tool(&server.url, "callback_wait = \"1h\"");
    let error = error(&run(tool, json!({})).await);
    assert!(error.contains("callbacks.public_url"), "{error}");
    assert_eq!(server.seen().len(), 0);
}

/// Every kind of mistake is told with its line and key, all at once.
#[test]
fn files_that_are_wrong_are_told_so() {
    let folder = Folder::new();
    let loaded = folder.load(
        "https://{x}/",
        r#"
            method = "DELETE"
            headers = { "bad name" = "a", Host = "b", Idempotency-Key = "c", Mcp-Tasks-Task-Id = "d", X-A = "{nothing}", X-B = "two\nlines" }
            secret_headers = { X-C = "no/such/file" }
            bearer_file = "missing"
            ca_file = "no-authority.pem"
            body = { a = "{callback_url}" }
            output = "xml"
            effects = "some"
            retry_statuses = [200]
            timeout = "0s"
            callback_wait = "365d"
            cancel_url = "https://other.example/"
            unknown_key = 1
        "#,
    );
    let problems = loaded.map(drop).unwrap_err();
    for (line, key, word) in [
        (4, "url", "host"),
        (7, "method", "GET"),
        (8, "headers", "bad name"),
        (8, "headers", "Host is set"),
        (8, "headers", "Idempotency-Key is set"),
        (8, "headers", "Mcp-Tasks-Task-Id is set"),
        (8, "headers", "nothing is called {nothing}"),
        (8, "headers", "X-B: a header holds one line"),
        (9, "secret_headers", "no/such/file"),
        (10, "bearer_file", "missing"),
        (11, "ca_file", "no-authority.pem"),
        (13, "output", "auto"),
        (14, "effects", "repeatable"),
        (15, "retry_statuses", "400"),
        (16, "timeout", "above 0"),
        (17, "callback_wait", "30 days"),
        (19, "unknown_key", "unknown"),
    ] {
        let place = format!("tools.toml:{line}: http \"tool\": {key}: ");
        let told = problems.lines().any(|told| {
            told.split_once(&place)
                .is_some_and(|(_, problem)| problem.contains(word))
        });
        assert!(told, "{place}{word} is not among\n{problems}");
    }
    for (url, more, word) in [
        (
            "https://a.example/",
            "cancel_url = \"https://a.example/\"",
            "needs a callback_wait",
        ),
        (
            "https://a.example/",
            "callback_wait = \"1h\"\ncancel_url = \"https://b.example/\"",
            "another server",
        ),
        (
            "https://a.example/",
            "callback_wait = \"1h\"\ncancel_url = \"https://a.example/{callback_url}\"",
            "callback_wait",
        ),
        (
            "https://a.example/",
            "method = \"GET\"\nbody = {}",
            "a GET has none",
        ),
        (
            "https://a.example/",
            "body = { a = \"{callback_url}\" }",
            "needs a callback_wait",
        ),
        ("https://a.example/{x", "", "has no end"),
        (
            "https://a.example/",
            "ca_file = \"tools.toml\"",
            "tools.toml: holds no certificate",
        ),
        ("file:///etc/passwd", "", "http://"),
        (
            "https://a.example/",
            "output = \"text\"\noutput_schema = { type = \"object\" }",
            "must not be",
        ),
        (
            "https://a.example/",
            "headers = { X-A = \"a\" }\nsecret_headers = { x-a = \"tools.toml\" }",
            "in headers as well",
        ),
    ] {
        let problems = folder.load(url, more).map(drop).unwrap_err();
        assert!(problems.contains(word), "{word}: {problems}");
    }
    let wait = Duration::from_secs(3600);
    let fine = folder.load(
        "https://a.example/",
        &format!("callback_wait = \"{}s\"", wait.as_secs()),
    );
    assert!(fine.is_ok());
}
