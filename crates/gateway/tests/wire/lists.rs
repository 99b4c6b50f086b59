//! `server/discover` and `tools/list`.

use serde_json::json;
use store::ToolSpec;

use crate::support::{SECOND, SOON, World, config, tools};

#[tokio::test]
async fn discover() {
    let world = World::new().await;
    let result = world.client("alice").undeclared().discover().await.unwrap();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    let capabilities = json!({"tools": {"listChanged": true},
                              "extensions": {"io.modelcontextprotocol/tasks": {}}});
    assert_eq!(result["capabilities"], capabilities);
    assert!(
        result["instructions"]
            .as_str()
            .unwrap()
            .contains("tasks/get")
    );
    assert!(result["ttlMs"].as_u64().is_some());
    assert_eq!(
        (&result["cacheScope"], &result["resultType"]),
        (&json!("public"), &json!("complete"))
    );
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["version"].is_string());
}

#[tokio::test]
async fn pages_hold_every_tool_once_in_the_same_order() {
    let mut config = config();
    config.list_page = 3;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let names = async || -> Vec<String> {
        let tools = alice.list().await.unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = names().await;
    assert_eq!(all.len(), tools().len());
    assert!(all.is_sorted());
    assert_eq!(names().await, all);
    let page = alice.request("tools/list", json!({})).send().await.unwrap();
    let page = page.into_result().unwrap();
    assert_eq!(page["tools"].as_array().unwrap().len(), 3);
    assert!(page["ttlMs"].is_u64() && page["cacheScope"] == "public");
    assert_eq!(page["tools"][0]["inputSchema"]["type"], "object");
    // The cursor holds while tools go.
    world.store.delist_tool(&all[2], 1).await.unwrap();
    let look = async || {
        let next = alice.request("tools/list", json!({"cursor": page["nextCursor"]}));
        next.send().await.unwrap().into_result().unwrap()["tools"][0]["name"].clone()
    };
    assert_eq!(look().await, all[3].as_str());
}

#[tokio::test]
async fn new_tools_are_served_without_a_restart() {
    let world = World::new().await;
    let alice = world.client("alice");
    let mut listen = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    listen.next(SOON).await.unwrap();
    let schema = json!({"type": "object"});
    let spec = ToolSpec::new(protocol::tools::Tool::new("brand_new", &schema));
    world
        .store
        .register_tools(&[spec], 60 * SECOND)
        .await
        .unwrap();
    // Known to a call even before the list was read again.
    let call = alice.request(
        "tools/call",
        json!({"name": "brand_new", "requestState": "x"}),
    );
    let error = call.send().await.unwrap().error()["message"].clone();
    assert!(error.as_str().unwrap().contains("requestState"), "{error}");
    world.queue.catalogue_changed().await;
    let told = listen.next(SOON).await.unwrap().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    let listed = alice.list().await.unwrap();
    assert!(listed.iter().any(|tool| tool["name"] == "brand_new"));
}

#[tokio::test]
async fn broken_tools_are_left_out_and_counted() {
    let world = World::new().await;
    let alice = world.client("alice");
    let remote = json!({"type": "object", "$ref": "http://127.0.0.1:9/schema.json"});
    let spec = ToolSpec::new(protocol::tools::Tool::new("remote", &remote));
    world
        .store
        .register_tools(&[spec], 60 * SECOND)
        .await
        .unwrap();
    let refused = async || world.metric("mcp_tasks_gateway_catalogue_refused_tools");
    harness::wait::for_state("it is counted", SOON, refused, |n| *n > 0.5)
        .await
        .unwrap();
    assert_eq!(alice.list().await.unwrap().len(), tools().len());
    let call = alice
        .request("tools/call", json!({"name": "remote"}))
        .send()
        .await
        .unwrap();
    assert_eq!(call.error_code(), Some(-32602));
}
