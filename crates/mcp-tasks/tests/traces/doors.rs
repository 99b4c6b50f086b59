//! Everybody who is shown out, with what they came with: tokens, bodies, addresses of callbacks, states, and a
//! gateway that is called over TLS.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use harness::client::{Answer, Client};
use harness::http::Http;
use harness::node::Node;
use harness::wait;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::planted::{API_KEY, Planted, RESOURCE};
use crate::stack::SOON;

/// Asks before there is a task.
const ASKS: &str = "test_input_required_result_request_state";

/// What callers were told, as far as it must hold no credentials; what they sent themselves may be in it.
pub type Heard = Vec<String>;

fn whole(answer: &Answer) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    format!("{} {:?} {body}", answer.status, answer.headers)
}

/// Tokens that are none, or not for us, or over, in every place where somebody may put them.
pub async fn tokens(planted: &mut Planted, heard: &mut Heard) {
    let claims = planted.issuer.claims("joan", RESOURCE);
    let sign = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        planted.signing.sign(&claims)
    };
    let good = planted.signing.sign(&claims);
    let (signed, _) = good.rsplit_once('.').unwrap();
    let bad = [
        sign("exp", json!(1)),
        sign("nbf", json!(i64::from(u32::MAX))),
        sign("aud", json!("https://hush-audience.example")),
        sign("iss", json!("https://hush-issuer.example")),
        sign("sub", json!("")),
        sign("at_hash", json!("hush")),
        format!("{signed}."),
        format!("{signed}.aHVzaC1zaWduYXR1cmU"),
        "eyJhbGciOiJub25lIn0.aHVzaA.".to_owned(),
        "mtk_hush-unknown-key".to_owned(),
        "hush-unknown-opaque".to_owned(),
        "hush-long-token".repeat(1000),
    ];
    let gateway = planted.cluster.gateways[1].url();
    let client = Client::new(&gateway);
    for token in bad {
        let asked = client.request("tools/list", json!({}));
        let asked = asked.header("authorization", format!("Bearer {token}"));
        let answer = asked.send().await.unwrap();
        assert!(
            [400, 401, 431].contains(&answer.status),
            "{}",
            whole(&answer)
        );
        heard.push(whole(&answer));
        planted.made.push(token);
    }
    for value in [
        "Basic aHVzaC1iYXNpYzpodXNoLWJhc2lj",
        "Digest username=\"hush-digest-user\"",
        "Bearer hush-two words",
        "hush-no-scheme",
        "Bearer hush-\u{fc}nicode",
    ] {
        let asked = client.request("tools/list", json!({}));
        let answer = asked.header("authorization", value).send().await.unwrap();
        assert!([400, 401].contains(&answer.status), "{value}");
        heard.push(whole(&answer));
    }
    let twice = client.request("tools/list", json!({}));
    let twice = twice
        .header("authorization", "Bearer hush-first-of-two")
        .header_beside("authorization", "Bearer hush-second-of-two");
    heard.push(whole(&twice.send().await.unwrap()));
    let url = Client::new(&format!("{gateway}?access_token=hush-url-token"));
    let answer = url.request("tools/list", json!({})).send().await.unwrap();
    assert_eq!(answer.status, 400);
    heard.push(whole(&answer));
}

/// Requests that are none, each with something in it that is nobody's business.
pub async fn malformed(planted: &mut Planted, heard: &mut Heard) {
    let alice = planted.cluster.client(0, "alice");
    let call = json!({ "name": "chaos_undo", "arguments": { "hush-malformed": 1 } });
    let body = |params: &Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    };
    let deep = format!("{}\"hush-malformed\"{}", "[".repeat(500), "]".repeat(500));
    for body in [
        "{\"hush-malformed".to_owned(),
        "\"hush-malformed\"".to_owned(),
        "[{\"hush-malformed\":1}]".to_owned(),
        json!({ "jsonrpc": "2.0", "id": {"hush-malformed": 1}, "method": "x" }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "hush-malformed" }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": "hush-malformed" }).to_string(),
        body(&json!("hush-malformed")),
        body(&call),
        body(&json!({ "name": "chaos_undo", "arguments": "hush-malformed", "_meta": {} })),
        body(&json!({ "name": "chaos_undo", "arguments": {}, "_meta": ["hush-malformed"] })),
        deep,
        "x".repeat(9 << 20) + "hush-malformed",
    ] {
        let asked = alice.request("tools/call", call.clone()).body(body);
        // A body that is too long may be answered before it was sent to its end.
        let Ok(answer) = asked.send().await else {
            continue;
        };
        assert!(answer.status >= 400, "{}", whole(&answer));
        heard.push(whole(&answer));
    }
    for (name, value) in [
        ("mcp-name", "hush-header"),
        ("mcp-method", "hush-header"),
        ("mcp-protocol-version", "hush-header"),
        ("mcp-name", "=?base64?hush-header?="),
        ("content-type", "hush-header/x"),
        ("accept", "hush-header/x"),
        ("origin", "https://hush-header.example"),
        ("host", "hush-header.example"),
        ("idempotency-key", "hush-header and more"),
    ] {
        let asked = alice.request("tools/call", call.clone());
        let answer = asked.header(name, value).send().await.unwrap();
        heard.push(whole(&answer));
    }
    for (method, params) in [
        ("tools/list", json!({ "cursor": "hush-malformed" })),
        ("tasks/get", json!({ "taskId": "hush-malformed" })),
        (
            "tools/call",
            json!({ "name": ASKS, "arguments": {}, "requestState": "hush-malformed" }),
        ),
        (
            "tools/call",
            json!({ "name": "chaos_undo", "arguments": {}, "inputResponses": "hush-malformed" }),
        ),
        ("completion/complete", json!({ "ref": "hush-malformed" })),
        ("resources/read", json!({ "uri": "hush-malformed:" })),
    ] {
        let answer = alice.request(method, params).send().await.unwrap();
        heard.push(whole(&answer));
    }
}

/// A question before its task: its state goes to its caller, comes back changed and by others, and is good once.
pub async fn states(planted: &mut Planted, heard: &mut Heard) {
    let alice = planted.cluster.client(0, "alice");
    let mallory = planted.cluster.client(0, "mallory");
    let asked = alice.call(ASKS, json!({})).await.unwrap();
    let state = asked["requestState"].as_str().unwrap().to_owned();
    let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let with = |state: &str, more: Value| json!({ "name": ASKS, "arguments": {}, "requestState": state, "inputResponses": more });
    let mut forged = state.clone();
    let last = if forged.pop() == Some('A') { 'B' } else { 'A' };
    forged.push(last);
    let malformed = json!({ "confirm": { "action": "accept", "content": "hush-malformed" } });
    for (client, params) in [
        (&mallory, with(&state, answers.clone())),
        (&alice, with(&forged, answers.clone())),
        (&alice, with(&state[..state.len() / 2], answers.clone())),
        (&alice, with(&state, malformed)),
        (
            &alice,
            json!({ "name": "job", "arguments": {}, "requestState": state }),
        ),
    ] {
        let answer = client.request("tools/call", params).send().await.unwrap();
        assert!(answer.error_code().is_some(), "{}", whole(&answer));
        heard.push(whole(&answer));
    }
    let again = alice.request("tools/call", with(&state, answers));
    let again = again.send().await.unwrap().into_result().unwrap();
    assert_eq!(again["resultType"], "complete", "{again}");
    // The caller's own, and nobody else's: from here on it is looked for everywhere.
    planted.made.extend([state, forged]);
}

/// Addresses of callbacks that are none, in every way in which they are refused.
pub async fn callbacks(planted: &mut Planted, token: &str, heard: &mut Heard) {
    let base = planted.cluster.gateways[0]
        .url()
        .replace("/mcp", "/callbacks/");
    let http = Http::new(SOON);
    let made_up = "hush-made-up-callback";
    let mut flipped = token.to_owned();
    let last = if flipped.pop() == Some('A') { 'B' } else { 'A' };
    flipped.push(last);
    let json = "application/json";
    for (method, token, kind, body) in [
        (Method::POST, made_up, json, "{}"),
        (Method::POST, &flipped, json, "{\"text\":\"hush-callback\"}"),
        (Method::POST, &token[..token.len() / 2], json, "{}"),
        (Method::POST, &format!("{token}/hush-callback"), json, "{}"),
        (Method::POST, &format!("{token}?hush-callback"), json, "{}"),
        (Method::GET, token, json, ""),
        (Method::DELETE, token, json, ""),
        (Method::POST, token, "hush-callback/x", "{}"),
        (Method::POST, token, json, "{\"hush-callback"),
        (
            Method::POST,
            token,
            json,
            "{\"text\":\"hush-callback again\"}",
        ),
    ] {
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("{base}{token}"));
        let request = request.header("content-type", kind);
        let body = Full::new(Bytes::from(body.to_owned()));
        let reply = http.send(request.body(body).unwrap()).await.unwrap();
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(
            reply.status >= 400,
            "{method} {kind} {}: {text}",
            reply.status
        );
        heard.push(format!("{:?} {text}", reply.headers));
    }
    planted.made.extend([made_up.to_owned(), flipped]);
}

/// A gateway that encrypts, called over TLS by who trusts it and by who does not, in plain text, and with a key
/// that is replaced by one that is none.
pub async fn over_tls(planted: &mut Planted, heard: &mut Heard) {
    let files = planted.files().to_owned();
    let plain = planted.cluster.gateways[2].url();
    let port: u16 = plain
        .rsplit(':')
        .next()
        .unwrap()
        .replace("/mcp", "")
        .parse()
        .unwrap();
    let url = format!("https://localhost:{port}/mcp");
    let trusted = files.join("cert.pem");
    let call = |authority: &Path, token: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} } } });
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", "--max-time", "60", "--cacert"])
            .arg(authority);
        for header in [
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/list",
            &format!("authorization: Bearer {token}"),
        ] {
            curl.args(["-H", header]);
        }
        let output = curl.args(["-d", &body.to_string(), &url]).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&told).into_owned()
    };
    let answer = call(&trusted, API_KEY);
    assert!(
        answer.contains(" 200") && answer.contains("chaos_undo"),
        "{answer}"
    );
    heard.push(answer);
    let answer = call(&trusted, "hush-tls-token");
    assert!(answer.contains(" 401"), "{answer}");
    heard.push(answer);
    // Whose certificate it is not, the caller sees itself.
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(files.join("other.pem"), other.cert.pem()).unwrap();
    let answer = call(&files.join("other.pem"), "hush-tls-token");
    assert!(!answer.contains("HTTP/"), "{answer}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let open =
        "POST /mcp?hush-plain-url HTTP/1.1\r\nauthorization: Bearer hush-plain-token\r\n\r\n";
    stream.write_all(open.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Reset or closed, with an alert or without.
    let _ = stream.read_to_end(&mut answer).await;
    heard.push(String::from_utf8_lossy(&answer).into_owned());
    // A key that is none is told of, and not shown; the one before goes on.
    let key = files.join("key.pem");
    let good = std::fs::read_to_string(&key).unwrap();
    let broken = good.replacen("-----\n", "-----\naHVzaC1icm9rZW4ta2V5", 1);
    std::fs::write(&key, broken).unwrap();
    let log = Node::log(&planted.cluster.gateways[2]).to_owned();
    let told = async || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains("gateway.tls.key_file").then_some(())
    };
    wait::until("the gateway tells of its key", SOON, told)
        .await
        .unwrap();
    let answer = call(&trusted, API_KEY);
    assert!(answer.contains(" 200"), "{answer}");
    std::fs::write(&key, good).unwrap();
    planted.made.push("aHVzaC1icm9rZW4ta2V5".to_owned());
}
