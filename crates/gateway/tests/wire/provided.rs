//! Resources, prompts and completion: what is listed, what is asked of a worker, and what is refused.

mod places;

use harness::client::{Answer, Client};
use harness::sse::Stream;
use protocol::prompts::Prompt;
use protocol::resources::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use store::{ParkedFor, ProviderSpec, Resources};

use crate::support::{SECOND, SOON, World, config, yes};

const JOB: &str = "provider/notes";

fn spec() -> ProviderSpec {
    ProviderSpec {
        resources: Some(Resources {
            list: vec![
                Resource::new("note://today", "today").with_mime_type("text/plain"),
                Resource::new("note://café/☃", "snow"),
            ],
            templates: vec![ResourceTemplate::new("note://by-day/{day}", "By day")],
            prefixes: vec!["note+old:".to_owned()],
            subscribe: true,
        }),
        prompts: Some(vec![
            Prompt::new("summary")
                .needing("day", "Which.")
                .accepting("tone", "How."),
            Prompt::new("plain"),
        ]),
        completes: true,
        ..ProviderSpec::new("notes")
    }
}

async fn provide(world: &World, spec: ProviderSpec) {
    world.store.register_providers(&[spec]).await.unwrap();
    world.queue.catalogue_changed().await;
    let listed = async || {
        let found = world.client("alice").discover().await.unwrap();
        found["capabilities"].get("resources").is_some()
    };
    harness::wait::for_state("the provider is known", SOON, listed, |is| *is)
        .await
        .unwrap();
}

async fn world() -> World {
    let world = World::new().await;
    provide(&world, spec()).await;
    world
}

async fn send(client: &Client, method: &str, params: Value) -> Answer {
    client.request(method, params).send().await.unwrap()
}

async fn read(client: &Client, uri: &str) -> Answer {
    send(client, "resources/read", json!({ "uri": uri })).await
}

fn refused(answer: &Answer, code: i64) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.message);
    let error = answer.message["error"].clone();
    assert_eq!(error["code"], code, "{}", answer.message);
    error
}

fn contents(text: &str) -> Value {
    json!({ "resultType": "complete", "ttlMs": 7, "cacheScope": "private",
            "contents": [{ "uri": "note://today", "text": text }] })
}

async fn next(stream: &mut Stream) -> Value {
    let message = stream.next(SOON).await.unwrap();
    message.expect("the stream is open")
}

#[tokio::test]
async fn lists_are_advertised_and_come_in_pages_without_a_worker() {
    let mut config = config();
    config.list_page = 1;
    let world = World::with(config).await;
    let alice = world.client("alice");
    for method in ["resources/list", "resources/templates/list", "prompts/list"] {
        let answer = send(&alice, method, json!({})).await;
        assert_eq!(
            (answer.status, &answer.message["error"]["code"]),
            (404, &json!(-32601))
        );
    }
    provide(&world, spec()).await;
    let found = alice.discover().await.unwrap()["capabilities"].clone();
    assert_eq!(
        found["resources"],
        json!({ "listChanged": true, "subscribe": true })
    );
    assert_eq!(found["prompts"], json!({ "listChanged": true }));
    assert_eq!(found["completions"], json!({}));
    for (method, member, names) in [
        ("resources/list", "resources", vec!["today", "snow"]),
        (
            "resources/templates/list",
            "resourceTemplates",
            vec!["By day"],
        ),
        ("prompts/list", "prompts", vec!["plain", "summary"]),
    ] {
        let (mut seen, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = send(&alice, method, json!({ "cursor": cursor })).await;
            let page = page.into_result().unwrap();
            assert!(page["ttlMs"].is_u64() && page["cacheScope"] == "public");
            assert_eq!(page["resultType"], "complete");
            let items = page[member].as_array().unwrap();
            assert!(items.len() <= 1);
            seen.extend(
                items
                    .iter()
                    .map(|item| item["name"].as_str().unwrap().to_owned()),
            );
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        seen.sort();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(seen, names, "{method}");
        let broken = send(&alice, method, json!({ "cursor": "!" })).await;
        refused(&broken, -32602);
    }
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 0);
}

#[tokio::test]
async fn a_read_is_a_held_job_that_leaves_nothing() {
    let mut config = config();
    config.inline_budget = SECOND / 5;
    let world = World::with(config).await;
    provide(&world, spec()).await;
    // Also of a client that declares tasks: it never gets a handle.
    for client in [world.client("alice"), world.client("alice").undeclared()] {
        let reading = read(&client, "note://today");
        let working = async {
            let claim = world.claim(JOB).await;
            assert_eq!(&claim.arguments[..], br#"{"read":{"uri":"note://today"}}"#);
            tokio::time::sleep(SECOND).await;
            world.complete(&claim, &contents("Nothing.")).await;
        };
        let (answer, ()) = tokio::join!(reading, working);
        let result = answer.into_result().unwrap();
        assert_eq!(result["contents"], contents("Nothing.")["contents"]);
        assert_eq!(
            (&result["ttlMs"], &result["resultType"]),
            (&json!(7), &json!("complete"))
        );
        assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
        assert!(result.get("taskId").is_none());
    }
    world
        .until(
            "SELECT count(*) FROM tasks WHERE first_fetched_at IS NULL",
            0,
        )
        .await;
    // No client reaches the job by its name.
    let alice = world.client("alice");
    let error = refused(
        &send(&alice, "tools/call", json!({ "name": JOB })).await,
        -32602,
    );
    assert_eq!(error["message"], format!("Unknown tool: {JOB}"));
}

#[tokio::test]
async fn unlisted_uris_belong_to_templates_and_prefixes_and_others_to_nobody() {
    let world = world().await;
    let alice = world.client("alice");
    for uri in ["note://by-day/monday", "note+old:1999", "note://café/☃"] {
        let (answer, ()) = tokio::join!(read(&alice, uri), async {
            let claim = world.claim(JOB).await;
            world.complete(&claim, &contents(uri)).await;
        });
        let result = answer.into_result().unwrap();
        assert_eq!(result["contents"][0]["text"], uri);
    }
    for uri in [
        "note://by-day/",
        "note://Today",
        "other://x",
        "",
        "note://today ",
    ] {
        let answer = read(&alice, uri).await;
        let error = refused(&answer, -32602);
        assert_eq!(error["data"]["uri"], uri);
    }
    let long = format!("note+old:{}", "x".repeat(8192));
    let error = refused(&read(&alice, &long).await, -32602);
    assert!(
        error["message"].as_str().unwrap().contains("8192"),
        "{error}"
    );
    // Delivered, nothing is left.
    world.until("SELECT count(*) FROM tasks", 0).await;
}

#[tokio::test]
async fn headers_mirror_what_is_read_and_got() {
    let world = world().await;
    let alice = world.client("alice");
    for (method, params) in [
        ("resources/read", json!({ "uri": "note://today" })),
        ("prompts/get", json!({ "name": "plain" })),
    ] {
        let wrong = alice
            .request(method, params.clone())
            .header("Mcp-Name", "other");
        let missing = alice.request(method, params).without_header("Mcp-Name");
        for request in [wrong, missing] {
            let answer = request.send().await.unwrap();
            assert_eq!(
                (answer.status, &answer.message["error"]["code"]),
                (400, &json!(-32020))
            );
        }
    }
}

#[tokio::test]
async fn bad_params_are_told_by_name_and_begin_nothing() {
    let world = world().await;
    let alice = world.client("alice");
    let prompt = |arguments: Value| json!({ "name": "summary", "arguments": arguments });
    let plain = json!({ "type": "ref/prompt", "name": "summary" });
    let complete =
        |reference: &Value, argument: Value| json!({ "ref": reference, "argument": argument });
    for (method, params, told) in [
        ("resources/read", json!({}), "`uri`"),
        ("resources/read", json!({ "uri": 1 }), "`uri`"),
        ("prompts/get", json!({}), "`name`"),
        (
            "prompts/get",
            json!({ "name": "nope" }),
            "Unknown prompt: nope",
        ),
        (
            "prompts/get",
            json!({ "name": "summary" }),
            "needs the arguments: day",
        ),
        (
            "prompts/get",
            prompt(json!({ "tone": "dry" })),
            "needs the arguments: day",
        ),
        (
            "prompts/get",
            prompt(json!({ "day": 1 })),
            "`day` must be a string",
        ),
        (
            "prompts/get",
            prompt(json!([])),
            "`arguments` must be an object",
        ),
        ("completion/complete", json!({}), "`ref`"),
        (
            "completion/complete",
            complete(&json!({ "type": "ref/tool" }), json!({})),
            "ref/tool",
        ),
        (
            "completion/complete",
            complete(&plain, json!({ "name": "day" })),
            "`value`",
        ),
        (
            "completion/complete",
            complete(
                &json!({ "type": "ref/prompt", "name": "no" }),
                json!({ "name": "a", "value": "" }),
            ),
            "Unknown prompt: no",
        ),
        (
            "completion/complete",
            complete(
                &json!({ "type": "ref/resource", "uri": "no://" }),
                json!({ "name": "a", "value": "" }),
            ),
            "Resource not found",
        ),
    ] {
        let error = refused(&send(&alice, method, params).await, -32602);
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
    let large = prompt(json!({ "day": "x".repeat(1024 * 1024) }));
    let error = refused(&send(&alice, "prompts/get", large).await, -32602);
    assert!(
        error["message"].as_str().unwrap().contains("bytes long"),
        "{error}"
    );
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 0);
}

#[tokio::test]
async fn a_prompt_may_ask_its_caller_and_nobody_elses() {
    let world = world().await;
    let (alice, mallory) = (world.client("alice").undeclared(), world.client("mallory"));
    let params = json!({ "name": "summary", "arguments": { "day": "monday" } });
    let (asked, first) = tokio::join!(send(&alice, "prompts/get", params.clone()), async {
        let claim = world.claim(JOB).await;
        world.park(&claim, ParkedFor::Caller, &["sure"]).await;
        claim.id()
    });
    let asked = asked.into_result().unwrap();
    assert_eq!(asked["resultType"], "input_required");
    let with = |params: &Value, state: &Value| {
        let mut params = params.clone();
        params["requestState"] = state.clone();
        params["inputResponses"] = json!({ "sure": yes() });
        params
    };
    let state = asked["requestState"].as_str().unwrap();
    let tampered = json!(format!("{state}-TAMPERED"));
    let state = json!(state);
    let other = json!({ "name": "summary", "arguments": { "day": "tuesday" } });
    for (client, params) in [
        (&alice, with(&params, &tampered)),
        (&alice, with(&other, &state)),
        (&mallory, with(&params, &state)),
    ] {
        refused(&send(client, "prompts/get", params).await, -32602);
    }
    // The state of a prompt opens no read.
    let read = json!({ "uri": "note://today", "requestState": state });
    refused(&send(&alice, "resources/read", read).await, -32602);

    let (got, ()) = tokio::join!(send(&alice, "prompts/get", with(&params, &state)), async {
        let claim = world.claim(JOB).await;
        let messages =
            json!([{ "role": "user", "content": { "type": "text", "text": "Monday." } }]);
        let result = json!({ "resultType": "complete", "messages": messages });
        assert_eq!(claim.id(), first, "one job all along");
        world.complete(&claim, &result).await;
    });
    let got = got.into_result().unwrap();
    assert_eq!(got["messages"][0]["content"]["text"], "Monday.");
}

#[tokio::test]
async fn completion_goes_to_who_lists_it_and_is_empty_elsewhere() {
    let world = world().await;
    let mut mute = ProviderSpec::new("mute");
    mute.prompts = Some(vec![Prompt::new("mute")]);
    world.store.register_providers(&[mute]).await.unwrap();
    let alice = world.client("alice");
    let complete = |reference: Value| {
        let params = json!({ "ref": reference, "argument": { "name": "day", "value": "m" },
                             "context": { "arguments": { "tone": "dry" } } });
        let request = alice.request("completion/complete", params);
        async move { request.send().await.unwrap() }
    };
    for reference in [
        json!({ "type": "ref/prompt", "name": "summary" }),
        json!({ "type": "ref/resource", "uri": "note://by-day/{day}" }),
    ] {
        let (answer, ()) = tokio::join!(complete(reference), async {
            let claim = world.claim(JOB).await;
            let asked: Value = serde_json::from_slice(&claim.arguments).unwrap();
            assert_eq!(asked["complete"]["context"]["tone"], "dry");
            let values = json!({ "values": ["monday"], "total": 1 });
            let result = json!({ "resultType": "complete", "completion": values });
            world.complete(&claim, &result).await;
        });
        let result = answer.into_result().unwrap();
        assert_eq!(result["completion"]["values"], json!(["monday"]));
    }
    let known = async || {
        let answer = complete(json!({ "type": "ref/prompt", "name": "mute" })).await;
        answer.into_result().ok()
    };
    let empty = harness::wait::until("the other provider is known", SOON, known).await;
    assert_eq!(empty.unwrap()["completion"], json!({ "values": [] }));
}

#[tokio::test]
async fn a_caller_who_goes_away_cancels_the_read() {
    let world = world().await;
    let alice = world.client("alice");
    let read = alice.request("resources/read", json!({ "uri": "note://today" }));
    let reading = tokio::time::timeout(SECOND * 2, read.send());
    let (reading, claim) = tokio::join!(reading, world.claim(JOB));
    assert!(reading.is_err(), "nobody answered");
    let id = claim.id();
    let stopped =
        format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND stop_reason = 'abandoned'");
    world.until(&stopped, 1).await;
}

#[tokio::test]
async fn without_a_worker_a_read_ends_soon_with_a_reason() {
    let world = World::new().await;
    let mut spec = spec();
    spec.policy.call_limit = Some(SECOND);
    provide(&world, spec).await;
    let alice = world.client("alice");
    let error = refused(&read(&alice, "note://today").await, -32603);
    assert_eq!(error["data"]["reason"], "call_limit");
    let open = "SELECT count(*) FROM tasks WHERE phase IS NOT NULL AND stop_reason IS NULL";
    world.until(open, 0).await;
}

#[tokio::test]
async fn a_paused_provider_takes_no_requests() {
    let world = world().await;
    let pause =
        format!("INSERT INTO tool_pauses (tool, calls, changed_by) VALUES ('{JOB}', true, 'test')");
    world.database.rows(&pause).await.unwrap();
    let alice = world.client("alice");
    let paused = async || {
        let read = alice.request("resources/read", json!({ "uri": "note://today" }));
        let answer = tokio::time::timeout(SECOND, read.send()).await.ok()?;
        let error = answer.unwrap().message["error"].clone();
        (error["data"]["reason"] == "tool_paused").then_some(())
    };
    harness::wait::until("the pause is known", SOON, paused)
        .await
        .unwrap();
    send(&alice, "resources/list", json!({}))
        .await
        .into_result()
        .unwrap();
}

#[tokio::test]
async fn listens_tell_of_lists_and_of_resources() {
    let world = world().await;
    let alice = world.client("alice");
    let uris = json!([
        "note://today",
        "note://by-day/1",
        "other://x",
        "note://today"
    ]);
    let wanted = json!({ "promptsListChanged": true, "resourcesListChanged": true,
                         "resourceSubscriptions": uris });
    let mut stream = alice.listen(wanted).await.unwrap();
    let ack = next(&mut stream).await;
    let agreed = json!({ "promptsListChanged": true, "resourcesListChanged": true,
                         "resourceSubscriptions": ["note://by-day/1", "note://today"] });
    assert_eq!(ack["params"]["notifications"], agreed);
    let told = world
        .store
        .wanted_resources(&["notes".to_owned()])
        .await
        .unwrap();
    assert_eq!(told["notes"].len(), 2);

    // What is written is told, and what is hinted without being written is not.
    world.queue.resource_updated("note://by-day/1").await;
    let changed = ["note://today".to_owned()];
    world.store.record_resource_updates(&changed).await.unwrap();
    world.queue.resource_updated("note://today").await;
    let message = next(&mut stream).await;
    assert_eq!(message["method"], "notifications/resources/updated");
    assert_eq!(message["params"]["uri"], "note://today");
    let id = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(
        id,
        &ack["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    );

    let mut more = spec();
    more.prompts.as_mut().unwrap().push(Prompt::new("more"));
    world
        .store
        .register_providers(&[more.clone()])
        .await
        .unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message["method"], "notifications/prompts/list_changed");
    more.resources.as_mut().unwrap().templates.clear();
    world.store.register_providers(&[more]).await.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message["method"], "notifications/resources/list_changed");

    let many: Vec<String> = (0..101).map(|n| format!("note://by-day/{n}")).collect();
    let many = json!({ "notifications": { "resourceSubscriptions": many } });
    let answer = send(&alice, "subscriptions/listen", many).await;
    let error = refused(&answer, -32602);
    assert!(
        error["message"].as_str().unwrap().contains("at most 100"),
        "{error}"
    );
}

#[tokio::test]
async fn without_redis_a_changed_resource_is_told_all_the_same() {
    let mut world = world().await;
    let alice = world.client("alice");
    let wanted = json!({ "resourceSubscriptions": ["note://today"] });
    let mut stream = alice.listen(wanted).await.unwrap();
    next(&mut stream).await;
    world.redis.kill9();
    let changed = ["note://today".to_owned()];
    world.store.record_resource_updates(&changed).await.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message["params"]["uri"], "note://today");
}
