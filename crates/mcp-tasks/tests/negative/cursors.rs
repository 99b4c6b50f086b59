//! Cursors that are not of this list, this caller or this revision; tickets and states among them.

use harness::client::Client;
use protocol::TaskId;
use protocol::callback::{Keys, Ticket};
use serde_json::{Value, json};

use crate::request::{modern, older};
use crate::row::Answer::Error;
use crate::row::{Door, Row, row};
use crate::stack::{API_KEY, KEY, Stack};

const WRONG: crate::row::Answer = Error(200, -32602);
const LISTS: [&str; 4] = [
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
];

async fn cursor(client: &Client, list: &str) -> Option<String> {
    let page = client.request(list, json!({})).send().await.unwrap();
    let page = page.into_result().unwrap();
    page["nextCursor"].as_str().map(str::to_owned)
}

pub async fn rows(stack: &Stack) -> Vec<Row> {
    let mut rows = Vec::new();
    let (open, guarded) = (
        stack.cluster.client(0, "alice"),
        stack.cluster.client(1, API_KEY),
    );
    let mut cursors = Vec::new();
    for list in LISTS {
        if let Some(text) = cursor(&open, list).await {
            cursors.push((list, "everybody's", text));
        }
        if let Some(text) = cursor(&guarded, list).await {
            cursors.push((list, "a machine's", text));
        }
    }
    assert!(cursors.len() >= 6, "{cursors:?}");
    let by = |list: &str, cursor: &str| modern(list, json!({"cursor": cursor}));
    for (of, whose, text) in &cursors {
        for list in LISTS.iter().filter(|list| *list != of) {
            rows.push(row(
                format!("{list} with {whose} cursor of {of}"),
                &by(list, text),
                WRONG,
            ));
        }
        if *whose != "everybody's" {
            rows.push(row(
                format!("{of} with {whose} cursor, by alice"),
                &by(of, text),
                WRONG,
            ));
        } else {
            let request = by(of, text).set("Authorization", format!("Bearer {API_KEY}"));
            rows.push(
                row(
                    format!("{of} with {whose} cursor, by a machine"),
                    &request,
                    WRONG,
                )
                .to(Door::Tokens),
            );
            let request = older("2025-11-25", of, &json!({"cursor": text}));
            rows.push(row(
                format!("{of} with {whose} cursor, in another revision"),
                &request,
                WRONG,
            ));
        }
    }
    let (of, _, text) = &cursors[0];
    let swapped: String = text.chars().rev().collect();
    let flipped = text.replacen(|c: char| c.is_ascii_lowercase(), "A", 1);
    for (name, bad) in [
        ("cut", &text[..text.len() - 1]),
        ("half", &text[..text.len() / 2]),
        ("longer", &format!("{text}A")),
        ("padded", &format!("{text}==")),
        ("backwards", &swapped),
        ("changed", &flipped),
        ("twice over", &format!("{text}{text}")),
        ("the name as it was once", "Z3JlZXQ"),
        ("a name", "greet"),
        ("empty", ""),
        ("a snowman", "☃"),
        ("a zero byte", "\u{0}"),
        ("of 100 KiB", &"A".repeat(100_000)),
    ] {
        rows.push(row(format!("a cursor that is {name}"), &by(of, bad), WRONG).saying("cursor"));
    }
    // What was made for something else under the same key.
    let ticket = Ticket {
        task: TaskId::new(0),
        key: "call".to_owned(),
        expires_ms: i64::MAX,
    };
    let ticket = Keys::read(&[KEY.to_owned()])
        .unwrap()
        .sign(&ticket, "")
        .unwrap();
    rows.push(row(
        "a callback's token as a cursor",
        &by(of, &ticket),
        WRONG,
    ));
    let state = json!({"name": "greet", "arguments": {"name": "x"}, "requestState": ticket});
    rows.push(row(
        "a callback's token as a state",
        &modern("tools/call", state),
        WRONG,
    ));
    let state = json!({"name": "greet", "arguments": {"name": "x"}, "requestState": text});
    rows.push(row(
        "a cursor as a state",
        &modern("tools/call", state),
        WRONG,
    ));
    let call = open
        .call("test_input_required_result_request_state", json!({}))
        .await
        .unwrap();
    let state: &Value = &call["requestState"];
    let state = state.as_str().expect("a state of the fixture");
    rows.push(row("a state as a cursor", &by(of, state), WRONG));
    let older_list = older("2025-11-25", "tasks/list", &json!({"cursor": state}));
    rows.push(row("a state as a cursor of tasks/list", &older_list, WRONG));
    let older_list = older("2025-11-25", "tasks/list", &json!({"cursor": text}));
    rows.push(row(
        "a cursor of tools/list as one of tasks/list",
        &older_list,
        WRONG,
    ));
    for (name, tool, arguments) in [
        ("another tool", "greet", json!({"name": "x"})),
        (
            "other arguments",
            "test_input_required_result_request_state",
            json!({"a": 1}),
        ),
    ] {
        let params = json!({"name": tool, "arguments": arguments, "requestState": state});
        rows.push(row(
            format!("a state with {name}"),
            &modern("tools/call", params),
            WRONG,
        ));
    }
    let params = json!({"name": "test_input_required_result_request_state", "arguments": {}, "requestState": state});
    let request = modern("tools/call", params).set("Authorization", "Bearer bob");
    rows.push(row("a state of somebody else", &request, WRONG));
    let path = format!("POST /callbacks/{state} HTTP/1.1");
    let request = crate::request::post().line(&path).body(r#"{"text":"x"}"#);
    rows.push(row(
        "a state as a callback's token",
        &request,
        crate::row::Answer::Said(404),
    ));
    let path = format!("POST /callbacks/{text} HTTP/1.1");
    let request = crate::request::post().line(&path).body(r#"{"text":"x"}"#);
    rows.push(row(
        "a cursor as a callback's token",
        &request,
        crate::row::Answer::Said(404),
    ));
    rows
}
