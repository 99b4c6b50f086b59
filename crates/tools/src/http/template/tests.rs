//! What values become, and what they may not.

use serde_json::json;

use super::*;

const ALLOWED: &[&str] = &["id", "q", "n", "list"];

fn allowed<T>(read: impl FnOnce(&Allowed<'_>) -> T) -> T {
    let arguments: Vec<String> = ALLOWED.iter().map(|name| (*name).to_owned()).collect();
    read(&Allowed {
        arguments: &arguments,
        callback: true,
    })
}

fn with<T>(arguments: &Value, fill: impl FnOnce(&Values<'_>) -> T) -> T {
    fill(&Values {
        arguments: arguments.as_object().unwrap(),
        field: &|field| Some(format!("{field:?}")),
    })
}

fn url(text: &str, arguments: Value) -> Result<String, String> {
    let url = allowed(|allowed| Url::read(text, allowed))?;
    with(&arguments, |values| url.fill(values))
        .map(|uri| uri.to_string())
        .map_err(|Refused(why)| why)
}

#[test]
fn values_stay_in_their_place_of_a_url() {
    let fine = |text, arguments, wanted: &str| {
        assert_eq!(url(text, arguments).as_deref(), Ok(wanted));
    };
    let place = "https://h.example/jobs/{id}?q={q}";
    fine(
        place,
        json!({"id": "a", "q": 1}),
        "https://h.example/jobs/a?q=1",
    );
    fine(
        place,
        json!({"id": "a/b?c#d&e=@"}),
        "https://h.example/jobs/a%2Fb%3Fc%23d%26e%3D%40?q=",
    );
    fine(
        place,
        json!({"id": "é\r\nHost: x", "q": "../.."}),
        "https://h.example/jobs/%C3%A9%0D%0AHost%3A%20x?q=..%2F..",
    );
    fine(
        place,
        json!({"id": "//evil.example", "q": "&a=b"}),
        "https://h.example/jobs/%2F%2Fevil.example?q=%26a%3Db",
    );
    fine("http://h/{task_id}", json!({}), "http://h/TaskId");
    fine(
        "http://h/?l={list}",
        json!({"list": ["a", 1]}),
        "http://h/?l=%5B%22a%22%2C1%5D",
    );
    for (id, word) in [
        (json!(".."), "\"..\""),
        (json!("../x"), "\"..\""),
        (json!("a\\..\\b"), "\"..\""),
        (json!("."), "\".\""),
        (json!(""), "needed"),
        (Value::Null, "needed"),
        (json!("a\0"), "zero byte"),
    ] {
        let refused = url(place, json!({"id": id})).unwrap_err();
        assert!(
            refused.starts_with("id: ") && refused.contains(word),
            "{refused}"
        );
    }
}

/// `?tenant=` may mean all of them.
#[test]
fn a_url_without_its_tenant_is_not_asked() {
    for none in [None, Some(String::new())] {
        let field = |field| match field {
            Field::PrincipalTenant => none.clone(),
            other => Some(format!("{other:?}")),
        };
        let values = Values {
            arguments: &Map::new(),
            field: &field,
        };
        for text in [
            "http://h/?tenant={principal_tenant}",
            "http://h/x?q=1&tenant=t-{principal_tenant}&z=1",
            "http://h/{principal_tenant}/x",
        ] {
            let url = allowed(|allowed| Url::read(text, allowed)).unwrap();
            let Refused(why) = url.fill(&values).unwrap_err();
            assert!(
                why.starts_with("{principal_tenant}: is needed"),
                "{text}: {why}"
            );
        }
        let url = allowed(|allowed| Url::read("http://h/?who={principal_subject}", allowed));
        let filled = url.unwrap().fill(&values).unwrap();
        assert_eq!(filled.to_string(), "http://h/?who=PrincipalSubject");
    }
}

#[test]
fn no_value_is_part_of_a_host() {
    for (text, word) in [
        ("https://{id}/x", "host"),
        ("https://{id}.example/x", "host"),
        ("https://h.example{id}", "part of the host"),
        ("https://h.example:{n}/", "part of the host"),
        ("{id}://h/", "http://"),
        ("ftp://h/", "http://"),
        ("https://", "URL"),
        ("https:///x", "URL"),
        ("https://user:pw@h/", "user's name"),
        ("https://h/#x", "fragment"),
        ("https://h/ x", "URL"),
        ("https://h/{nothing}", "nothing is called {nothing}"),
        ("https://h/{id", "has no end"),
        ("https://h/id}", "without"),
    ] {
        let refused = url(text, json!({"id": "a", "n": 1})).unwrap_err();
        assert!(refused.contains(word), "{text}: {refused}");
    }
}

#[test]
fn texts_and_json_take_values() {
    let text = |text: &str, arguments: Value| {
        let template = allowed(|allowed| Template::read(text, allowed)).unwrap();
        with(&arguments, |values| template.fill(values))
    };
    assert_eq!(text("a{q}-{n}", json!({"q": "b", "n": 2})).unwrap(), "ab-2");
    assert_eq!(text("{{q}}", json!({})).unwrap(), "{q}");
    assert_eq!(text("a{q}", json!({})), None);
    let written = json!({"job": {"in": "{q}", "n": "{n}", "text": "n={n}"}, "to": ["{callback_url}"], "x": true});
    let body = allowed(|allowed| Json::read(&written, allowed)).unwrap();
    let fill = |arguments: Value| with(&arguments, |values| body.fill(values)).unwrap();
    assert_eq!(
        fill(json!({"q": "a\",\"x\":\"", "n": 1.5})),
        json!({"job": {"in": "a\",\"x\":\"", "n": 1.5, "text": "n=1.5"}, "to": ["CallbackUrl"], "x": true})
    );
    assert_eq!(
        fill(json!({})),
        json!({"job": {}, "to": ["CallbackUrl"], "x": true})
    );
}

#[test]
fn names_of_ours_are_not_arguments_too() {
    let clash = Allowed {
        arguments: &["attempt".to_owned()],
        callback: false,
    };
    assert!(Template::read("{attempt}", &clash).is_err());
    assert!(
        Template::read("{callback_url}", &clash)
            .unwrap_err()
            .contains("callback_wait")
    );
    assert!(Template::read("{task_id}", &clash).is_ok());
}
