//! `tools/list` and ordinary calls.

use gateway::Config;
use serde_json::json;

use super::{Legacy, without_modern};
use crate::support::{SECOND, SOON, World, config, text};

#[tokio::test]
async fn tools_say_whether_they_run_as_tasks() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let list = alice.result("tools/list", json!({})).await;
    without_modern(&list);
    let support = |name: &str| {
        let tools = list["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["inputSchema"]["type"], "object");
        tool["execution"]["taskSupport"].clone()
    };
    assert_eq!(support("call"), "optional");
    assert_eq!(support("inline"), "forbidden");
    assert_eq!(support("only_task"), "required");
    let older = alice.older().result("tools/list", json!({})).await;
    for tool in older["tools"].as_array().unwrap() {
        assert!(tool.get("execution").is_none(), "{tool}");
    }
}

#[tokio::test]
async fn a_call_is_answered_and_streamed_with_progress() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    for alice in [alice.clone(), alice.clone().older()] {
        let params = json!({"name": "call", "arguments": {"x": 1}, "_meta": {"progressToken": 7}});
        let mut stream = alice.request("tools/call", params).stream().await.unwrap();
        let claim = world.claim("call").await;
        world
            .queue
            .progress(claim.id(), br#"{"progress":1,"total":2,"message":"half"}"#)
            .await;
        let first = stream.next(SOON).await.unwrap().unwrap();
        assert_eq!(first["method"], "notifications/progress", "{first}");
        assert_eq!(first["params"]["progressToken"], 7);
        world.complete(&claim, &text("done")).await;
        let last = stream.next(SOON).await.unwrap().unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
        without_modern(&last["result"]);
        assert!(stream.next(SOON).await.unwrap().is_none());
    }
    // A tool that reports an error is an ordinary result.
    let params = json!({"name": "call", "arguments": {}});
    let (failed, ()) = tokio::join!(alice.result("tools/call", params), async {
        let claim = world.claim("call").await;
        let result = json!({"resultType": "complete", "content": [], "isError": true});
        world.complete(&claim, &result).await;
    });
    assert_eq!(failed["isError"], true);
}

#[tokio::test]
async fn what_came_later_is_left_out_of_results() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    for (structured, kept) in [(json!([1, 2]), false), (json!({"a": [1]}), true)] {
        let params = json!({"name": "call", "arguments": {}});
        let (result, ()) = tokio::join!(alice.result("tools/call", params), async {
            let claim = world.claim("call").await;
            let result = json!({"resultType": "complete", "content": [{"type": "text", "text": "x"}],
                "structuredContent": structured, "_meta": {"own": 1}, "extra": true});
            world.complete(&claim, &result).await;
        });
        without_modern(&result);
        assert_eq!(result.get("structuredContent").is_some(), kept, "{result}");
        assert_eq!(
            (&result["_meta"], &result["extra"]),
            (&json!({"own": 1}), &json!(true))
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_call() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let call = |name: &str| json!({"name": name, "arguments": {}});
    assert_eq!(alice.code("tools/call", call("no_such_tool")).await, -32602);
    assert_eq!(alice.code("tools/call", json!({})).await, -32602);
    // MCP 2025-11-25 §Tool-Level Negotiation: both ways round -32601.
    let told = alice.error("tools/call", call("only_task")).await;
    assert_eq!(told["code"], -32601);
    assert!(
        told["message"].as_str().unwrap().contains("`task`"),
        "{told}"
    );
    assert_eq!(
        alice
            .clone()
            .older()
            .code("tools/call", call("only_task"))
            .await,
        -32601
    );
    let mut as_task = call("inline");
    as_task["task"] = json!({});
    assert_eq!(alice.code("tools/call", as_task.clone()).await, -32601);
    // A revision without tasks does not know the member.
    let older = alice.clone().older();
    let (result, ()) = tokio::join!(older.result("tools/call", as_task), async {
        let claim = world.claim("inline").await;
        world.complete(&claim, &text("inline")).await;
    });
    assert_eq!(result["content"][0]["text"], "inline");
    for task in [
        json!(true),
        json!([]),
        json!({"ttl": "1h"}),
        json!({"ttl": -1}),
        json!({"ttl": [1]}),
    ] {
        let mut params = call("call");
        params["task"] = task;
        assert_eq!(
            alice.code("tools/call", params.clone()).await,
            -32602,
            "{params}"
        );
    }
    // Arguments that the schema refuses: a result for a model, or an error where a task was asked for.
    let strict = json!({"name": "strict", "arguments": {"month": "never"}});
    let result = alice.result("tools/call", strict.clone()).await;
    assert_eq!(result["isError"], true);
    let mut as_task = strict;
    as_task["task"] = json!({});
    let told = alice.error("tools/call", as_task).await;
    assert_eq!(told["code"], -32602);
    assert!(
        told["message"].as_str().unwrap().contains("month"),
        "{told}"
    );
    let told = alice.error("tools/call", call("needs_sampling")).await;
    assert_eq!(told["code"], -32602);
    assert_eq!(
        told["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
    // Parameters that are mirrored today need no headers.
    let region = json!({"name": "region", "arguments": {"region": "eu", "count": 1}});
    let (result, ()) = tokio::join!(alice.result("tools/call", region), async {
        let claim = world.claim("region").await;
        world.complete(&claim, &text("eu")).await;
    });
    assert_eq!(result["content"][0]["text"], "eu");
    assert_eq!(
        world
            .count("SELECT count(*) FROM tasks WHERE phase IS NOT NULL")
            .await,
        0
    );
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_told_so_and_stopped() {
    let world = World::with(Config {
        call_limit: SECOND,
        ..config()
    })
    .await;
    let alice = Legacy::new(&world, "alice");
    let told = alice.error("tools/call", json!({"name": "call"})).await;
    assert_eq!(told["code"], -32603);
    assert_eq!(told["data"]["reason"], "call_limit");
    assert!(
        told["message"].as_str().unwrap().contains("`task`"),
        "{told}"
    );
    world
        .until(
            "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'",
            1,
        )
        .await;
}

#[tokio::test]
async fn a_call_whose_client_goes_away_is_stopped() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let params = json!({"name": "call", "arguments": {}});
    let stream = alice.request("tools/call", params).stream().await.unwrap();
    world
        .until("SELECT count(*) FROM tasks WHERE phase = 'queued'", 1)
        .await;
    drop(stream);
    world
        .until(
            "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'",
            1,
        )
        .await;
}
