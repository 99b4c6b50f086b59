//! Resources, prompts and completion: what is read, what is written, and what another implementation
//! makes of it.

use std::collections::BTreeMap;

use protocol::completion::{CompleteParams, Completion, Reference};
use protocol::discover::{self, CacheScope, Caching, Provided};
use protocol::meta::{Implementation, ResultMeta};
use protocol::prompts::{self, GetParams, Prompt, PromptMessage, PromptResult};
use protocol::resources::{
    self, ReadParams, ReadResult, Resource, ResourceContents, ResourceTemplate,
};
use protocol::subscriptions::{
    write_prompts_list_changed, write_resource_updated, write_resources_list_changed,
};
use protocol::tools::Content;
use protocol::{RequestId, code};
use rmcp::model;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{raw, value};

const CACHING: Caching = Caching {
    ttl_ms: 5,
    scope: CacheScope::Private,
};

fn meta() -> ResultMeta {
    ResultMeta::new(&Implementation::new("s", "1"))
}

/// rmcp reads our text and prints the same members back.
fn agrees<T: DeserializeOwned + Serialize>(ours: &[u8]) {
    let ours = value(ours);
    let read: T = serde_json::from_value(ours.clone())
        .unwrap_or_else(|error| panic!("{}: {error}: {ours}", std::any::type_name::<T>()));
    assert_eq!(serde_json::to_value(&read).expect("it prints"), ours);
}

#[test]
fn lists_agree() {
    let resource = Resource::new("note://1", "one")
        .with_description("d")
        .with_mime_type("text/plain");
    let page = resources::write_list([&resource.to_json()[..]], Some("c"), CACHING, &meta());
    agrees::<model::ListResourcesResult>(&page);
    let template = ResourceTemplate::new("note://{id}", "some").with_description("d");
    let page = resources::write_templates([&template.to_json()[..]], None, CACHING, &meta());
    agrees::<model::ListResourceTemplatesResult>(&page);
    let prompt = Prompt::new("p")
        .with_description("d")
        .needing("a", "must")
        .accepting("b", "may");
    let page = prompts::write_list([&prompt.to_json()[..]], None, CACHING, &meta());
    agrees::<model::ListPromptsResult>(&page);
    let all = Provided {
        resources: true,
        subscribe: true,
        prompts: true,
        completions: true,
    };
    agrees::<model::DiscoverResult>(&discover::write_result(all, None, CACHING, &meta()));
}

#[test]
fn results_agree() {
    let contents = vec![
        ResourceContents::text("note://1", "text/plain", "hello"),
        ResourceContents::blob("note://2", "image/png", "AAAA"),
    ];
    let read = ReadResult::new(contents).cached(7, CacheScope::Public);
    agrees::<model::ReadResourceResult>(&read.to_json());
    assert_eq!(value(&read.to_json())["cacheScope"], "public");
    let mut got = PromptResult::new(vec![
        PromptMessage::user(Content::text("?")),
        PromptMessage::assistant(Content::image("AAAA", "image/png")),
        PromptMessage::user(Content::text_resource("a://b", "text/plain", "t")),
    ]);
    got.description = Some("d".to_owned());
    agrees::<model::GetPromptResult>(&got.to_json());
    agrees::<model::CompleteResult>(&Completion::new(vec!["a".to_owned()]).to_json());
    agrees::<model::CompleteResult>(&Completion::default().to_json());
}

#[test]
fn what_others_printed_stays_as_it_is() {
    let upstream = r#"{"contents":[{"uri":"a://b","text":"x","later":1.50}],"more":{"z":1e2}}"#;
    let read = ReadResult::passed_on(upstream.as_bytes()).unwrap();
    let shown = read.to_json();
    let text = std::str::from_utf8(&shown).unwrap();
    assert!(
        text.contains("\"later\":1.50") && text.contains("1e2"),
        "{text}"
    );
    let shown = value(&shown);
    assert_eq!(
        (&shown["resultType"], &shown["ttlMs"], &shown["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    assert_eq!(read.contents[0].text.as_deref(), Some("x"));
    let own = r#"{"resultType":"complete","contents":[],"ttlMs":9,"cacheScope":"public"}"#;
    assert_eq!(
        value(&ReadResult::passed_on(own.as_bytes()).unwrap().to_json())["ttlMs"],
        9
    );
    let got =
        PromptResult::passed_on(br#"{"messages":[{"role":"user","content":{"type":"later"}}]}"#);
    let got = got.unwrap();
    assert!(got.messages.is_empty(), "a kind that we know nothing of");
    assert_eq!(
        value(&got.to_json())["messages"][0]["content"]["type"],
        "later"
    );
    let many = json!({ "completion": { "values": vec!["v"; 150], "total": 150 } });
    let many = Completion::passed_on(many.to_string().as_bytes()).unwrap();
    assert_eq!(
        (many.values.len(), many.total, many.has_more),
        (100, Some(150), Some(true))
    );
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"contents":{}}"#,
        r#"{"resultType":"task","contents":[]}"#,
    ] {
        assert!(ReadResult::passed_on(bad.as_bytes()).is_err(), "{bad}");
        assert!(PromptResult::passed_on(bad.as_bytes()).is_err(), "{bad}");
        assert!(Completion::passed_on(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn params_are_read_and_refused_by_name() {
    let read = |json: &Value| ReadParams::parse(Some(&raw(&json.to_string())));
    assert_eq!(
        read(&json!({ "uri": "a://b", "other": 1 })).unwrap().uri,
        "a://b"
    );
    assert!(read(&json!({ "uri": "a".repeat(8192) })).is_ok());
    assert!(read(&json!({ "uri": "a".repeat(8193) })).is_err());
    assert!(read(&json!({ "uri": null })).is_err() && ReadParams::parse(None).is_err());
    let get = |json: &Value| GetParams::parse(Some(&raw(&json.to_string())));
    let got = get(
        &json!({ "name": "p", "arguments": { "a": "b" }, "inputResponses": { "k": {} },
                           "requestState": "s" }),
    )
    .unwrap();
    assert_eq!(
        got.arguments,
        BTreeMap::from([("a".to_owned(), "b".to_owned())])
    );
    assert!(got.input_responses.is_some() && got.request_state.as_deref() == Some("s"));
    assert!(
        get(&json!({ "name": "p", "arguments": null }))
            .unwrap()
            .arguments
            .is_empty()
    );
    for bad in [
        json!({ "a": 1 }),
        json!({ "a": null }),
        json!("x"),
        json!([]),
    ] {
        let error = get(&json!({ "name": "p", "arguments": bad })).unwrap_err();
        assert!(error.to_string().contains("`arguments`"), "{error}");
    }
    let prompt = Prompt::new("p")
        .needing("a", "")
        .needing("b", "")
        .accepting("c", "");
    let error = prompt.check_arguments(&got.arguments).unwrap_err();
    assert!(
        error.to_string().ends_with("needs the arguments: b"),
        "{error}"
    );
}

#[test]
fn completions_are_asked_for_prompts_and_templates() {
    let parse = |json: &Value| CompleteParams::parse(Some(&raw(&json.to_string())));
    let whole = json!({
        "ref": { "type": "ref/resource", "uri": "a://{x}" },
        "argument": { "name": "x", "value": "1" },
        "context": { "arguments": { "y": "2" } }
    });
    let asked = parse(&whole).unwrap();
    assert_eq!(asked.reference, Reference::Resource("a://{x}".to_owned()));
    assert_eq!(asked.to_params(), whole);
    for (member, told) in [("ref", "`ref`"), ("argument", "`argument`")] {
        let mut lacking = whole.clone();
        lacking.as_object_mut().unwrap().remove(member);
        let error = parse(&lacking).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    let mut broken = whole;
    broken["context"]["arguments"]["y"] = json!(2);
    let error = parse(&broken).unwrap_err();
    assert!(error.to_string().contains("`context.arguments`"), "{error}");
    let unknown = Reference::Resource("a://b".to_owned()).unknown();
    assert_eq!(unknown.code, code::INVALID_PARAMS);
    assert_eq!(unknown.data.unwrap(), json!({ "uri": "a://b" }));
}

#[test]
fn definitions_that_clients_would_refuse_are_refused() {
    for uri in [
        "", "nothing", ":x", "1a:x", "a b:x", "a:x y", "a:\u{7f}", "a:{x}", "a:\"x",
    ] {
        assert!(Resource::new(uri, "n").check().is_err(), "{uri}");
    }
    for uri in ["a:", "file:///a%20b", "test+x-y.z://ü"] {
        Resource::new(uri, "n").check().unwrap();
    }
    assert!(Resource::new("a:", "").check().is_err());
    assert!(Prompt::new("a\nb").check().is_err());
    assert!(
        Prompt::new("p")
            .needing("a", "")
            .accepting("a", "")
            .check()
            .is_err()
    );
}

#[test]
fn notifications_carry_their_subscription() {
    let id = RequestId::from(7);
    for (message, method) in [
        (
            write_prompts_list_changed(&id),
            "notifications/prompts/list_changed",
        ),
        (
            write_resources_list_changed(&id),
            "notifications/resources/list_changed",
        ),
        (
            write_resource_updated(&id, "a://\"b"),
            "notifications/resources/updated",
        ),
    ] {
        let message = value(&message);
        assert_eq!(message["method"], method);
        let meta = &message["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], 7);
    }
    let updated = value(&write_resource_updated(&id, "a://\"b"));
    assert_eq!(updated["params"]["uri"], "a://\"b");
}
