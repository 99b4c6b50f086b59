//! MCP 2025-11-25: results without what came later, tasks in older words, questions and their ids.

use protocol::jsonrpc::{self, Incoming, Limits};
use protocol::legacy::{self, ListsTasks};
use protocol::meta::{Implementation, ResultMeta};
use protocol::{RequestId, TaskId, TaskStatus};
use serde_json::{Value, json};

const ID: &str = "0198c0de-0000-7000-8000-000000000000";
const RELATED: &str = "io.modelcontextprotocol/related-task";

fn id() -> TaskId {
    ID.parse().expect("an id")
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("we print JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn task(status: &str, more: Value) -> Value {
    let mut task = json!({"resultType": "complete", "taskId": ID, "status": status,
        "statusMessage": "at it", "createdAt": "2025-11-25T10:30:00Z",
        "lastUpdatedAt": "2025-11-25T10:40:00Z", "ttlMs": 60000, "pollIntervalMs": 500,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}}});
    for (name, value) in more.as_object().expect("members") {
        task[name] = value.clone();
    }
    task
}

#[test]
fn versions_are_negotiated() {
    assert_eq!(legacy::negotiate("2025-06-18"), "2025-06-18");
    for other in ["2025-11-25", "2025-03-26", "2026-07-28", ""] {
        assert_eq!(legacy::negotiate(other), "2025-11-25");
    }
}

#[test]
fn a_task_is_flat_and_without_its_payload() {
    let shown = value(&legacy::task(&bytes(&task("working", json!({})))).unwrap());
    assert_eq!(
        shown,
        json!({"taskId": ID, "status": "working", "statusMessage": "at it",
               "createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:40:00Z",
               "ttl": 60000, "pollInterval": 500})
    );
    let unlimited = task("cancelled", json!({"ttlMs": null}));
    assert_eq!(
        value(&legacy::task(&bytes(&unlimited)).unwrap())["ttl"],
        Value::Null
    );
    let asks = task(
        "input_required",
        json!({"inputRequests": {"k": {"method": "roots/list"}}}),
    );
    let shown = value(&legacy::task(&bytes(&asks)).unwrap());
    assert!(shown.get("inputRequests").is_none());
    assert!(
        shown["statusMessage"]
            .as_str()
            .unwrap()
            .contains("tasks/result")
    );
    for broken in [
        json!({}),
        json!([]),
        json!({"taskId": ID, "status": "working"}),
    ] {
        assert!(legacy::task(&bytes(&broken)).is_err(), "{broken}");
    }
    assert!(legacy::task(b"\xff").is_err());
}

#[test]
fn a_tools_error_is_a_failed_task() {
    for (result, status) in [
        (json!({"content": [], "isError": true}), "failed"),
        (json!({"content": [], "isError": false}), "completed"),
        (json!({"content": [{"isError": true}]}), "completed"),
        (json!({"content": [], "isError": "true"}), "completed"),
    ] {
        let shown = legacy::task(&bytes(&task("completed", json!({"result": result})))).unwrap();
        assert_eq!(value(&shown)["status"], status, "{result}");
        let shown = legacy::shown_status(TaskStatus::Completed, Some(&bytes(&result)));
        assert_eq!(shown.as_str(), status);
    }
    assert_eq!(
        legacy::shown_status(TaskStatus::Working, None),
        TaskStatus::Working
    );
}

#[test]
fn a_handle_is_nested_and_named() {
    let mut handle = task("working", json!({}));
    handle["resultType"] = json!("task");
    let created = value(&legacy::create_result(&bytes(&handle)).unwrap());
    assert_eq!(created["task"]["taskId"], ID);
    assert_eq!(created["_meta"][RELATED], json!({"taskId": ID}));
    assert!(created.get("resultType").is_none());
}

#[test]
fn results_lose_what_came_later_and_nothing_else() {
    let result = r#"{"resultType":"complete","content":[{"type":"text","text":"1.50","n":1.50}],"structuredContent":{"a":1e2},"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1},"y":null}"#;
    let plain = legacy::tool_result(result.as_bytes()).unwrap();
    assert_eq!(
        std::str::from_utf8(&plain).unwrap(),
        r#"{"content":[{"type":"text","text":"1.50","n":1.50}],"structuredContent":{"a":1e2},"y":null,"_meta":{"x":1}}"#,
        "digits stay as they were"
    );
    let named = value(&legacy::task_result(result.as_bytes(), id()).unwrap());
    assert_eq!(named["_meta"], json!({"x": 1, RELATED: {"taskId": ID}}));
    // One of the tool's own is replaced: it names the task that is asked for.
    let forged = json!({"content": [], "_meta": {RELATED: {"taskId": "other"}}});
    let named = value(&legacy::task_result(&bytes(&forged), id()).unwrap());
    assert_eq!(named["_meta"], json!({RELATED: {"taskId": ID}}));
    for structured in [json!([1]), json!("x"), json!(1), Value::Null] {
        let result = json!({"content": [], "structuredContent": structured});
        let plain = value(&legacy::tool_result(&bytes(&result)).unwrap());
        assert_eq!(plain, json!({"content": []}));
    }
    let list = json!({"resultType": "complete", "resources": [], "ttlMs": 1, "cacheScope": "public",
        "nextCursor": "x", "_meta": {"io.modelcontextprotocol/serverInfo": {}}});
    let plain = value(&legacy::plain(&bytes(&list)).unwrap());
    assert_eq!(plain, json!({"resources": [], "nextCursor": "x"}));
}

#[test]
fn tools_say_how_they_run() {
    let page = json!({"resultType": "complete", "ttlMs": 1, "cacheScope": "public", "nextCursor": "n", "tools": [
        {"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}, "execution": {"x": 1}},
        {"name": "b", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
        {"name": "c", "inputSchema": {"type": "object"}, "outputSchema": {"$ref": "#/x"}}]});
    let support = |name: &str| (name != "c").then_some("optional");
    let listed = value(&legacy::tools(&bytes(&page), support).unwrap());
    assert_eq!(
        listed,
        json!({"nextCursor": "n", "tools": [
            {"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
            {"name": "b", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
            {"name": "c", "inputSchema": {"type": "object"}}]})
    );
}

#[test]
fn questions_are_requests_that_say_whose_they_are() {
    let requests = json!({
        "name/of \"it\"": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object"}, "_meta": {"x": 1, RELATED: {"taskId": "other"}}}},
        "page": {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}},
        "own": {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example", "elicitationId": "e-1"}},
        "roots": {"method": "roots/list"}});
    let questions = legacy::questions(id(), &bytes(&requests)).unwrap();
    assert_eq!(questions.len(), 4);
    for question in &questions {
        let request = value(&question.json);
        assert_eq!(request["jsonrpc"], "2.0");
        assert_eq!(request["params"]["_meta"][RELATED], json!({"taskId": ID}));
        // What comes back with this id is about this question.
        let answer =
            json!({"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}});
        let read = jsonrpc::read(&bytes(&answer), Limits::default()).unwrap();
        let Incoming::Response(response) = read else {
            panic!("{read:?}");
        };
        let asked = legacy::asked(response.id.as_ref().unwrap());
        assert_eq!(asked, Some((id(), question.key.clone())));
        assert_eq!(response.result.unwrap().get(), r#"{"action":"decline"}"#);
    }
    let of = |key: &str| {
        let question = questions.iter().find(|question| question.key == key);
        value(&question.unwrap().json)["params"].clone()
    };
    assert_eq!(of("name/of \"it\"")["_meta"]["x"], 1);
    assert_eq!(of("page")["elicitationId"], format!("{ID}/page"));
    assert_eq!(of("own")["elicitationId"], "e-1");
    assert!(of("roots").get("elicitationId").is_none());
    for other in ["", "x", ID, "x/y", "/k"] {
        assert_eq!(legacy::asked(&RequestId::from(other)), None, "{other}");
    }
    assert_eq!(legacy::asked(&RequestId::from(7)), None);
    assert!(legacy::questions(id(), br#"{"a": {"no": "method"}}"#).is_err());
}

#[test]
fn responses_are_read_where_they_are_expected() {
    let read = |json: Value| jsonrpc::read(&bytes(&json), Limits::default());
    for (message, has_result) in [
        (json!({"jsonrpc": "2.0", "id": "a", "result": {}}), true),
        (json!({"jsonrpc": "2.0", "id": "a", "result": 7}), false),
        (
            json!({"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": "x"}}),
            false,
        ),
    ] {
        match read(message.clone()) {
            Ok(Incoming::Response(response)) => assert_eq!(response.result.is_some(), has_result),
            other => panic!("{message}: {other:?}"),
        }
        let refused = jsonrpc::parse(&bytes(&message), Limits::default()).unwrap_err();
        assert_eq!((refused.code, refused.id), (-32600, Some("a".into())));
    }
    for bad in [
        json!({"id": "a", "result": {}}),
        json!({"jsonrpc": "2.0", "id": null, "result": {}}),
    ] {
        assert!(read(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn what_takes_a_session_is_not_promised() {
    let meta = ResultMeta::new(&Implementation::new("mcp-tasks", "1"));
    let discovered = json!({"capabilities": {"tools": {"listChanged": true}, "prompts": {"listChanged": true},
        "resources": {"subscribe": true}, "completions": {}, "extensions": {"x": {}}, "logging": {}}});
    let write = |version: &str, lists| {
        let about = ("how to wait", &meta);
        value(&legacy::write_initialize(version, &bytes(&discovered), lists, about).unwrap())
    };
    let older = write("2025-06-18", ListsTasks::Yes);
    let features = json!({"tools": {}, "prompts": {}, "resources": {}, "completions": {}});
    assert_eq!(older["capabilities"], features);
    assert_eq!(
        older["serverInfo"],
        json!({"name": "mcp-tasks", "version": "1"})
    );
    let newer = write("2025-11-25", ListsTasks::No);
    let tasks = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(newer["capabilities"]["tasks"], tasks);
    assert_eq!(newer["instructions"], "how to wait");
}
