//! The tools file: which tools the stock worker serves, and by which policies.

mod command;
mod command_keys;
mod http;
mod http_keys;
mod limits;
mod policy;
mod policy_keys;
mod reader;
mod reference;
mod schema;
mod tool;
mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeTable;
use worker::Tool;

use crate::upstream::Wanted;

pub use limits::Limits;
pub use policy::{Effective, From, of_code};
pub use reader::Problem;
pub use reference::tables as reference;

use policy::Layer;
use policy_keys::POLICY;
use reader::{Key, Reader, Section};

const ROOT: &[Key] = &[
    Key {
        name: "defaults",
        allowed: "a table of policy keys",
        text: "",
    },
    Key {
        name: "command",
        allowed: "[[command]] sections",
        text: "",
    },
    Key {
        name: "http",
        allowed: "[[http]] sections",
        text: "",
    },
    Key {
        name: "upstream",
        allowed: "[[upstream]] sections",
        text: "",
    },
];

/// A tools file that can be served.
pub struct ToolsFile {
    /// Its tools, in the order of their names.
    pub tools: Vec<Declared>,
    /// Its upstream servers, whose tools are known when they are asked.
    pub upstreams: Vec<Upstream>,
    /// What upstream servers need and is not there now: those servers are down until it is.
    pub missing: Vec<Problem>,
    /// What works, and perhaps not as it was meant.
    pub notes: Vec<Problem>,
    written: Vec<limits::Written>,
}

/// An upstream server that a file declares.
pub struct Upstream {
    /// On which line its section begins.
    pub line: usize,
    /// As it is wanted.
    pub wanted: Wanted,
    policies: upstream::Policies,
}

/// The policy of a tool.
pub struct Policy {
    /// What kind of source the tool comes from.
    pub source: &'static str,
    /// On which line its section begins.
    pub line: usize,
    /// Its values, and where each comes from.
    pub values: Vec<Effective>,
}

impl ToolsFile {
    /// The policy of the tool of this name. Of an upstream's tool it is not known whether there is
    /// one.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Policy> {
        if let Some(tool) = self.tools.iter().find(|tool| tool.name == name) {
            return Some(Policy {
                source: tool.source,
                line: tool.line,
                values: with_effects(tool.policy.clone(), &tool.effects),
            });
        }
        let upstreams = self.upstreams.iter();
        let fitting = upstreams.filter(|one| name.starts_with(&one.policies.prefix));
        let upstream = fitting.max_by_key(|one| one.policies.prefix.len())?;
        Some(Policy {
            source: "upstream",
            line: upstream.line,
            values: with_effects(
                upstream.policies.of(name).1,
                &upstream.policies.effects_of(name),
            ),
        })
    }
}

/// What a call does decides what a crash means: it is shown with the policy.
fn with_effects(mut values: Vec<Effective>, effects: &Effective) -> Vec<Effective> {
    values.push(effects.clone());
    values
}

/// A tool that a file declares.
pub struct Declared {
    /// Its name.
    pub name: String,
    /// What kind of source it comes from: `command` or `http`.
    pub source: &'static str,
    /// On which line its section begins.
    pub line: usize,
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// Its policy, and where each value comes from.
    pub policy: Vec<Effective>,
    /// What a call of it does, by its key or its hints.
    pub effects: Effective,
    /// How long its program may take to end, and on which line that is said.
    pub grace: Option<(Duration, usize)>,
    /// Where its service is, without a path: `https://host:port`.
    pub server: Option<String>,
}

/// Everything that is wrong with a tools file, in the order of its lines.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Problems {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl Problems {
    fn text(&self) -> String {
        let problems = self.problems.iter();
        let lines: Vec<String> = problems.map(|problem| problem.of(&self.file)).collect();
        lines.join("\n")
    }
}

/// Reads a tools file.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(file: &Path) -> Result<ToolsFile, Problems> {
    let problems = |problems| Problems {
        file: file.to_owned(),
        problems,
    };
    let whole = |problem: String| {
        problems(vec![Problem {
            line: 0,
            key: String::new(),
            problem,
        }])
    };
    let text = std::fs::read(file).map_err(|error| whole(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(at);
        let line = line.filter(|byte| **byte == b'\n').count() + 1;
        whole(format!("line {line} is not UTF-8"))
    })?;
    let absolute = std::path::absolute(file).map_err(|error| whole(error.to_string()))?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    read(&text, folder).map_err(problems)
}

/// Reads a tools file for a worker with these settings.
///
/// # Errors
/// Everything that is wrong with it, or with it and the settings together.
pub fn load_within(file: &Path, limits: Limits) -> Result<ToolsFile, Problems> {
    let read = load(file)?;
    let problems = limits.problems(&read.written);
    if problems.is_empty() {
        return Ok(read);
    }
    Err(Problems {
        file: file.to_owned(),
        problems,
    })
}

pub(crate) fn read(text: &str, folder: &Path) -> Result<ToolsFile, Vec<Problem>> {
    let reader = Reader::new(text);
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.problem(
            at,
            String::new(),
            format!("is no TOML: {}", error.message()),
        );
    }
    let root = Section::new(&reader, "", root.get_ref(), 0, ROOT);
    let defaults = root.table("defaults", POLICY);
    let defaults = defaults.as_ref().map(Layer::read).unwrap_or_default();
    let mut tools: BTreeMap<String, Declared> = BTreeMap::new();
    let mut written = Vec::new();
    for section in sections(&root, "command", command_keys::COMMAND) {
        let from = Place::of(&reader, &section, "command");
        let output = limits::Written::of(&section);
        if let Some(read) = command::read(section, folder, &defaults) {
            written.push(output.by(&read.program));
            let tool = Arc::new(read.program);
            let more = More {
                policy: read.policy,
                effects: read.effects,
                grace: read.grace,
                server: None,
            };
            from.declare(&mut tools, tool, more);
        }
    }
    for section in sections(&root, "http", http_keys::HTTP) {
        let from = Place::of(&reader, &section, "http");
        if let Some(read) = http::read(section, folder, &defaults) {
            let shape = &read.service.url.shape;
            let (scheme, host) = (shape.scheme_str(), shape.authority());
            let server = scheme
                .zip(host)
                .map(|(scheme, host)| format!("{scheme}://{host}"));
            let more = More {
                policy: read.policy,
                effects: read.effects,
                grace: None,
                server,
            };
            from.declare(&mut tools, Arc::new(read.service), more);
        }
    }
    let mut upstreams: Vec<Upstream> = Vec::new();
    for section in sections(&root, "upstream", upstream::UPSTREAM) {
        let (line, at) = (reader.line(section.at), section.at);
        let place = section.place.clone();
        let Some((wanted, policies)) = upstream::read(section, folder, &defaults) else {
            continue;
        };
        let same = |one: &&Upstream| one.wanted.config.name == wanted.config.name;
        if let Some(first) = upstreams.iter().find(same) {
            let (name, line) = (&wanted.config.name, first.line);
            let problem = format!("there is an upstream \"{name}\" already, on line {line}");
            reader.problem(at, place, problem);
            continue;
        }
        upstreams.push(Upstream {
            line,
            wanted,
            policies,
        });
    }
    root.finish();
    let [problems, missing, notes] = reader.into_said();
    if problems.is_empty() {
        let tools = tools.into_values().collect();
        Ok(ToolsFile {
            tools,
            upstreams,
            missing,
            notes,
            written,
        })
    } else {
        Err(problems)
    }
}

/// What a file says of a tool beside what the tool knows itself.
struct More {
    policy: Vec<Effective>,
    effects: Effective,
    grace: Option<(Duration, usize)>,
    server: Option<String>,
}

/// Where a tool is declared.
struct Place<'r, 'a> {
    reader: &'r Reader<'a>,
    source: &'static str,
    place: String,
    at: usize,
}

impl<'r, 'a> Place<'r, 'a> {
    fn of(reader: &'r Reader<'a>, section: &Section<'r, 'a>, source: &'static str) -> Self {
        Self {
            reader,
            source,
            place: section.place.clone(),
            at: section.at,
        }
    }

    /// Adds a tool, unless another section has its name.
    fn declare(self, tools: &mut BTreeMap<String, Declared>, tool: Arc<dyn Tool>, more: More) {
        let name = tool.spec().name().to_owned();
        if let Some(first) = tools.get(&name) {
            let problem = format!("there is a tool \"{name}\" already, on line {}", first.line);
            self.reader.problem(self.at, self.place, problem);
            return;
        }
        let declared = Declared {
            name: name.clone(),
            source: self.source,
            line: self.reader.line(self.at),
            tool,
            policy: more.policy,
            effects: more.effects,
            grace: more.grace,
            server: more.server,
        };
        tools.insert(name, declared);
    }
}

/// The `[[key]]` sections of the file.
fn sections<'r, 'a>(
    root: &Section<'r, 'a>,
    key: &'static str,
    keys: &'static [Key],
) -> Vec<Section<'r, 'a>> {
    let Some((value, at)) = root.value(key) else {
        return Vec::new();
    };
    let Some(array) = value.get_ref().as_array() else {
        root.problem(at, key, format!("write [[{key}]], with two brackets"));
        return Vec::new();
    };
    let mut sections = Vec::new();
    for (index, value) in array.iter().enumerate() {
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            root.problem(at, key, format!("is no [[{key}]] section"));
            continue;
        };
        let name = table.get("name").and_then(|name| name.get_ref().as_str());
        let place = match name {
            // Escaped: what is told of it stays on its line.
            Some(name) => format!("{key} {name:?}"),
            None => format!("{key}[{index}]"),
        };
        sections.push(Section::new(root.reader, place, table, at, keys));
    }
    sections
}

#[cfg(test)]
mod tests;
