//! Texts with places for values: `{name}` is an argument of the call or a name of ours. What a value
//! may become depends on where it stands: a part of a URL never leaves its segment, a header stays one
//! line, and JSON stays the JSON that was written.

use std::fmt::Write as _;

use http::Uri;
use serde_json::{Map, Value};

/// A value that may not stand where a template has it, told to the model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

/// Names of ours, beside the arguments' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    TaskId,
    Attempt,
    IdempotencyKey,
    CallbackUrl,
}

impl Field {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("task_id", Self::TaskId),
        ("attempt", Self::Attempt),
        ("idempotency_key", Self::IdempotencyKey),
        ("callback_url", Self::CallbackUrl),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Argument(String),
    Field(Field),
}

/// A text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

/// Where values come from.
pub(crate) struct Values<'a> {
    pub(crate) arguments: &'a Map<String, Value>,
    pub(crate) field: &'a (dyn Fn(Field) -> String + Sync),
}

/// What of values a text may hold.
pub(crate) struct Allowed<'a> {
    /// Names of the call's arguments.
    pub(crate) arguments: &'a [String],
    /// There is a callback.
    pub(crate) callback: bool,
}

impl Template {
    /// # Errors
    /// In words, when it names nothing that there is.
    pub(crate) fn read(text: &str, allowed: &Allowed<'_>) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '{' | '}' if rest.peek() == Some(&next) => {
                    rest.next();
                    plain.push(next);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(next) => name.push(next),
                            None => {
                                return Err(format!("\"{{{name}\" has no end: write {{{{ for {{"));
                            }
                        }
                    }
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(part(&name, allowed)?);
                }
                '}' => return Err("a \"}\" without a \"{\": write }} for }".to_owned()),
                other => plain.push(other),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// The text with its values as they are; `None` when one of them is not given.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Option<String> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(field) => filled.push_str(&(values.field)(*field)),
                Part::Argument(name) => filled.push_str(&text_of(values.arguments.get(name)?)?),
            }
        }
        Some(filled)
    }

    fn is_plain(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(_)))
    }
}

fn part(name: &str, allowed: &Allowed<'_>) -> Result<Part, String> {
    let ours = Field::ALL.iter().find(|(ours, _)| *ours == name);
    let argument = allowed.arguments.iter().any(|argument| argument == name);
    match ours {
        Some(_) if argument => Err(format!(
            "{{{name}}} is a name of ours and of an argument: call the argument something else"
        )),
        Some((_, Field::CallbackUrl)) if !allowed.callback => {
            Err("{callback_url} needs a callback_wait".to_owned())
        }
        Some((_, field)) => Ok(Part::Field(*field)),
        None if argument => Ok(Part::Argument(name.to_owned())),
        None => {
            let ours = Field::ALL.iter().map(|(name, _)| *name);
            let known: Vec<&str> = allowed.arguments.iter().map(String::as_str).collect();
            let known: Vec<&str> = known.into_iter().chain(ours).collect();
            Err(format!(
                "nothing is called {{{name}}}; there are {}",
                known.join(", ")
            ))
        }
    }
}

/// A value within a text; `None` for null.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// A URL whose host is known before a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    template: Template,
    /// What it would be with `x` for every value: scheme and host are these.
    pub(crate) shape: Uri,
}

impl Url {
    /// # Errors
    /// In words, when it is no URL, or a value could change the host.
    pub(crate) fn read(text: &str, allowed: &Allowed<'_>) -> Result<Self, String> {
        let template = Template::read(text, allowed)?;
        let first = match template.0.first() {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        };
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| first.strip_prefix(scheme))
            .ok_or("must begin with http:// or https:// and a host")?;
        let end = host.find(['/', '?']);
        if end.is_none() && !template.is_plain() {
            return Err(
                "a value would be part of the host: it may stand in the path and behind ?"
                    .to_owned(),
            );
        }
        if host[..end.unwrap_or(host.len())].contains('@') {
            return Err(
                "holds a user's name: use headers, secret_headers or bearer_file".to_owned(),
            );
        }
        if text.contains('#') {
            return Err("has a fragment, which is never sent".to_owned());
        }
        let filled = template.0.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Argument(_) | Part::Field(_) => "x",
        });
        let shape: Uri = filled
            .collect::<String>()
            .parse()
            .map_err(|error| format!("is no URL: {error}"))?;
        if shape.host().is_none_or(str::is_empty) {
            return Err("has no host".to_owned());
        }
        Ok(Self { template, shape })
    }

    /// The URL of one call.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Result<Uri, Refused> {
        let mut url = String::new();
        for part in &self.template.0 {
            let in_query = url.contains('?');
            match part {
                Part::Text(text) => url.push_str(text),
                Part::Field(field) => encode(&(values.field)(*field), &mut url),
                Part::Argument(name) => {
                    let value = values.arguments.get(name).and_then(text_of);
                    let value = value.unwrap_or_default();
                    if !in_query {
                        check_segment(name, &value)?;
                    }
                    encode(&value, &mut url);
                }
            }
        }
        let uri: Uri = url
            .parse()
            .map_err(|error| Refused(format!("the arguments do not make a URL: {error}")))?;
        // Cannot be: the host stands before the first value.
        if (uri.scheme(), uri.authority()) != (self.shape.scheme(), self.shape.authority()) {
            return Err(Refused("the arguments change the host".to_owned()));
        }
        Ok(uri)
    }
}

/// What stands in a path must not lead out of its place, however a server reads it.
fn check_segment(name: &str, value: &str) -> Result<(), Refused> {
    if value.is_empty() {
        return Err(Refused(format!("{name}: is needed, it is part of a path")));
    }
    if value
        .split(['/', '\\'])
        .any(|part| matches!(part, "." | ".."))
    {
        return Err(Refused(format!(
            "{name}: must not hold \".\" or \"..\" as part of a path"
        )));
    }
    if value.contains('\0') {
        return Err(Refused(format!("{name}: holds a zero byte")));
    }
    Ok(())
}

/// Everything but what RFC 3986 calls unreserved.
fn encode(value: &str, to: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

/// JSON whose texts are templates. One that is nothing but a place is the value itself; a member
/// whose value is not given is left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Fixed(Value),
    Text(Template),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// # Errors
    /// In words, for the first template that is none.
    pub(crate) fn read(value: &Value, allowed: &Allowed<'_>) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::read(text, allowed)?),
            Value::Array(values) => {
                let read = values.iter().map(|value| Self::read(value, allowed));
                Self::List(read.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let read = members
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), Self::read(value, allowed)?)));
                Self::Object(read.collect::<Result<_, String>>()?)
            }
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    pub(crate) fn fill(&self, values: &Values<'_>) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Text(Template(parts)) if matches!(parts.as_slice(), [Part::Argument(_)]) => {
                let [Part::Argument(name)] = parts.as_slice() else {
                    return None;
                };
                values.arguments.get(name).cloned()
            }
            Self::Text(template) => template.fill(values).map(Value::String),
            Self::List(list) => Some(list.iter().filter_map(|item| item.fill(values)).collect()),
            Self::Object(members) => {
                let members = members
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), value.fill(values)?)));
                Some(Value::Object(members.collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
            field: &|field| format!("{field:?}"),
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
}
