//! Listing and calling tools of an older server, and what its calls come to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tools::upstream::UpstreamConfig;

use crate::server::{Reply, Seen, Server, event, legacy, legacy_script, tool};
use crate::world::{World, config};

fn text(seen: &Seen) -> Reply {
    let answer = json!({ "content": [{ "type": "text", "text": seen.body["params"]["arguments"].to_string() }] });
    Reply::json(seen.result(answer))
}

fn reason(error: &worker::ToolError) -> String {
    let data = error.as_failed().and_then(|failed| failed.data.as_ref());
    data.and_then(|data| data["reason"].as_str())
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn tools_are_listed_as_their_server_lists_them() {
    let listed = json!({
        "name": "get", "title": "Get", "description": "Gets.",
        "inputSchema": { "type": "object", "properties": { "n": { "type": "number", "default": 1.50 } } },
        "outputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": true, "title": "G", "vendorHint": [1] },
        "icons": [{ "src": "data:,", "sizes": ["1x1"] }],
        "_meta": { "vendor/x": { "y": 1 } },
    });
    let server = legacy(json!([listed]), text).await;
    let world = World::of(&server.url).await;
    let specs = world.tools.specs();
    let shown: Value = serde_json::from_slice(&specs[0].definition.to_json()).unwrap();
    let mut wanted = listed;
    wanted["name"] = json!("up_get");
    assert_eq!(shown, wanted);
    // Greeted, and from then on in the session.
    server
        .until(|seen| seen.iter().any(|s| s.method() == "tools/list"))
        .await;
    let list = &server.of("tools/list")[0];
    assert_eq!(list.header("mcp-session-id"), "s-1");
    assert_eq!(list.header("mcp-protocol-version"), "2025-11-25");
    assert_eq!(server.of("notifications/initialized").len(), 1);
    world.end().await;
    assert!(server.seen().iter().any(|seen| seen.verb == "DELETE"));
}

#[tokio::test]
async fn all_pages_are_read() {
    let pages = Server::start(|seen: &Seen| {
        if seen.method() != "tools/list" {
            return legacy_script(json!([]), text)(seen);
        }
        let page = match seen.body["params"]["cursor"].as_str() {
            None => json!({ "tools": [tool("a", json!({}))], "nextCursor": "2" }),
            Some(_) => json!({ "tools": [tool("b", json!({}))] }),
        };
        Reply::json(seen.result(page))
    })
    .await;
    let world = World::of(&pages.url).await;
    assert_eq!(world.names(), ["up_a", "up_b"]);
}

#[tokio::test]
async fn arguments_and_results_pass_unchanged() {
    let result = r#"{"content":[{"type":"hologram","rays":[1.50,12345678901234567890]},{"type":"text","text":"x","vendor":{"a":1}}],"structuredContent":{"n":1.0},"isError":true,"extra":{"b":2}}"#;
    let server = legacy(json!([tool("t", json!({}))]), move |seen: &Seen| {
        let id = &seen.body["id"];
        Reply::Plain(
            200,
            Vec::new(),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"),
        )
    })
    .await;
    let world = World::of(&server.url).await;
    let arguments = json!({ "deep": { "list": [1, "ü", null] } });
    let run = world.kit("up_t").arguments(arguments.clone()).run().await;
    let got = run.result().unwrap();
    let text = String::from_utf8(got.to_json().to_vec()).unwrap();
    assert_eq!(
        text,
        format!("{{\"resultType\":\"complete\",{}", &result[1..])
    );
    assert!(got.is_error);
    let call = &server.of("tools/call")[0];
    assert_eq!(call.body["params"]["arguments"], arguments);
    assert_eq!(call.body["params"]["name"], "t");
}

#[tokio::test]
async fn a_result_too_long_for_the_journal_passes() {
    let long = "x".repeat(2 * 1024 * 1024);
    let server = legacy(json!([tool("t", json!({}))]), move |seen: &Seen| {
        Reply::json(seen.result(json!({ "content": [{ "type": "text", "text": long }] })))
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").run().await;
    let content = &run.result().unwrap().content;
    assert_eq!(content[0].as_text().unwrap().len(), 2 * 1024 * 1024);
}

#[tokio::test]
async fn progress_is_said() {
    let server = legacy(json!([tool("t", json!({}))]), |seen: &Seen| {
        Reply::events([
            seen.progress(json!({ "progress": 1, "total": 4 })),
            seen.progress(json!({ "progress": 2.5, "total": 4, "message": "more than half" })),
            seen.result(json!({ "content": [] })),
        ])
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").run().await;
    run.result().unwrap();
    let said: Vec<&str> = run
        .progress()
        .iter()
        .filter_map(|p| p.message.as_deref())
        .collect();
    assert_eq!(said, ["1 of 4", "more than half"]);
    assert_eq!(run.progress()[1].progress.as_f64(), Some(2.5));
}

#[tokio::test]
async fn errors_of_the_server_are_the_task_s() {
    let server = legacy(json!([tool("t", json!({}))]), |seen: &Seen| {
        Reply::json(json!({ "jsonrpc": "2.0", "id": seen.body["id"],
            "error": { "code": -32602, "message": "no such city", "data": { "city": "X" } } }))
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").run().await;
    let error = run.result().unwrap_err().as_failed().unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32602, "no such city")
    );
    assert_eq!(error.data, Some(json!({ "city": "X" })));
}

#[tokio::test]
async fn our_credentials_are_shown() {
    let server = legacy(json!([tool("t", json!({}))]), text).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret-1\n").unwrap();
    let world = World::start(vec![UpstreamConfig {
        bearer_file: Some(file.path().to_owned()),
        headers: [("X-Team".to_owned(), "blue".to_owned())].into(),
        ..config(&server.url)
    }]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    // Read again each time: it may be replaced.
    std::fs::write(file.path(), "secret-2").unwrap();
    world.kit("up_t").run().await.result().unwrap();
    assert_eq!(
        server.of("initialize")[0].header("authorization"),
        "Bearer secret-1"
    );
    let call = &server.of("tools/call")[0];
    assert_eq!(call.header("authorization"), "Bearer secret-2");
    assert_eq!(call.header("x-team"), "blue");
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_there() {
    let tools = json!([
        tool("look", json!({ "readOnlyHint": true })),
        tool("act", json!({}))
    ]);
    let server = legacy(tools, |_: &Seen| Reply::held([])).await;
    let world = World::of(&server.url).await;
    for (name, calls) in [("up_look", 1), ("up_act", 2)] {
        let stop = CancellationToken::new();
        let cancelling = async {
            server
                .until(|seen| seen.iter().filter(|s| s.method() == "tools/call").count() == calls)
                .await;
            stop.cancel();
        };
        let (run, ()) = tokio::join!(world.kit(name).stopped_by(stop.clone()).run(), cancelling);
        let error = run.result().unwrap_err();
        if name == "up_look" {
            assert!(error.is_stopped(), "{error}");
        } else {
            // It may have taken effect.
            assert_eq!(reason(error), "step_in_doubt");
        }
        let call = server.of("tools/call").pop().unwrap();
        let cancelled = server.of("notifications/cancelled").pop().unwrap();
        assert_eq!(cancelled.body["params"]["requestId"], call.body["id"]);
    }
}

#[tokio::test]
async fn after_a_lost_worker_hints_decide() {
    let tools = json!([
        tool("look", json!({ "readOnlyHint": true })),
        tool("set", json!({ "idempotentHint": true })),
        tool("act", json!({})),
        tool("trusted", json!({})),
    ]);
    let server = legacy(tools, text).await;
    let mut config = config(&server.url);
    let repeatable = tools::upstream::ToolConfig {
        effects: Some(tools::upstream::Effects::Repeatable),
        hide: false,
    };
    config.tools.insert("trusted".to_owned(), repeatable);
    let world = World::start(vec![config]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    for name in ["up_look", "up_set", "up_trusted"] {
        let run = world.kit(name).begun("call").run().await;
        run.result().unwrap();
    }
    let run = world.kit("up_act").begun("call").run().await;
    assert_eq!(reason(run.result().unwrap_err()), "step_in_doubt");
    assert_eq!(server.of("tools/call").len(), 3);
}

#[tokio::test]
async fn an_ended_session_is_opened_again() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let server = legacy(json!([tool("t", json!({}))]), |seen: &Seen| {
        if CALLS.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::status(404);
        }
        text(seen)
    })
    .await;
    let world = World::of(&server.url).await;
    world.kit("up_t").run().await.result().unwrap();
    assert_eq!(server.of("initialize").len(), 2);
    assert_eq!(server.of("tools/call").len(), 2);
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_again_where_the_server_can() {
    let script = legacy_script(json!([tool("t", json!({}))]), |seen: &Seen| {
        let said = event(&seen.progress(json!({ "progress": 1, "message": "half" })));
        let id = seen.body["id"].as_i64().unwrap();
        Reply::Stream(vec![format!("id: {id}/7\n{said}")], false)
    });
    let server = Server::start(move |seen: &Seen| {
        let last = seen.header("last-event-id");
        match last.split_once('/') {
            Some((id, _)) if seen.verb == "GET" => {
                let id: i64 = id.parse().unwrap();
                Reply::events([json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } })])
            }
            _ => script(seen),
        }
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").run().await;
    run.result().unwrap();
    assert_eq!(server.of("tools/call").len(), 1);
    assert_eq!(run.progress().len(), 1);
}

#[tokio::test]
async fn a_stream_that_just_ends_leaves_doubt() {
    let tools = json!([
        tool("look", json!({ "readOnlyHint": true })),
        tool("act", json!({}))
    ]);
    let server = legacy(tools, |seen: &Seen| {
        Reply::events([seen.progress(json!({ "progress": 1 }))])
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_look").run().await;
    assert!(run.result().unwrap_err().is_retryable());
    let run = world.kit("up_act").run().await;
    let error = run.result().unwrap_err();
    assert_eq!(reason(error), "step_in_doubt");
    assert!(
        error
            .to_string()
            .contains("has ended the stream without an answer"),
        "{error}"
    );
}

#[tokio::test]
async fn a_changed_list_is_read_at_once() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    let script = legacy_script(json!([]), text);
    let server = Server::start(
        move |seen: &Seen| match (seen.verb.as_str(), seen.method()) {
            ("GET", _) => Reply::held([]),
            ("POST", "tools/list") => {
                let tools = if LISTS.fetch_add(1, Ordering::SeqCst) == 0 {
                    json!([tool("a", json!({})), tool("b", json!({}))])
                } else {
                    let mut b = tool("b", json!({}));
                    b["description"] = json!("another one");
                    json!([b, tool("c", json!({}))])
                };
                Reply::json(seen.result(json!({ "tools": tools })))
            }
            _ => script(seen),
        },
    )
    .await;
    let world = World::of(&server.url).await;
    assert_eq!(world.names(), ["up_a", "up_b"]);
    server
        .until(|seen| seen.iter().any(|s| s.verb == "GET"))
        .await;
    server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    world.until(|tools, _| tools.contains("up_c")).await;
    assert_eq!(world.names(), ["up_b", "up_c"]);
    let specs = world.tools.specs();
    assert_eq!(
        specs[0].definition.description.as_deref(),
        Some("another one")
    );
}

#[tokio::test]
async fn a_list_is_read_again_at_intervals() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    let script = legacy_script(json!([]), text);
    let server = Server::start(move |seen: &Seen| {
        if seen.method() != "tools/list" {
            return script(seen);
        }
        let name = if LISTS.fetch_add(1, Ordering::SeqCst) == 0 {
            "a"
        } else {
            "b"
        };
        Reply::json(seen.result(json!({ "tools": [tool(name, json!({}))] })))
    })
    .await;
    let world = World::start(vec![UpstreamConfig {
        refresh: Duration::from_millis(100),
        ..config(&server.url)
    }]);
    world
        .until(|tools, _| tools.contains("up_b") && !tools.contains("up_a"))
        .await;
}

#[tokio::test]
async fn changed_settings_take_effect_without_ending_a_call() {
    let old = legacy(
        json!([tool("t", json!({})), tool("u", json!({}))]),
        |_: &Seen| Reply::held([]),
    )
    .await;
    let new = legacy(json!([tool("t", json!({}))]), text).await;
    let world = World::of(&old.url).await;
    let changing = async {
        old.until(|seen| seen.iter().any(|s| s.method() == "tools/call"))
            .await;
        let wanted = tools::upstream::Wanted::plain(config(&new.url));
        world.upstreams.set(vec![wanted.clone()]).unwrap();
        world.until(|tools, _| !tools.contains("up_u")).await;
        // Again the same: nothing is greeted anew.
        world.upstreams.set(vec![wanted]).unwrap();
        world.kit("up_t").run().await.result().unwrap();
        assert_eq!(new.of("initialize").len(), 1);
        let call = old.of("tools/call").pop().unwrap();
        old.say(&call.result(json!({ "content": [] })));
    };
    let (run, ()) = tokio::join!(world.kit("up_t").run(), changing);
    run.result().unwrap();
    old.until(|seen| seen.iter().any(|s| s.verb == "DELETE"))
        .await;
    world.upstreams.set(Vec::new()).unwrap();
    world
        .until(|tools, told| tools.is_empty() && told.is_none())
        .await;
}
