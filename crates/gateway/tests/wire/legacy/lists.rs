//! `tasks/list`: one's own, in pages, and never for anybody who is anybody.

use gateway::Config;
use serde_json::{Value, json};

use super::{Legacy, id_of};
use crate::support::{World, config, text};

#[tokio::test]
async fn ones_own_tasks_in_pages() {
    let world = World::with(Config {
        list_page: 2,
        ..config()
    })
    .await;
    let (alice, bob) = (Legacy::new(&world, "alice"), Legacy::new(&world, "bob"));
    assert_eq!(
        alice.result("tasks/list", json!({})).await,
        json!({"tasks": []})
    );
    let mut mine = Vec::new();
    for _ in 0..5 {
        mine.push(alice.task("task").await["taskId"].clone());
    }
    let theirs = bob.task("task").await;
    // One of each kind.
    for (at, end) in ["completed", "failed"].into_iter().enumerate() {
        let id = mine[at].as_str().unwrap().parse().unwrap();
        let claim = world.claim_task("task", id).await;
        match end {
            "completed" => world.complete(&claim, &text("done")).await,
            _ => {
                let result = json!({"resultType": "complete", "content": [], "isError": true});
                world.complete(&claim, &result).await;
            }
        }
    }
    alice
        .result("tasks/cancel", json!({"taskId": mine[2]}))
        .await;

    let mut listed: Vec<Value> = Vec::new();
    let mut params = json!({});
    let mut cursors = Vec::new();
    loop {
        let page = alice.result("tasks/list", params).await;
        let tasks = page["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 2);
        listed.extend(tasks.iter().cloned());
        match &page["nextCursor"] {
            Value::Null => break,
            cursor => {
                cursors.push(cursor.clone());
                params = json!({"cursor": cursor});
            }
        }
    }
    assert_eq!(cursors.len(), 2);
    let mut ids: Vec<_> = listed
        .iter()
        .map(|task| task["taskId"].as_str().unwrap())
        .collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "the newest first: {ids:?}");
    ids.sort_unstable();
    let mut expected: Vec<_> = mine.iter().map(|id| id.as_str().unwrap()).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    // As `tasks/get` shows them.
    for task in &listed {
        let mut shown = alice.result("tasks/get", id_of(task)).await;
        shown["pollInterval"] = task["pollInterval"].clone();
        assert_eq!(*task, shown);
    }
    let status = |at: usize| {
        let task = listed.iter().find(|task| task["taskId"] == mine[at]);
        task.unwrap()["status"].clone()
    };
    assert_eq!(
        (status(0), status(1)),
        (json!("completed"), json!("failed"))
    );
    assert_eq!(
        (status(2), status(3)),
        (json!("cancelled"), json!("working"))
    );

    let page = bob.result("tasks/list", json!({})).await;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(page["tasks"][0]["taskId"], theirs["taskId"]);
    // A cursor is of use to its owner only, and not to be made.
    assert_eq!(
        bob.code("tasks/list", json!({"cursor": cursors[0]})).await,
        -32602
    );
    let mut damaged = cursors[0].as_str().unwrap().to_owned();
    damaged.push('A');
    for forged in [
        json!(damaged),
        json!(""),
        json!("x"),
        mine[0].clone(),
        json!(7),
    ] {
        assert_eq!(
            alice.code("tasks/list", json!({"cursor": forged})).await,
            -32602
        );
    }
}

/// Calls that were answered inline are no tasks to anybody.
#[tokio::test]
async fn only_what_its_owner_may_know_is_listed() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let params = json!({"name": "call", "arguments": {}});
    let (_, ()) = tokio::join!(alice.result("tools/call", params), async {
        let claim = world.claim("call").await;
        let page = alice.result("tasks/list", json!({})).await;
        assert_eq!(page, json!({"tasks": []}));
        world.complete(&claim, &text("done")).await;
    });
}

#[tokio::test]
async fn nobody_lists_what_others_do() {
    let world = World::new().await;
    let nobody = Legacy::nobody(&world);
    let named = Legacy::new(&world, "anonymous");
    for caller in [&nobody, &named] {
        let task = caller.task("task").await;
        assert_eq!(caller.code("tasks/list", json!({})).await, -32601);
        assert_eq!(
            caller.result("tasks/get", id_of(&task)).await["status"],
            "working"
        );
    }
}

/// Without a key no cursor can be sealed.
#[tokio::test]
async fn there_is_no_list_without_a_key() {
    let world = World::with(Config {
        request_state_keys: Vec::new(),
        ..config()
    })
    .await;
    let alice = Legacy::new(&world, "alice");
    assert_eq!(alice.code("tasks/list", json!({})).await, -32601);
    let params = json!({"protocolVersion": "2025-11-25"});
    let result = alice.result("initialize", params).await;
    assert!(result["capabilities"]["tasks"].get("list").is_none());
}
