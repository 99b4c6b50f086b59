//! Texts with places for values: `{name}` is an argument of the call or a name of ours. What a value
//! may become depends on where it stands: a part of a URL never leaves its segment, a header stays one
//! line, and JSON stays the JSON that was written.

mod url;

use serde_json::{Map, Value};

pub(crate) use url::Url;

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
    PrincipalIssuer,
    PrincipalSubject,
    PrincipalTenant,
}

impl Field {
    /// As it stands in a template.
    fn name(self) -> &'static str {
        let all = Self::ALL.iter();
        let mut named = all.filter(|(_, field)| *field == self);
        named.next().map_or("", |(name, _)| name)
    }

    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("task_id", Self::TaskId),
        ("attempt", Self::Attempt),
        ("idempotency_key", Self::IdempotencyKey),
        ("callback_url", Self::CallbackUrl),
        ("principal_issuer", Self::PrincipalIssuer),
        ("principal_subject", Self::PrincipalSubject),
        ("principal_tenant", Self::PrincipalTenant),
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
    /// `None` for what there is not: not every principal has a tenant.
    pub(crate) field: &'a (dyn Fn(Field) -> Option<String> + Sync),
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
                Part::Field(field) => filled.push_str(&(values.field)(*field)?),
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
mod tests;
