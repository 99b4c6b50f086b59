//! `[[upstream]]`: the tools of another MCP server, and their policies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::policy::{self, Effective, From, Layer};
use super::policy_keys::POLICY;
use super::reader::{Key, Section};
use crate::upstream::{Effects, UpstreamConfig, Wanted};

/// What of a section is ours; the rest is `UpstreamConfig`'s.
pub(super) const UPSTREAM: &[Key] = &[
    Key {
        name: "policy",
        allowed: "a table of policy keys",
        text: "What differs from `[defaults]`, for all its tools; see [policies](#policies)",
    },
    Key {
        name: "tools",
        allowed: "a table: the server's own name of a tool = a table",
        text: "",
    },
];

const TOOL: &[Key] = &[Key {
    name: "policy",
    allowed: "a table of policy keys",
    text: "",
}];

/// The policies of an upstream's tools, which are known by name only when it is asked.
#[derive(Clone, Debug)]
pub(super) struct Policies {
    pub(super) prefix: String,
    defaults: Layer,
    source: Layer,
    tools: BTreeMap<String, Layer>,
    effects: Effective,
    effects_of: BTreeMap<String, Effective>,
}

impl Policies {
    /// The policy of the tool that we offer under this name.
    pub(super) fn of(&self, name: &str) -> (worker::ToolPolicy, Vec<Effective>) {
        let own = name.strip_prefix(&self.prefix).unwrap_or(name);
        let none = Layer::default();
        let tool = self.tools.get(own).unwrap_or(&none);
        policy::effective(&[
            (From::Defaults, &self.defaults),
            (From::Source, &self.source),
            (From::Tool, tool),
        ])
    }

    /// What a call of it does.
    pub(super) fn effects_of(&self, name: &str) -> Effective {
        let own = name.strip_prefix(&self.prefix).unwrap_or(name);
        self.effects_of.get(own).unwrap_or(&self.effects).clone()
    }
}

/// Reads one section; `None` when it cannot be used, which was told.
pub(super) fn read(
    section: Section<'_, '_>,
    folder: &Path,
    defaults: &Layer,
) -> Option<(Wanted, Policies)> {
    let source = section.table("policy", POLICY);
    let source = source.as_ref().map(Layer::read).unwrap_or_default();
    let layers = [(From::Defaults, defaults), (From::Source, &source)];
    policy::check(&section, "policy", &policy::effective(&layers).0, &layers);
    let tools = tools(&section, defaults, &source);
    let mut config = config(&section)?;
    for problem in config.validate() {
        let key = problem.split([':', ',', '.']).next().unwrap_or_default();
        section.problem(section.at(key), "", problem.clone());
    }
    if config.command.is_some() {
        // Its arguments may name files, as its program does.
        config.dir = Some(folder.join(config.dir.unwrap_or_default()));
    }
    config.bearer_file = config.bearer_file.map(|file| folder.join(file));
    config.ca_file = config.ca_file.map(|file| folder.join(file));
    for file in config.secret_headers.values_mut() {
        *file = folder.join(&*file);
    }
    if let Some(oauth) = &mut config.oauth {
        oauth.client_secret_file = folder.join(&oauth.client_secret_file);
    }
    if let Some(program) = config.command.as_mut().and_then(|words| words.first_mut())
        && program.contains('/')
    {
        *program = folder.join(&*program).display().to_string();
    }
    look(&section, folder, &config);
    let (effects, effects_of) = effects(&section, &config);
    let policies = Policies {
        effects,
        effects_of,
        prefix: config.prefix.clone(),
        defaults: defaults.clone(),
        source,
        tools,
    };
    let of_tools = policies.clone();
    let wanted = Wanted {
        config,
        revision: format!("{:?}", policies.values()),
        adjust: Arc::new(move |_, spec| spec.policy = of_tools.of(spec.name()).0),
    };
    Some((wanted, policies))
}

/// Says what it needs and is not there: it may come before it is needed.
fn look(section: &Section<'_, '_>, folder: &Path, config: &UpstreamConfig) {
    let program = config.command.as_ref().and_then(|words| words.first());
    // A PATH of its own is where its program is looked for.
    let own_path = config.env.contains_key("PATH");
    if let Some(program) = program.filter(|program| !own_path || program.contains('/'))
        && let Err(problem) = super::command::find(folder, Path::new(program))
    {
        section.missing(section.at("command"), "command", problem);
    }
    if let Some(dir) = config.dir.as_deref().filter(|dir| !dir.is_dir()) {
        let problem = format!("{} is no folder", dir.display());
        section.missing(section.at("dir"), "dir", problem);
    }
    let oauth = config.oauth.as_ref();
    let headers = config.secret_headers.values();
    let headers = headers.map(|file| ("secret_headers", "secret_headers", Some(file)));
    for (key, name, file) in [
        ("bearer_file", "bearer_file", config.bearer_file.as_ref()),
        ("ca_file", "ca_file", config.ca_file.as_ref()),
        (
            "oauth",
            "oauth.client_secret_file",
            oauth.map(|oauth| &oauth.client_secret_file),
        ),
    ]
    .into_iter()
    .chain(headers)
    {
        let Some(file) = file else {
            continue;
        };
        match std::fs::read(file) {
            Ok(_) if key == "ca_file" => {}
            Ok(secret) => {
                let secret = String::from_utf8_lossy(&secret);
                super::http::note_short(section, key, name, file, &secret);
            }
            Err(error) => {
                let problem = format!("{}: {error}", file.display());
                section.missing(section.at(key), name, problem);
            }
        }
    }
}

/// What calls do, for the server and for single tools, and where that is said.
fn effects(
    section: &Section<'_, '_>,
    config: &UpstreamConfig,
) -> (Effective, BTreeMap<String, Effective>) {
    let shown = |effects: &Effects, from: From, at: Option<usize>| Effective {
        key: "effects",
        value: serde_json::to_value(effects).unwrap_or_default(),
        from,
        line: at.map(|at| section.reader.line(at)),
    };
    let of_server = if section.table.contains_key("effects") {
        shown(&config.effects, From::Source, Some(section.at("effects")))
    } else {
        shown(&config.effects, From::Default, None)
    };
    let place = |tool: &str| {
        let tools = section.table.get("tools")?.get_ref().as_table()?;
        let tool = tools.get(tool)?.get_ref().as_table()?;
        Some(tool.get("effects")?.span().start)
    };
    let tools = config.tools.iter().filter_map(|(name, tool)| {
        let effects = shown(tool.effects.as_ref()?, From::Tool, place(name));
        Some((name.clone(), effects))
    });
    (of_server, tools.collect())
}

impl Policies {
    /// What they say, wherever they say it.
    fn values(&self) -> Vec<Vec<(&'static str, serde_json::Value)>> {
        let layers = [&self.defaults, &self.source];
        let layers = layers.into_iter().chain(self.tools.values());
        layers.map(Layer::values).collect()
    }
}

/// The policies of single tools.
fn tools(section: &Section<'_, '_>, defaults: &Layer, source: &Layer) -> BTreeMap<String, Layer> {
    let mut layers = BTreeMap::new();
    let Some(table) = section.table("tools", &[]) else {
        return layers;
    };
    for (name, span, value) in table.entries() {
        let Some(tool) = value.get_ref().as_table() else {
            // Told with the rest of the section.
            continue;
        };
        let place = table.path(name);
        let tool = Section::new(section.reader, place, tool, span.start, TOOL);
        let Some(policy) = tool.table("policy", POLICY) else {
            continue;
        };
        let layer = Layer::read(&policy);
        let over = [
            (From::Defaults, defaults),
            (From::Source, source),
            (From::Tool, &layer),
        ];
        policy::check(&tool, name, &policy::effective(&over).0, &over);
        layers.insert(name.to_owned(), layer);
    }
    layers
}

/// The section without policies.
fn config(section: &Section<'_, '_>) -> Option<UpstreamConfig> {
    let mut table = section.table.clone();
    table.remove("policy");
    if let Some(DeValue::Table(tools)) = table.get_mut("tools").map(Spanned::get_mut) {
        for (_, tool) in tools.iter_mut() {
            if let DeValue::Table(tool) = tool.get_mut() {
                tool.remove("policy");
            }
        }
    }
    let whole = Spanned::new(section.at..section.at, DeValue::Table(table));
    match UpstreamConfig::deserialize(ValueDeserializer::from(whole)) {
        Ok(config) => Some(config),
        Err(error) => {
            let at = error.span().map_or(section.at, |span| span.start);
            // Policies were read before, and are known here nevertheless.
            let of_tool = "expected `effects` or `hide`";
            let problem = error.message();
            let problem = problem.replace(of_tool, "expected `effects`, `hide` or `policy`");
            section.problem(at, "", problem);
            None
        }
    }
}
