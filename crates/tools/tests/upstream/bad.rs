//! Servers that are down, slow, wrong, or send us elsewhere.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tools::upstream::{Protocol, UpstreamConfig};

use crate::server::{Reply, Seen, Server, legacy, legacy_script, tool};
use crate::world::{World, config};

fn done(seen: &Seen) -> Reply {
    Reply::json(seen.result(json!({ "content": [] })))
}

fn said(run: &worker::testkit::Run) -> String {
    run.result().unwrap_err().to_string()
}

#[tokio::test]
async fn one_that_is_down_at_the_start_disturbs_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let good = legacy(json!([tool("t", json!({}))]), done).await;
    let mut other = config(&good.url);
    (other.name, other.prefix) = ("good".to_owned(), "good_".to_owned());
    let world = World::start(vec![config(&format!("http://{address}/mcp")), other]);
    world
        .until(|tools, told| tools.contains("good_t") && matches!(told, Some(Err(_))))
        .await;
    world.kit("good_t").run().await.result().unwrap();
    // It comes up.
    let listener = TcpListener::bind(address).await.unwrap();
    let _up = Server::on(listener, legacy_script(json!([tool("t", json!({}))]), done));
    world
        .until(|tools, told| tools.contains("up_t") && told == Some(&Ok(())))
        .await;
    world.kit("up_t").run().await.result().unwrap();
}

#[tokio::test]
async fn what_is_known_of_one_that_goes_down_is_offered_on() {
    let server = legacy(json!([tool("t", json!({}))]), done).await;
    let mut config = config(&server.url);
    config.refresh = Duration::from_millis(100);
    config.timeout = Duration::from_secs(1);
    let world = World::start(vec![config]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    drop(server);
    world.until(|_, told| matches!(told, Some(Err(_)))).await;
    assert_eq!(world.names(), ["up_t"]);
    let run = world.kit("up_t").run().await;
    assert!(run.result().unwrap_err().is_retryable(), "{}", said(&run));
}

#[tokio::test]
async fn one_that_never_answers_is_given_up() {
    let server = Server::start(|_: &Seen| Reply::Silence).await;
    let world = World::start(vec![UpstreamConfig {
        timeout: Duration::from_millis(300),
        ..config(&server.url)
    }]);
    world
        .until(|_, told| matches!(told, Some(Err(why)) if why.contains("did not answer within")))
        .await;
}

#[tokio::test]
async fn garbage_is_called_so() {
    for reply in [
        || {
            Reply::Plain(
                200,
                vec![("content-type", "text/html".to_owned())],
                "<html>".to_owned(),
            )
        },
        || Reply::Stream(vec!["data: <html>\n\n".to_owned()], false),
        || Reply::json(json!({ "jsonrpc": "2.0", "id": 1 })),
    ] {
        let server = Server::start(move |_: &Seen| reply()).await;
        let world = World::start(vec![config(&server.url)]);
        world
            .until(|_, told| matches!(told, Some(Err(why)) if why.contains("garbage")))
            .await;
    }
    let raw = Server::start(|_: &Seen| Reply::Raw(b"\x00\x01nonsense\r\n\r\n".to_vec())).await;
    let world = World::start(vec![config(&raw.url)]);
    world.until(|_, told| matches!(told, Some(Err(_)))).await;
}

#[tokio::test]
async fn a_call_that_is_answered_with_garbage_says_so() {
    let tools = json!([
        tool("look", json!({ "readOnlyHint": true })),
        tool("act", json!({}))
    ]);
    for result in [
        json!("text"),
        json!({ "content": 3 }),
        json!({ "resultType": "later" }),
    ] {
        let server = legacy(tools.clone(), move |seen: &Seen| {
            Reply::json(seen.result(result.clone()))
        })
        .await;
        let world = World::of(&server.url).await;
        let run = world.kit("up_look").run().await;
        assert!(said(&run).contains("garbage"), "{}", said(&run));
        assert!(run.result().unwrap_err().as_failed().is_some());
        let run = world.kit("up_act").run().await;
        assert!(said(&run).contains("garbage"), "{}", said(&run));
    }
}

#[tokio::test]
async fn bad_tools_are_left_out_and_the_others_are_not() {
    let mut output = tool("output", json!({}));
    output["outputSchema"] = json!("no");
    let mut schema = tool("schema", json!({}));
    schema["outputSchema"] = json!({ "type": "no such type" });
    let mut input = tool("input", json!({}));
    input["inputSchema"] = json!({ "type": "array" });
    let mut task = tool("task", json!({}));
    task["execution"] = json!({ "taskSupport": "required" });
    let annotations = tool("annotations", json!({ "readOnlyHint": "maybe" }));
    let listed = json!([
        output, schema, input, task, annotations, 7, { "name": "bare" }, tool("a b", json!({})),
        tool("twice", json!({})), tool("twice", json!({})), tool("good", json!({}))
    ]);
    let server = legacy(listed, done).await;
    let world = World::of(&server.url).await;
    assert_eq!(world.names(), ["up_good", "up_twice"]);
}

#[tokio::test]
async fn a_list_without_end_is_given_up() {
    let script = legacy_script(json!([]), done);
    let server = Server::start(move |seen: &Seen| match seen.method() {
        "tools/list" => Reply::json(seen.result(json!({ "tools": [], "nextCursor": "again" }))),
        _ => script(seen),
    })
    .await;
    let world = World::start(vec![config(&server.url)]);
    world
        .until(|_, told| matches!(told, Some(Err(why)) if why.contains("for ever")))
        .await;
}

#[tokio::test]
async fn another_host_is_never_asked() {
    let other = Server::start(|_: &Seen| Reply::status(500)).await;
    let to = other.url.clone();
    let server = legacy(json!([tool("t", json!({}))]), move |_: &Seen| {
        Reply::Plain(307, vec![("location", to.clone())], String::new())
    })
    .await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").run().await;
    assert!(
        said(&run).contains("it is another server"),
        "{}",
        said(&run)
    );
    assert!(run.result().unwrap_err().as_failed().is_some());
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn another_path_of_the_same_host_is_asked() {
    let script = legacy_script(json!([tool("t", json!({}))]), done);
    let server = Server::start(move |seen: &Seen| match seen.path.as_str() {
        "/mcp" => Reply::Plain(307, vec![("location", "/mcp/".to_owned())], String::new()),
        _ => script(seen),
    })
    .await;
    let world = World::of(&server.url).await;
    world.kit("up_t").run().await.result().unwrap();
    let around = Server::start(|_: &Seen| {
        Reply::Plain(308, vec![("location", "/mcp".to_owned())], String::new())
    })
    .await;
    let world = World::start(vec![config(&around.url)]);
    world
        .until(|_, told| matches!(told, Some(Err(why)) if why.contains("redirects more than")))
        .await;
}

#[tokio::test]
async fn huge_answers_are_not_read_to_their_end() {
    let huge = "x".repeat(100_000);
    let replies: [fn(&Seen, &str) -> Reply; 2] = [
        |seen, huge| Reply::json(seen.result(json!({ "content": [], "x": huge }))),
        |seen, huge| Reply::events([seen.result(json!({ "content": [], "x": huge }))]),
    ];
    for reply in replies {
        let huge = huge.clone();
        let tools = json!([tool("look", json!({ "readOnlyHint": true }))]);
        let server = legacy(tools, move |seen: &Seen| reply(seen, &huge)).await;
        let world = World::start(vec![UpstreamConfig {
            message_bytes_max: 50_000,
            ..config(&server.url)
        }]);
        world.until(|_, told| told == Some(&Ok(()))).await;
        let run = world.kit("up_look").run().await;
        assert!(said(&run).contains("50000 bytes"), "{}", said(&run));
    }
}

#[tokio::test]
async fn a_message_may_be_as_long_as_is_allowed() {
    const MOST: usize = 50_000;
    for (length, fits) in [(MOST - 1, true), (MOST, true), (MOST + 1, false)] {
        let tools = json!([tool("look", json!({ "readOnlyHint": true }))]);
        let server = legacy(tools, move |seen: &Seen| {
            let of = |x: &str| seen.result(json!({ "content": [], "x": x }));
            let around = of("").to_string().len();
            Reply::json(of(&"x".repeat(length - around)))
        })
        .await;
        let world = World::start(vec![UpstreamConfig {
            message_bytes_max: MOST,
            ..config(&server.url)
        }]);
        world.until(|_, told| told == Some(&Ok(()))).await;
        let run = world.kit("up_look").run().await;
        assert_eq!(run.result().is_ok(), fits, "{length}");
        assert!(fits || said(&run).contains("50000 bytes"), "{length}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_and_not_tried_again() {
    let answers: [(u16, Option<Value>, bool, &str); 4] = [
        (401, None, false, "answered 401"),
        (403, Some(json!({ "no": 1 })), false, "answered 403"),
        (429, None, true, "answered 429"),
        (503, None, true, "answered 503"),
    ];
    for (status, body, again, text) in answers {
        let server = legacy(json!([tool("t", json!({}))]), move |_: &Seen| {
            let body = body.as_ref().map(Value::to_string).unwrap_or_default();
            Reply::Plain(status, Vec::new(), body)
        })
        .await;
        let world = World::of(&server.url).await;
        let run = world.kit("up_t").run().await;
        assert!(said(&run).contains(text), "{}", said(&run));
        assert_eq!(run.result().unwrap_err().is_retryable(), again);
    }
}

#[tokio::test]
async fn a_revision_that_is_set_is_not_asked_for() {
    let server = legacy(json!([tool("t", json!({}))]), done).await;
    let world = World::start(vec![UpstreamConfig {
        protocol: Protocol::Legacy,
        ..config(&server.url)
    }]);
    world.until(|_, told| told == Some(&Ok(()))).await;
    assert!(server.of("server/discover").is_empty());
    let world = World::start(vec![UpstreamConfig {
        protocol: Protocol::Modern,
        ..config(&server.url)
    }]);
    world.until(|_, told| matches!(told, Some(Err(_)))).await;
}

#[tokio::test]
async fn a_result_that_is_not_as_promised_is_told() {
    let mut promised = tool("t", json!({ "readOnlyHint": true }));
    promised["outputSchema"] =
        json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let results = [
        (
            json!({ "content": [], "structuredContent": { "n": 7 } }),
            None,
        ),
        (json!({ "content": [], "isError": true }), None),
        (
            json!({ "content": [], "structuredContent": { "n": "7" } }),
            Some("at /n"),
        ),
        (
            json!({ "content": [] }),
            Some("it has no structuredContent"),
        ),
    ];
    for (result, problem) in results {
        let server = legacy(json!([promised]), move |seen: &Seen| {
            Reply::json(seen.result(result.clone()))
        })
        .await;
        let world = World::of(&server.url).await;
        let run = world.kit("up_t").run().await;
        match problem {
            None => drop(run.result().unwrap()),
            Some(problem) => assert!(said(&run).contains(problem), "{}", said(&run)),
        }
    }
}

/// Ten thousand tools are a mistake; ten thousand resources are cut, and their tools are offered.
#[tokio::test]
async fn lists_that_are_too_long_are_told_or_cut() {
    let many: Vec<Value> = (0..10_000)
        .map(|n| tool(&format!("t{n}"), json!({})))
        .collect();
    let server = legacy(json!(many), done).await;
    let world = World::start(vec![config(&server.url)]);
    world
        .until(|_, told| matches!(told, Some(Err(why)) if why.contains("more than 1000 tools")))
        .await;
    assert!(world.tools.is_empty());

    let script = |seen: &Seen| {
        let resources: Vec<Value> = (0..10_000)
            .map(|n| json!({ "uri": format!("n://{n}"), "name": "n" }))
            .collect();
        Reply::json(seen.result(match seen.method() {
            "server/discover" => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "resources": {}, "prompts": {} }, "ttlMs": 0, "cacheScope": "private" }),
            "tools/list" => json!({ "tools": [tool("t", json!({}))] }),
            "resources/list" => json!({ "resources": resources }),
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "prompts/list" => json!({ "prompts": [] }),
            _ => return Reply::status(405),
        }))
    };
    let server = Server::start(script).await;
    let world = World::of(&server.url).await;
    let up = world.tools.provider("up").unwrap().spec();
    assert_eq!(up.resources.unwrap().list.len(), 2000);
    assert_eq!(world.names(), ["up_t"]);
}

/// What is wrong with other lists costs no tool.
#[tokio::test]
async fn resources_that_cannot_be_listed_cost_no_tool() {
    for broken in [
        json!({ "resources": "none" }),
        json!({}),
        json!({ "resources": [], "nextCursor": "again" }),
        json!({ "resources": [], "nextCursor": 7 }),
    ] {
        let server = Server::start(move |seen: &Seen| {
            Reply::json(seen.result(match seen.method() {
                "server/discover" => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": { "tools": {}, "resources": {} }, "ttlMs": 0, "cacheScope": "private" }),
                "tools/list" => json!({ "tools": [tool("t", json!({}))] }),
                "resources/list" => broken.clone(),
                _ => return Reply::status(405),
            }))
        })
        .await;
        let world = World::of(&server.url).await;
        assert_eq!(world.names(), ["up_t"]);
        assert!(!world.tools.contains_provider("up"));
    }
}
