//! What every tool of a file has, whatever does its work: its definition, its version, its policy, and
//! what a call of it does.

use worker::{Definition, ToolAnnotations, ToolSpec};

use super::policy::{self, Effective, From, Layer};
use super::policy_keys::POLICY;
use super::reader::{Key, Section};
use super::schema;
use crate::command::Effects;

/// How many keys all kinds of tools have.
pub(super) const SHARED: usize = FIRST.len() + 1;

const FIRST: &[Key] = &[
    Key {
        name: "name",
        allowed: "1 to 128 of A-Z a-z 0-9 _ . -",
        text: "The tool's name. Needed",
    },
    Key {
        name: "title",
        allowed: "a text",
        text: "For people",
    },
    Key {
        name: "description",
        allowed: "a text",
        text: "For models. Needed",
    },
    Key {
        name: "annotations",
        allowed: "a table of hints: title, readOnlyHint, destructiveHint, idempotentHint, openWorldHint",
        text: "What clients may assume; see `effects`",
    },
    Key {
        name: "input_schema",
        allowed: "a JSON Schema of type object, as a table or as a JSON text",
        text: "The call's arguments; without it a call has none",
    },
    Key {
        name: "output_schema",
        allowed: "a JSON Schema, as a table or as a JSON text",
        text: "What `structuredContent` looks like; a result that does not fit fails the task",
    },
    Key {
        name: "version",
        allowed: "a number from 1",
        text: "The tool's version (1): a new one when tasks of the old one cannot be gone on with",
    },
    Key {
        name: "resumes",
        allowed: "a list of older versions",
        text: "Versions whose tasks this one can go on with",
    },
];

const LAST: Key = Key {
    name: "policy",
    allowed: "a table of policy keys",
    text: "What differs from `[defaults]`; see [policies](#policies)",
};

/// The keys of one kind of tools: its own, within those of all.
pub(super) const fn keys<const N: usize>(own: &[Key]) -> [Key; N] {
    assert!(N == SHARED + own.len());
    let mut keys = [LAST; N];
    let mut at = 0;
    while at + 1 < N {
        keys[at] = if at < FIRST.len() {
            FIRST[at]
        } else {
            own[at - FIRST.len()]
        };
        at += 1;
    }
    keys
}

/// Of its `annotations`.
const HINTS: &[Key] = &[
    hint("title"),
    hint("readOnlyHint"),
    hint("destructiveHint"),
    hint("idempotentHint"),
    hint("openWorldHint"),
];

const fn hint(name: &'static str) -> Key {
    Key {
        name,
        allowed: "true or false (title: a text)",
        text: "",
    }
}

/// What was read of a section.
pub(super) struct Read {
    /// `None` is a problem, which was told.
    pub(super) name: Option<String>,
    /// The names of its arguments.
    pub(super) arguments: Vec<String>,
    pub(super) output_schema: Option<jsonschema::Validator>,
    pub(super) spec: ToolSpec,
    pub(super) effects: Effects,
    /// The policy and the effects for people, and where they come from.
    pub(super) policy: Vec<Effective>,
    pub(super) effects_shown: Effective,
}

/// Reads what a section has of it; problems are told.
pub(super) fn read(section: &Section<'_, '_>, defaults: &Layer) -> Read {
    let name: Option<String> = section.require("name");
    let input = schema::read(section, "input_schema");
    let output_schema = schema::read(section, "output_schema");
    let arguments = input.as_ref().map(|schema| schema.names());
    let arguments = arguments.unwrap_or_default();
    let annotations = annotations(section);
    let effects = effects(section, annotations.as_ref());
    let effects_shown = effects_shown(section, effects);
    let policy_table = section.table("policy", POLICY);
    let own = policy_table.as_ref().map(Layer::read).unwrap_or_default();
    let layers = [(From::Defaults, defaults), (From::Tool, &own)];
    let (policy, shown) = policy::effective(&layers);
    let empty = serde_json::json!({ "type": "object", "additionalProperties": false });
    let schema_json = input.as_ref().map_or(&empty, |schema| &schema.json);
    let mut definition = Definition::new(name.clone().unwrap_or_default(), schema_json);
    definition.title = section.take("title");
    definition.description = section.require("description");
    definition.annotations = annotations;
    if let Some(schema) = &output_schema {
        definition = definition.with_output_schema(&schema.json);
    }
    if let Some(name) = &name {
        if let Err(problem) = definition.check() {
            let about_name = problem.starts_with("tool name");
            let key = if about_name { "name" } else { "input_schema" };
            section.problem(section.at(key), key, problem);
        }
        policy::check(section, name, &policy, &layers);
        if let Some(argument) = &policy.idempotency_key_argument
            && own.says("idempotency_key_argument")
        {
            let (at, key) = (section.at("policy"), "policy.idempotency_key_argument");
            argument_is_known(section, at, key, argument, &arguments);
        }
    }
    let mut spec = ToolSpec::new(definition);
    spec.policy = policy;
    spec.version = section.take("version").unwrap_or(1);
    spec.resumes = section.take("resumes").unwrap_or_default();
    if spec.version < 1 {
        section.problem(section.at("version"), "version", "must be at least 1");
    }
    Read {
        name,
        arguments,
        output_schema: output_schema.map(|schema| schema.validator),
        spec,
        effects,
        policy: shown,
        effects_shown,
    }
}

pub(super) fn argument_is_known(
    section: &Section<'_, '_>,
    at: usize,
    key: &str,
    argument: &str,
    known: &[String],
) {
    if !known.iter().any(|name| name == argument) {
        let names = match known {
            [] => "it has none".to_owned(),
            known => format!("it has {}", known.join(", ")),
        };
        let problem = format!("\"{argument}\" is no property of input_schema; {names}");
        section.problem(at, key, problem);
    }
}

fn annotations(section: &Section<'_, '_>) -> Option<ToolAnnotations> {
    let table = section.table("annotations", HINTS)?;
    let annotations = ToolAnnotations {
        title: table.take("title"),
        read_only_hint: table.take("readOnlyHint"),
        destructive_hint: table.take("destructiveHint"),
        idempotent_hint: table.take("idempotentHint"),
        open_world_hint: table.take("openWorldHint"),
        ..ToolAnnotations::default()
    };
    table.finish();
    Some(annotations)
}

fn effects(section: &Section<'_, '_>, annotations: Option<&ToolAnnotations>) -> Effects {
    let hints =
        |hint: fn(&ToolAnnotations) -> Option<bool>| annotations.and_then(hint).unwrap_or_default();
    match section.take::<String>("effects").as_deref() {
        Some("none") => Effects::None,
        Some("repeatable") => Effects::Repeatable,
        Some("once") => Effects::Once,
        None | Some("by_hints") => match () {
            () if hints(|hints| hints.read_only_hint) => Effects::None,
            () if hints(|hints| hints.idempotent_hint) => Effects::Repeatable,
            () => Effects::Once,
        },
        Some(_) => {
            section.wrong_word("effects");
            Effects::Once
        }
    }
}

/// The same for people, and where it comes from.
fn effects_shown(section: &Section<'_, '_>, effects: Effects) -> Effective {
    let value = match effects {
        Effects::None => "none",
        Effects::Repeatable => "repeatable",
        Effects::Once => "once",
    };
    let key = match effects {
        _ if section.table.contains_key("effects") => Some("effects"),
        Effects::None | Effects::Repeatable => Some("annotations"),
        Effects::Once => None,
    };
    Effective {
        key: "effects",
        value: value.into(),
        from: key.map_or(From::Default, |_| From::Tool),
        line: key.map(|key| section.reader.line(section.at(key))),
    }
}
