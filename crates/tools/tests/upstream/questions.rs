//! Older servers ask in the middle of a call.

use std::time::Duration;

use serde_json::{Value, json};
use tools::upstream::UpstreamConfig;

use crate::server::{Reply, Seen, Server, legacy_script, tool};
use crate::world::{World, config};

fn question() -> Value {
    json!({ "jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": {
        "message": "Really?",
        "requestedSchema": { "type": "object", "properties": { "go": { "type": "boolean" } } }
    } })
}

/// Asks on the call's stream, and answers the call with what it was answered.
async fn asks(annotations: Value) -> Server {
    let script = legacy_script(json!([tool("t", annotations)]), |seen: &Seen| {
        Reply::held([seen.progress(json!({ "progress": 1 })), question()])
    });
    Server::start(move |seen: &Seen| script(seen)).await
}

/// Lets the server answer the call whenever it is answered.
async fn answers(server: &Server, times: usize) {
    let answers = |s: &&Seen| s.body["id"] == "q-1";
    server
        .until(|seen| seen.iter().filter(answers).count() == times)
        .await;
    let seen = server.seen();
    let answer = seen.iter().rev().find(answers).unwrap();
    let call = server.of("tools/call").pop().unwrap();
    let text = answer.body["result"].to_string();
    server.say(&call.result(json!({ "content": [{ "type": "text", "text": text }] })));
}

const YES: &str = r#"{"action":"accept","content":{"go":true}}"#;

fn yes() -> Value {
    serde_json::from_str(YES).unwrap()
}

#[tokio::test]
async fn one_that_may_be_repeated_is_called_again_with_the_answer() {
    let server = asks(json!({ "idempotentHint": true })).await;
    let world = World::of(&server.url).await;
    let kit = world.kit("up_t").answer("question", yes());
    let (run, ()) = tokio::join!(kit.run(), answers(&server, 1));
    assert_eq!(run.result().unwrap().content[0].as_text(), Some(YES));
    assert_eq!(run.acts(), ["call", "call.2"]);
    assert_eq!(run.asked()[0].1["params"]["message"], "Really?");
    assert_eq!(server.of("tools/call").len(), 2);
    assert_eq!(server.of("notifications/cancelled").len(), 1);
}

#[tokio::test]
async fn one_that_must_not_be_repeated_is_held() {
    let server = asks(json!({})).await;
    let world = World::of(&server.url).await;
    let kit = world.kit("up_t").answer("question", yes());
    let (run, ()) = tokio::join!(kit.run(), answers(&server, 1));
    assert_eq!(run.result().unwrap().content[0].as_text(), Some(YES));
    assert_eq!(server.of("tools/call").len(), 1);
}

#[tokio::test]
async fn one_that_is_held_by_nobody_is_in_doubt() {
    let server = asks(json!({})).await;
    let world = World::of(&server.url).await;
    let asked = json!({ "asks": { "request": { "method": "roots/list" }, "held": true } });
    let kit = world.kit("up_t").finished("call", asked);
    let run = kit.answer("question", json!({ "roots": [] })).run().await;
    let error = run.result().unwrap_err().to_string();
    assert!(error.contains("its connection is gone"), "{error}");
    assert_eq!(server.of("tools/call").len(), 0);
}

#[tokio::test]
async fn one_that_is_held_for_too_long_is_given_up() {
    let server = asks(json!({})).await;
    let world = World::start(vec![UpstreamConfig {
        hold: Duration::from_millis(100),
        ..config(&server.url)
    }]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    let run = world.kit("up_t").run().await;
    assert!(run.result().unwrap_err().is_parked());
    server
        .until(|seen| seen.iter().any(|s| s.method() == "notifications/cancelled"))
        .await;
}

#[tokio::test]
async fn who_cannot_be_asked_is_not() {
    let server = asks(json!({})).await;
    let world = World::of(&server.url).await;
    let kit = world.kit("up_t").capabilities(json!({}));
    let (run, ()) = tokio::join!(kit.run(), answers(&server, 1));
    let text = run.result().unwrap().content[0]
        .as_text()
        .unwrap()
        .to_owned();
    assert_eq!(text, r#"{"action":"cancel"}"#);
    assert!(run.asked().is_empty());
}

#[tokio::test]
async fn a_question_beside_the_call_is_of_the_only_one() {
    let script = legacy_script(json!([tool("t", json!({}))]), |_: &Seen| Reply::held([]));
    let server = Server::start(move |seen: &Seen| match seen.verb.as_str() {
        "GET" => Reply::Stream(Vec::new(), true),
        _ => script(seen),
    })
    .await;
    let world = World::of(&server.url).await;
    server
        .until(|seen| seen.iter().any(|s| s.verb == "GET"))
        .await;
    let asking = async {
        server
            .until(|seen| seen.iter().any(|s| s.method() == "tools/call"))
            .await;
        server.say_beside(&question());
    };
    let kit = world.kit("up_t").answer("question", yes());
    let (run, (), ()) = tokio::join!(kit.run(), asking, answers(&server, 1));
    assert_eq!(run.result().unwrap().content[0].as_text(), Some(YES));
}
