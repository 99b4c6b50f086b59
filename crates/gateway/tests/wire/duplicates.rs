//! Names that occur twice inside of what is passed on as it was sent: judged is one of the two, and
//! who reads the text behind us may take the other.

use harness::client::{Answer, Request};
use serde_json::{Value, json};
use store::ParkedFor;

use crate::support::World;

/// Sends the request with this text in the place of `"SENT"`.
async fn send(request: Request<'_>, sent: &str) -> Answer {
    let body = String::from_utf8(request.bytes().to_vec()).unwrap();
    let body = body.replace(r#""SENT""#, sent);
    request.body(body).send().await.unwrap()
}

#[tokio::test]
async fn arguments_have_no_name_twice_at_any_depth() {
    let world = World::new().await;
    let alice = world.client("alice");
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": "SENT"});
        alice.request("tools/call", params)
    };
    for (sent, place) in [
        (r#"{"a":{"b":1,"b":1}}"#, "`b` occurs twice at /a"),
        (
            r#"{"a":[{},{"b":1,"\u0062":2}]}"#,
            "`b` occurs twice at /a/1",
        ),
        (r#"{"a":{"":{"x":{}},"":0}}"#, "`` occurs twice at /a"),
        (r#"{"a":1,"\u0061":2}"#, "has the key `a` twice"),
    ] {
        let older = call("call")
            .params(json!({"name": "call", "arguments": "SENT"}))
            .header("mcp-protocol-version", "2025-11-25")
            .without_header("mcp-method")
            .without_header("mcp-name");
        for request in [call("call"), call("keyed"), older] {
            let answer = send(request, sent).await;
            let message = answer.error()["message"].as_str().unwrap_or_default();
            assert_eq!(answer.error_code(), Some(-32602), "{sent}: {message}");
            assert!(message.contains("`arguments`"), "{sent}: {message}");
            assert!(message.contains(place), "{sent}: {message}");
        }
    }
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 0);
    // The same name in several objects is nothing odd, and is passed on as it was sent.
    let sent = r#"{"a":[{"a":1.50},{"a":2}]}"#;
    let answer = send(call("task"), sent).await;
    assert_eq!(answer.message["result"]["resultType"], "task");
    let kept = "SELECT convert_from(arguments, 'UTF8') FROM tasks";
    let kept = world.database.rows(kept).await.unwrap();
    assert_eq!(kept[0][0].as_deref(), Some(sent));
}

/// One private name of a library's is a name like any other: what stands behind it is judged.
#[tokio::test]
async fn no_name_hides_what_is_judged() {
    let world = World::new().await;
    let alice = world.client("alice");
    let hidden = json!({"$serde_json::private::RawValue": "\"may\""});
    let result = alice
        .call("strict", json!({"month": hidden}))
        .await
        .unwrap();
    assert_eq!(result["isError"], true, "an object is no month: {result}");
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 0);
}

#[tokio::test]
async fn nor_have_answers_to_questions() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let claim = world.claim_task("task", id.parse().unwrap()).await;
    world.park(&claim, ParkedFor::Task, &["a"]).await;
    let update = || {
        let params = json!({"taskId": id, "inputResponses": {"a": "SENT"}});
        alice.request("tasks/update", params)
    };
    for (sent, place) in [
        (
            r#"{"action":"accept","content":{"yes":false,"yes":true}}"#,
            "`yes` occurs twice at /content",
        ),
        (
            r#"{"action":"decline","action":"accept","content":{"yes":true}}"#,
            "`action` occurs twice",
        ),
    ] {
        let answer = send(update(), sent).await;
        assert_eq!(answer.error_code(), Some(-32602), "{sent}");
        let error: &Value = answer.error();
        assert_eq!(error["data"]["reason"], "malformed_answer", "{sent}");
        assert!(
            error["message"].as_str().unwrap().contains(place),
            "{error}"
        );
    }
    assert_eq!(alice.get(&id).await.unwrap()["status"], "input_required");
    let answer = send(update(), r#"{"action":"accept","content":{"yes":true}}"#).await;
    assert_eq!(answer.error_code(), None);
}
