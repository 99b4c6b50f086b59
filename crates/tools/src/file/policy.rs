//! Policies in layers: the defaults of the code, `[defaults]`, a source's, a tool's.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use worker::ToolPolicy;

use super::policy_keys::POLICY;
use super::reader::{Key, Section, json};

/// Keys whose tables are values, and not the places of further keys.
const WHOLE: [&str; 2] = ["required_capabilities", ANSWERS];
const ANSWERS: &str = "default_answers";

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Nobody said anything.
    Default,
    /// `[defaults]`.
    Defaults,
    /// What the tool is a part of.
    Source,
    /// The tool itself.
    Tool,
}

impl From {
    /// As people read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Defaults => "defaults",
            Self::Source => "source",
            Self::Tool => "tool",
        }
    }
}

/// One value of a policy in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The key, with a dot where it is in a table.
    pub key: &'static str,
    /// As in the file; null where nothing is set.
    pub value: Value,
    /// Where it comes from.
    pub from: From,
    /// And on which line of the file, if it does.
    pub line: Option<usize>,
}

/// What one table says of a policy.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer(BTreeMap<&'static str, Said>);

#[derive(Clone, Debug)]
struct Said {
    value: Value,
    at: usize,
    line: usize,
}

/// A layer over another one.
pub(super) type Layers<'l> = [(From, &'l Layer)];

impl Layer {
    /// Reads a table of policy keys.
    pub(super) fn read(section: &Section<'_, '_>) -> Self {
        let mut layer = Self::default();
        for (name, span, value) in section.entries() {
            let Some(parts) = value
                .get_ref()
                .as_table()
                .filter(|_| !WHOLE.contains(&name))
            else {
                layer.add(section, name.to_owned(), span.start, value);
                continue;
            };
            if !POLICY.iter().any(|key| is_within(key.name, name)) {
                layer.add(section, name.to_owned(), span.start, value);
                continue;
            }
            for (part, part_value) in parts {
                let (name, at) = (format!("{name}.{}", part.get_ref()), part.span().start);
                layer.add(section, name, at, part_value);
            }
        }
        layer
    }

    fn add(
        &mut self,
        section: &Section<'_, '_>,
        name: String,
        at_key: usize,
        value: &toml::Spanned<toml::de::DeValue<'_>>,
    ) {
        let Some(key) = POLICY.iter().find(|key| key.name == name) else {
            let allowed: Vec<&str> = POLICY.iter().map(|key| key.name).collect();
            let problem = format!("unknown; allowed: {}", allowed.join(", "));
            section.problem(at_key, &name, problem);
            return;
        };
        let at = value.span().start;
        let checked = json(value).and_then(|value| {
            let none = key.allowed.ends_with("\"none\"") && value == "none";
            let value = if none { Value::Null } else { value };
            with([(key.name, &value)]).map(|_| value)
        });
        match checked {
            Ok(_) if key.name == ANSWERS && !are_answers(section, value) => {}
            Ok(value) => {
                let line = section.reader.line(at);
                self.0.insert(key.name, Said { value, at, line });
            }
            Err(said) => {
                section.problem(at, &name, format!("{said}; allowed: {}", key.allowed));
            }
        }
    }

    /// What it says, without where.
    pub(super) fn values(&self) -> Vec<(&'static str, Value)> {
        let said = self.0.iter();
        said.map(|(key, said)| (*key, said.value.clone())).collect()
    }

    pub(super) fn says(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn get(&self, key: &str) -> Option<&Said> {
        self.0.get(key)
    }
}

/// Whether every one of these can stand for an answer; says where not.
fn are_answers(section: &Section<'_, '_>, value: &toml::Spanned<toml::de::DeValue<'_>>) -> bool {
    let answers = value.get_ref().as_table().into_iter().flatten();
    let problems = answers.filter_map(|(key, answer)| {
        let alone = serde_json::json!({ key.get_ref().as_ref(): json(answer).ok()? });
        let problem = with([(ANSWERS, &alone)]).ok()?.validate("").err()?.problem;
        section.problem(answer.span().start, ANSWERS, problem);
        Some(())
    });
    problems.count() == 0
}

fn is_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// The default policy with some values of another.
fn with<'v>(values: impl IntoIterator<Item = (&'v str, &'v Value)>) -> Result<ToolPolicy, String> {
    let mut policy = serde_json::to_value(ToolPolicy::default()).map_err(|e| e.to_string())?;
    for (key, value) in values {
        *place(&mut policy, key) = value.clone();
    }
    serde_json::from_value(policy).map_err(|error| error.to_string())
}

fn place<'p>(policy: &'p mut Value, key: &str) -> &'p mut Value {
    key.split('.').fold(policy, |value, part| {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        &mut value[part]
    })
}

/// The policy in force, and where each of its values comes from. `layers`: the innermost last.
pub(super) fn effective(layers: &Layers<'_>) -> (ToolPolicy, Vec<Effective>) {
    let said: Vec<(&Key, Option<(From, &Said)>)> = POLICY
        .iter()
        .map(|key| {
            let said = layers.iter().rev();
            let mut said = said.filter_map(|(from, layer)| Some((*from, layer.get(key.name)?)));
            (key, said.next())
        })
        .collect();
    let values = said
        .iter()
        .filter_map(|(key, said)| Some((key.name, &said.as_ref()?.1.value)));
    // Each value was accepted by itself, and they are independent of each other.
    let policy = with(values).unwrap_or_default();
    let mut shown = serde_json::to_value(&policy).unwrap_or_default();
    let rows = said.into_iter().map(|(key, said)| Effective {
        key: key.name,
        value: place(&mut shown, key.name).clone(),
        from: said.map_or(From::Default, |(from, _)| from),
        line: said.map(|(_, said)| said.line),
    });
    let rows = rows.collect();
    (policy, rows)
}

/// A policy that no file made: whatever differs from the default, the tool itself has said.
#[must_use]
pub fn of_code(policy: &ToolPolicy) -> Vec<Effective> {
    let mut shown = serde_json::to_value(policy).unwrap_or_default();
    let mut default = serde_json::to_value(ToolPolicy::default()).unwrap_or_default();
    let row = |key: &Key| {
        let value = place(&mut shown, key.name).clone();
        let differs = value != *place(&mut default, key.name);
        Effective {
            key: key.name,
            value,
            from: if differs { From::Tool } else { From::Default },
            line: None,
        }
    };
    POLICY.iter().map(row).collect()
}

/// Checks what the values mean together, and says which one is wrong where it was set.
pub(super) fn check(tool: &Section<'_, '_>, name: &str, policy: &ToolPolicy, layers: &Layers<'_>) {
    let mut told: BTreeMap<&str, String> = BTreeMap::new();
    let mut policy = policy.clone();
    while let Err(error) = policy.validate(name) {
        // The sentence begins with the setting that it is about.
        let key = error.problem.split([' ', '.']).next().unwrap_or_default();
        let set = layers.iter().rev().find_map(|(_, layer)| layer.get(key));
        // What is wrong because of another one's default is no help.
        if !told.is_empty() && (set.is_none() || told.contains_key(key)) {
            return;
        }
        let at = set.map_or(tool.at, |said| said.at);
        tool.problem(at, &format!("policy.{key}"), error.problem.clone());
        // Others may be wrong as well: it is judged again as if nobody had said this.
        let known = POLICY.iter().find(|known| known.name == key);
        let (Some(known), Some(_)) = (known, set) else {
            return;
        };
        told.insert(known.name, error.problem);
        let said: Vec<(&str, &Value)> = POLICY
            .iter()
            .filter(|key| !told.contains_key(key.name))
            .filter_map(|key| {
                let said = layers.iter().rev();
                let said = said.filter_map(|(_, layer)| layer.get(key.name)).next()?;
                Some((key.name, &said.value))
            })
            .collect();
        policy = with(said).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that a policy gains stands in the table of keys or among those of later.
    #[test]
    fn every_field_of_a_policy_has_a_key() {
        let policy = serde_json::to_value(ToolPolicy::default()).unwrap();
        let mut fields: Vec<String> = Vec::new();
        for (name, value) in policy.as_object().unwrap() {
            match value
                .as_object()
                .filter(|_| !WHOLE.contains(&name.as_str()))
            {
                Some(parts) => fields.extend(parts.keys().map(|part| format!("{name}.{part}"))),
                None => fields.push(name.clone()),
            }
        }
        fields.sort();
        let mut keys: Vec<&str> = POLICY.iter().map(|key| key.name).collect();
        keys.sort_unstable();
        assert_eq!(keys, fields);
    }

    /// `none` is for those that may be unset, and for all of them but names.
    #[test]
    fn what_may_be_unset_says_so() {
        for key in POLICY {
            let may = with([(key.name, &Value::Null)]).is_ok();
            let says = key.allowed.ends_with("\"none\"");
            let name = ["idempotency_key_argument", "required_capabilities"].contains(&key.name);
            assert_eq!(may, says || name, "{}", key.name);
        }
    }
}
