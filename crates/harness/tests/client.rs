//! The raw client against a socket that records what it gets and answers what it is told.

use std::time::Duration;

use mcp_tasks_harness as harness;

use harness::Error;
use harness::client::{Client, VERSION};
use harness::sse::Event;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const WITHIN: Duration = Duration::from_secs(10);

/// Answers one request with these pieces, a moment apart: its URL, and the request as text.
#[expect(clippy::disallowed_methods, reason = "the test joins it")]
async fn server(pieces: &'static [&'static str]) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.expect("bytes"), 0);
        }
        for piece in pieces {
            stream
                .write_all(piece.as_bytes())
                .await
                .expect("the client reads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        String::from_utf8(request).expect("text")
    });
    (url, served)
}

fn body(request: &str) -> Value {
    let (_, body) = request.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test]
async fn a_plain_request_is_well_formed() {
    let (url, served) = server(&[
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"x"}}"#,
    ])
    .await;
    let id = Client::new(&url)
        .bearer("alice")
        .start("grün", json!({"n": 1}))
        .await
        .unwrap();
    assert_eq!(id, "x");
    let request = served.await.unwrap();
    for line in [
        "authorization: Bearer alice",
        "mcp-method: tools/call",
        "mcp-name: =?base64?Z3LDvG4=?=",
        &format!("mcp-protocol-version: {VERSION}"),
    ] {
        assert!(
            request.contains(&format!("{line}\r\n")),
            "{line} in {request}"
        );
    }
    let params = &body(&request)["params"];
    assert_eq!(params["arguments"], json!({"n": 1}));
    let meta = &params["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], VERSION);
    let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(
        capabilities["extensions"]["io.modelcontextprotocol/tasks"],
        json!({})
    );
}

#[tokio::test]
async fn a_bent_request_is_bent() {
    let (url, served) = server(&[
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no","data":{"a":1}}}"#,
    ])
    .await;
    let client = Client::new(&url).undeclared();
    let answer = client
        .request("tasks/get", json!({"taskId": "x"}))
        .notification()
        .header("mcp-name", "y")
        .without_header("mcp-method")
        .without_meta("io.modelcontextprotocol/clientInfo")
        .send()
        .await
        .unwrap();
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32020)));
    let error = answer.into_result().unwrap_err();
    assert!(
        matches!(error, Error::Rpc { status: 400, code: -32020, ref data, .. } if data["a"] == 1)
    );
    let request = served.await.unwrap();
    assert!(request.contains("mcp-name: y\r\n") && !request.contains("mcp-method"));
    let body = body(&request);
    assert!(body.get("id").is_none());
    let meta = &body["params"]["_meta"];
    assert!(meta.get("io.modelcontextprotocol/clientInfo").is_none());
    assert!(
        meta["io.modelcontextprotocol/clientCapabilities"]
            .get("extensions")
            .is_none()
    );
}

const STREAM: &[&str] = &[
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: keep",
    "-alive\r\n\r\nevent: message\ndata: {\"method\":\"a\",",
    "\"params\":{}}\n\n\ndata:{\"id\":1,\ndata: \"result\":{}}\n\n",
];

#[tokio::test]
async fn a_stream_is_read_piece_by_piece() {
    let (url, _served) = server(STREAM).await;
    let mut stream = Client::new(&url)
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert_eq!(stream.status, 200);
    assert_eq!(
        stream.event().await.unwrap(),
        Some(Event::Comment("keep-alive".into()))
    );
    let message = stream.next(WITHIN).await.unwrap().unwrap();
    assert_eq!(message, json!({"method": "a", "params": {}}));
    let response = stream
        .find(WITHIN, |message| message["id"] == 1)
        .await
        .unwrap();
    assert_eq!(response["result"], json!({}));
    assert_eq!(stream.next(WITHIN).await.unwrap(), None);
}

#[tokio::test]
async fn a_streamed_answer_is_an_answer() {
    let (url, _served) = server(&[
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        "data: {\"method\":\"notifications/progress\"}\n\n",
        "data: {\"id\":1,\"result\":{\"resultType\":\"complete\"}}\n\n",
    ])
    .await;
    let client = Client::new(&url);
    let answer = client
        .request("tools/call", json!({"name": "x"}))
        .send()
        .await
        .unwrap();
    assert!(answer.is_stream());
    assert_eq!(answer.notifications.len(), 1);
    assert_eq!(answer.into_result().unwrap()["resultType"], "complete");
}
