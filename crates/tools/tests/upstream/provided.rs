//! Resources, prompts and completions of an upstream: listed, asked, subscribed to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tools::upstream::UpstreamConfig;
use worker::testkit::{Kit, updated};
use worker::{CompleteParams, Provider, Reference};

use crate::server::{Reply, Seen, Server};
use crate::world::{World, config};

fn capabilities() -> Value {
    json!({
        "tools": {}, "prompts": { "listChanged": true }, "completions": {},
        "resources": { "subscribe": true, "listChanged": true }
    })
}

/// What both kinds of server answer.
fn serves(seen: &Seen) -> Reply {
    let params = &seen.body["params"];
    let uri = params["uri"].as_str().unwrap_or_default();
    Reply::json(seen.result(match seen.method() {
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [
            { "type": "resource_link", "uri": "note://two", "name": "two" },
            { "type": "text", "text": "note://two" }
        ] }),
        "resources/list" if params["cursor"] == "2" => json!({ "resources": [
            { "uri": "note://two", "name": "two" }, { "uri": "note://two", "name": "again" },
            { "uri": "no uri", "name": "bad" }, 7
        ] }),
        "resources/list" => json!({
            "resources": [{ "uri": "note://one", "name": "one", "title": "The first",
                "annotations": { "priority": 0.50 }, "_meta": { "x": 1 } }],
            "nextCursor": "2"
        }),
        "resources/templates/list" => json!({ "resourceTemplates": [
            { "uriTemplate": "note://{year}/all", "name": "year" }, { "uriTemplate": "note://{", "name": "x" }
        ] }),
        "prompts/list" => json!({ "prompts": [
            { "name": "greet", "arguments": [{ "name": "who", "required": true }] }, { "name": "" }
        ] }),
        "resources/read" if uri == "note://gone" => {
            return Reply::json(json!({ "jsonrpc": "2.0", "id": seen.body["id"],
                "error": { "code": -32002, "message": "Resource not found" } }));
        }
        "resources/read" => json!({ "contents": [{ "uri": uri, "text": "x", "n": 1.50 }] }),
        "prompts/get" => json!({ "messages": [{ "role": "user", "content":
            { "type": "text", "text": format!("Hello, {}", params["arguments"]["who"]) } }] }),
        "completion/complete" => json!({ "completion": { "values": [
            params["ref"]["name"].as_str().or(params["ref"]["uri"].as_str()), params["argument"]["value"]
        ] } }),
        _ => json!({}),
    }))
}

fn legacy(seen: &Seen) -> Reply {
    match (seen.verb.as_str(), seen.method()) {
        ("POST", "server/discover") => Reply::status(400),
        ("POST", "initialize") => Reply::Plain(
            200,
            vec![("mcp-session-id", "s-1".to_owned())],
            seen.result(
                json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities(),
                "serverInfo": { "name": "old", "version": "1" } }),
            )
            .to_string(),
        ),
        ("POST", method) if method.starts_with("notifications/") => Reply::status(202),
        ("POST", _) => serves(seen),
        ("GET", _) => Reply::held([]),
        _ => Reply::status(405),
    }
}

fn modern(seen: &Seen) -> Reply {
    match seen.method() {
        "server/discover" => Reply::json(seen.result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities(), "ttlMs": 0, "cacheScope": "private"
        }))),
        "subscriptions/listen" => Reply::held([]),
        _ => serves(seen),
    }
}

async fn provided(world: &World) -> Arc<dyn Provider> {
    world.until(|tools, _| tools.contains_provider("up")).await;
    world.tools.provider("up").unwrap()
}

#[tokio::test]
async fn lists_pass_under_the_prefix_and_what_is_wrong_is_left_out() {
    for script in [legacy, modern] {
        let server = Server::start(script).await;
        let world = World::of(&server.url).await;
        let spec = provided(&world).await.spec();
        let resources = spec.resources.unwrap();
        let listed: Vec<_> = resources.list.iter().map(|r| (&*r.uri, &*r.name)).collect();
        assert_eq!(listed, [("note://one", "up_one"), ("note://two", "up_two")]);
        let first = serde_json::to_string(&resources.list[0]).unwrap();
        assert!(
            first.contains(r#""priority":0.50"#) || first.contains(r#""priority":0.5"#),
            "{first}"
        );
        assert!(
            first.contains("The first") && first.contains(r#""_meta":{"x":1}"#),
            "{first}"
        );
        assert_eq!(resources.templates.len(), 1);
        assert!(resources.subscribe && spec.completes && resources.prefixes.is_empty());
        let prompts: Vec<String> = spec.prompts.unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(prompts, ["up_greet"]);
    }
}

#[tokio::test]
async fn what_is_asked_goes_through_the_connection() {
    for script in [legacy, modern] {
        let server = Server::start(script).await;
        let world = World::of(&server.url).await;
        let up = provided(&world).await;
        let read = Kit::reading(Arc::clone(&up), "note://one").run().await;
        let contents = read.json().unwrap()["contents"][0].clone();
        assert_eq!(
            contents,
            json!({ "uri": "note://one", "text": "x", "n": 1.5 })
        );
        let who = BTreeMap::from([("who".to_owned(), "Ada".to_owned())]);
        let got = Kit::prompting(Arc::clone(&up), "up_greet", who).run().await;
        assert_eq!(
            got.json().unwrap()["messages"][0]["content"]["text"],
            "Hello, \"Ada\""
        );
        for (reference, there) in [
            (Reference::Prompt("up_greet".to_owned()), "greet"),
            (
                Reference::Resource("note://{year}/all".to_owned()),
                "note://{year}/all",
            ),
        ] {
            let asked = CompleteParams {
                reference,
                argument: "who".to_owned(),
                value: "A".to_owned(),
                context: BTreeMap::new(),
            };
            let completed = Kit::completing(Arc::clone(&up), asked).run().await;
            assert_eq!(
                completed.json().unwrap()["completion"]["values"],
                json!([there, "A"])
            );
        }
        let gone = Kit::reading(up, "note://gone").run().await;
        let error = gone.error().unwrap();
        assert_eq!(
            (error.code, error.data.unwrap()["uri"].clone()),
            (-32602, json!("note://gone"))
        );
        let read = &server.of("resources/read")[0];
        if !read.header("mcp-method").is_empty() {
            assert_eq!(read.header("mcp-name"), "note://one");
        }
        assert!(read.body["params"]["_meta"]["progressToken"].is_i64());
    }
}

#[tokio::test]
async fn uris_are_told_apart_also_where_results_link_to_them() {
    let server = Server::start(modern).await;
    let world = World::start(vec![UpstreamConfig {
        uri_prefix: "up+".to_owned(),
        ..config(&server.url)
    }]);
    let up = provided(&world).await;
    let resources = up.spec().resources.unwrap();
    assert_eq!(resources.list[0].uri, "up+note://one");
    assert_eq!(resources.templates[0].uri_template, "up+note://{year}/all");
    assert_eq!(resources.prefixes, ["up+"]);
    let read = Kit::reading(Arc::clone(&up), "up+note://one").run().await;
    assert_eq!(read.json().unwrap()["contents"][0]["uri"], "up+note://one");
    assert_eq!(
        server.of("resources/read")[0].body["params"]["uri"],
        "note://one"
    );
    let called = world.kit("up_t").run().await.json().unwrap();
    assert_eq!(called["content"][0]["uri"], "up+note://two");
    assert_eq!(called["content"][1]["text"], "note://two");
    let gone = Kit::reading(up, "up+note://gone").run().await;
    assert_eq!(gone.error().unwrap().data.unwrap()["uri"], "up+note://gone");
}

fn changed(uri: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } })
}

#[tokio::test]
async fn what_is_listened_to_is_subscribed_to_and_heard_of() {
    for (script, is_modern) in [(legacy as fn(&Seen) -> Reply, false), (modern, true)] {
        let server = Server::start(script).await;
        let world = World::of(&server.url).await;
        let up = provided(&world).await;
        up.wanted(&["note://one".to_owned()].into());
        let subscribed = |seen: &Seen| {
            let params = &seen.body["params"];
            match seen.method() {
                "resources/subscribe" => params["uri"] == "note://one",
                "subscriptions/listen" => {
                    params["notifications"]["resourceSubscriptions"] == json!(["note://one"])
                }
                _ => false,
            }
        };
        server.until(|seen| seen.iter().any(subscribed)).await;
        // Nobody listens to this one.
        server.say(&changed("note://two"));
        server.say(&changed("note://one/part"));
        let heard = async {
            loop {
                let heard = updated(&world.tools).await;
                if heard.iter().any(|uri| uri == "note://one/part") {
                    return heard;
                }
            }
        };
        let heard = tokio::time::timeout(Duration::from_secs(60), heard)
            .await
            .unwrap();
        assert!(!heard.contains(&"note://two".to_owned()), "{heard:?}");
        up.wanted(&[].into());
        let over = |seen: &Seen| match seen.method() {
            "resources/unsubscribe" => true,
            _ => {
                seen.verb == "CLOSED"
                    && subscribed(&Seen {
                        body: seen.body["of"].clone(),
                        ..seen.clone()
                    })
            }
        };
        server.until(|seen| seen.iter().any(over)).await;
        assert_eq!(server.of("initialize").is_empty(), is_modern);
    }
}

#[tokio::test]
async fn lists_that_change_are_read_again_and_those_that_end_are_withdrawn() {
    let more = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&more);
    let server = Server::start(move |seen: &Seen| {
        if seen.method() == "prompts/list" && shown.load(Ordering::SeqCst) {
            return Reply::json(seen.result(json!({ "prompts": [{ "name": "new" }] })));
        }
        modern(seen)
    })
    .await;
    let world = World::of(&server.url).await;
    provided(&world).await;
    more.store(true, Ordering::SeqCst);
    server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" }));
    let is_new = |tools: &worker::ToolSet| {
        let spec = tools.provider("up").map(|up| up.spec());
        spec.and_then(|s| s.prompts)
            .is_some_and(|p| p[0].name == "up_new")
    };
    world.until(|tools, _| is_new(tools)).await;
    // Settings may leave them out.
    let without = UpstreamConfig {
        resources: false,
        prompts: false,
        ..config(&server.url)
    };
    let wanted = tools::upstream::Wanted::plain(without);
    world.upstreams.set(vec![wanted]).unwrap();
    world
        .until(|tools, _| !tools.contains_provider("up") && tools.contains("up_t"))
        .await;
    world.upstreams.set(Vec::new()).unwrap();
    world.until(|tools, _| tools.is_empty()).await;
}

/// Several round trips, and a worker that does not know of those before.
#[tokio::test]
async fn a_prompt_may_ask_first() {
    let server = Server::start(|seen: &Seen| {
        let params = &seen.body["params"];
        if seen.method() != "prompts/get" {
            return modern(seen);
        }
        let needs = |key: &str, state: &str| {
            let form = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": key,
                "requestedSchema": { "type": "object", "properties": { "v": { "type": "string" } } } } });
            Reply::json(seen.result(json!({ "resultType": "input_required",
                "inputRequests": { "q": form }, "requestState": state })))
        };
        let v = &params["inputResponses"]["q"]["content"]["v"];
        match params["requestState"].as_str() {
            None => needs("first", "1"),
            Some("1") if v == "a" => needs("second", "2"),
            Some("2") if v == "b" => Reply::json(seen.result(json!({
                "resultType": "complete", "messages": [], "description": "done" }))),
            _ => Reply::status(500),
        }
    })
    .await;
    let world = World::of(&server.url).await;
    let up = provided(&world).await;
    let answer = |v: &str| json!({ "action": "accept", "content": { "v": v } });
    let kit = || Kit::prompting(Arc::clone(&up), "up_greet", BTreeMap::new());
    let run = kit()
        .answer("q", answer("a"))
        .answer("q.2", answer("b"))
        .run()
        .await;
    assert_eq!(run.json().unwrap()["description"], "done");
    // What was needed was journaled: only the first request says nothing.
    assert_eq!(server.of("prompts/get").len(), 3);
    // Who cannot be asked is not: the server is told so, and asks all the same.
    let refused = kit().capabilities(json!({})).run().await;
    assert_eq!(refused.error().unwrap().code, -32021);
    let told = &server.of("prompts/get")[3].body["params"]["_meta"];
    assert_eq!(
        told["io.modelcontextprotocol/clientCapabilities"],
        json!({})
    );
}
