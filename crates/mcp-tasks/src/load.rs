//! From a file and the environment to settings: every problem at once, each with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};

use crate::config::{Config, is_secret};

/// Every variable of ours begins so.
const PREFIX: &str = "MCP_TASKS__";
/// And these almost do. (Kubernetes sets such ones for a service of our name, never with `__`.)
const PREFIX_ALMOST: &str = "MCP_TASKS_";
/// Between the parts of a setting's name, in variables.
const SEPARATOR: &str = "__";
/// Settings that are lists; in the environment their values are separated by commas.
const LISTS: [&str; 15] = [
    "auth.scopes.list",
    "auth.scopes.call",
    "auth.scopes.resources",
    "auth.scopes.prompts",
    "auth.scopes.read",
    "auth.scopes.update",
    "auth.scopes.cancel",
    "auth.scopes.delegate",
    "tools.drills_resume",
    "callbacks.keys",
    "gateway.request_state_keys",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "gateway.trusted_proxies",
    "worker.queues",
];

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there, or not for us.
    #[error("the settings file {} cannot be read", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is no TOML: where, and why. Without the line itself, which may hold a password.
    #[error("the settings file {} is not TOML: {why}", .0.display(), why = .1)]
    Syntax(PathBuf, String),
    /// They contradict themselves, or are none; all problems at once.
    #[error("the settings do not work:\n  {}", .0.join("\n  "))]
    Invalid(Vec<String>),
}

/// Reads the file, if one is named, and the environment over it.
///
/// # Errors
/// Names every setting that cannot be used, and where it stands.
pub fn load(file: Option<&Path>) -> Result<Config, Error> {
    let mut sources = Sources::default();
    if let Some(file) = file {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| Error::Read(file.to_owned(), error))?;
        sources.add_file(file, &text)?;
    }
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    sources.add_environment(variables);
    sources.settings().map_err(Error::Invalid)
}

/// What was set, and where.
#[derive(Default)]
struct Sources {
    values: Value,
    /// The place of each setting, in words.
    places: BTreeMap<String, String>,
    /// Variables as they are written, of which a number or a truth value was read.
    texts: BTreeMap<String, String>,
    /// Variables that were meant for us, and name no setting.
    misnamed: Vec<String>,
}

impl Sources {
    fn add_file(&mut self, file: &Path, text: &str) -> Result<(), Error> {
        let syntax = |error| Error::Syntax(file.to_owned(), place_and_reason(&error, text));
        let table: toml::Table = text.parse().map_err(syntax)?;
        self.values = serde_json::to_value(table).unwrap_or_default();
        let places = DeTable::parse(text).map_err(syntax)?;
        let mut found = Places {
            file,
            text,
            places: &mut self.places,
        };
        found.of_table("", places.get_ref());
        Ok(())
    }

    fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, text) in variables {
            let upper = name.to_uppercase();
            let Some(path) = upper.strip_prefix(PREFIX) else {
                let almost = upper.strip_prefix(PREFIX_ALMOST);
                if let Some(path) = almost.filter(|path| path.contains(SEPARATOR)) {
                    self.misnamed.push(format!(
                        "variable {name}: names no setting; is {PREFIX}{path} meant?"
                    ));
                }
                continue;
            };
            let path = path.to_lowercase().replace(SEPARATOR, ".");
            let value = if LISTS.contains(&path.as_str()) {
                let items = text.split(',').filter(|item| !item.is_empty());
                Value::Array(items.map(scalar).collect())
            } else {
                scalar(&text)
            };
            put(&mut self.values, &path, value);
            // What the file says in its place does not count any more.
            let below = format!("{path}[");
            self.places.retain(|place, _| !place.starts_with(&below));
            self.places.insert(path.clone(), format!("variable {name}"));
            self.texts.insert(path, text);
        }
    }

    /// # Errors
    /// All problems.
    fn settings(mut self) -> Result<Config, Vec<String>> {
        let (config, broken, mut problems) = self.read();
        problems.append(&mut self.misnamed);
        // A setting that could not be read has its default now: what is said of that is no help.
        let judged = config.problems().into_iter();
        let judged = judged.filter(|problem| !broken.iter().any(|path| problem.contains(path)));
        problems.extend(judged.map(|problem| self.placed(problem)));
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(problems)
        }
    }

    /// What can be read, the names of what cannot, and why.
    fn read(&mut self) -> (Config, BTreeSet<String>, Vec<String>) {
        let (mut broken, mut problems) = (BTreeSet::new(), Vec::new());
        let mut removed = Removed::default();
        if self.values.is_null() {
            self.values = Value::Object(Map::new());
        }
        loop {
            let error = match serde_path_to_error::deserialize(&self.values) {
                Ok(config) => return (config, broken, problems),
                Err(error) => error,
            };
            let steps = steps(&error);
            let path = removed.path(&steps);
            // A password of digits, say: what looks like a number may be meant as text.
            if let Some(text) = self.texts.remove(&path)
                && let Some(value) = at(&mut self.values, &steps)
                && !value.is_string()
                && !value.is_array()
            {
                *value = Value::String(text);
                continue;
            }
            let told = error.inner().to_string();
            // It was there, and could not be read.
            let known = told
                .strip_prefix("missing field `")
                .and_then(|rest| rest.split('`').next())
                .is_some_and(|name| broken.contains(&format!("{path}.{name}")));
            if !known {
                problems.push(self.placed(format!("{path}: {}", told_of(&path, &told))));
            }
            if !removed.remove(&mut self.values, &steps) {
                return (Config::default(), broken, problems);
            }
            broken.insert(path);
        }
    }

    /// The problem, and where the setting that it begins with stands.
    fn placed(&self, problem: String) -> String {
        let mut path = problem.split(':').next().unwrap_or_default();
        loop {
            if let Some(place) = self.places.get(path) {
                return format!("{problem} ({place})");
            }
            // What is missing in an entry of a list is missing there.
            match path.rsplit_once('.') {
                Some((above, _)) if above.ends_with(']') => path = above,
                _ => return problem,
            }
        }
    }
}

fn place_and_reason(error: &toml::de::Error, text: &str) -> String {
    let why = error.message();
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else {
        return why.to_owned();
    };
    let line = before.matches('\n').count() + 1;
    let begun = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
    let column = begun.chars().count() + 1;
    format!("line {line}, column {column}: {why}")
}

/// Names of Rust's, and what people call that.
const WORDS: [(&str, &str); 9] = [
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    (
        "expected u32",
        "expected a whole number from 0 to 4294967295",
    ),
    ("expected u64", "expected a whole number from 0"),
    ("expected usize", "expected a whole number from 0"),
    (
        "expected i16",
        "expected a whole number from -32768 to 32767",
    ),
    ("expected i32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
];

/// What is wrong, what is allowed, and no secret.
fn told_of(path: &str, told: &str) -> String {
    let word = WORDS.iter().find(|(word, _)| told.contains(word));
    let told = match word {
        Some((word, people)) => &told.replace(word, people),
        None => told,
    };
    if told.contains("a duration") {
        return format!("{told}, e.g. \"30s\" or \"5m\"");
    }
    if is_secret(path)
        && let Some((_, expected)) = told.split_once("expected")
    {
        return format!("expected{expected}");
    }
    told.to_owned()
}

/// A value as a variable holds it.
fn scalar(text: &str) -> Value {
    if let Ok(truth) = text.to_lowercase().parse::<bool>() {
        return Value::Bool(truth);
    }
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    let float = text.parse::<f64>().ok();
    let float = float.and_then(serde_json::Number::from_f64);
    float.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// Sets a value; what stands in its way gives way.
fn put(values: &mut Value, path: &str, value: Value) {
    let mut place = values;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = value;
}

/// One step into the settings.
#[derive(Clone, Debug)]
enum Step {
    Name(String),
    Entry(usize),
}

fn steps(error: &serde_path_to_error::Error<serde_json::Error>) -> Vec<Step> {
    let steps = error.path().iter().filter_map(|segment| match segment {
        Segment::Map { key } => Some(Step::Name(key.clone())),
        Segment::Seq { index } => Some(Step::Entry(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    steps.collect()
}

fn at<'a>(values: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    steps.iter().try_fold(values, |value, step| match step {
        Step::Name(name) => value.get_mut(name),
        Step::Entry(index) => value.get_mut(index),
    })
}

/// What was taken out so that the rest can be read: later entries of a list move up, and keep
/// their numbers in what is told.
#[derive(Default)]
struct Removed(BTreeMap<String, Vec<usize>>);

impl Removed {
    /// The name of what is at the end of these steps, as in the sources.
    fn path(&self, steps: &[Step]) -> String {
        let mut path = String::new();
        for step in steps {
            match step {
                Step::Name(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Entry(index) => {
                    let gone = self.0.get(&path).map_or(&[][..], Vec::as_slice);
                    let mut number = *index;
                    for before in gone {
                        number += usize::from(*before <= number);
                    }
                    path = format!("{path}[{number}]");
                }
            }
        }
        path
    }

    /// Whether there was something to remove.
    fn remove(&mut self, values: &mut Value, steps: &[Step]) -> bool {
        let Some((last, above)) = steps.split_last() else {
            return false;
        };
        let Some(holder) = at(values, above) else {
            return false;
        };
        match (last, holder) {
            (Step::Name(name), Value::Object(members)) => members.remove(name).is_some(),
            (Step::Entry(index), Value::Array(entries)) if *index < entries.len() => {
                entries.remove(*index);
                let list = self.path(above);
                let path = self.path(steps);
                let number = path[list.len()..].trim_matches(['[', ']']);
                let gone = self.0.entry(list).or_default();
                gone.extend(number.parse::<usize>());
                gone.sort_unstable();
                true
            }
            _ => false,
        }
    }
}

/// Looks for the lines of a file that settings stand in.
struct Places<'a> {
    file: &'a Path,
    text: &'a str,
    places: &'a mut BTreeMap<String, String>,
}

impl Places<'_> {
    fn of_table(&mut self, above: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = if above.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{above}.{}", name.get_ref())
            };
            self.note(path.clone(), &name.span());
            self.of_value(&path, value.get_ref());
        }
    }

    fn of_value(&mut self, path: &str, value: &DeValue<'_>) {
        if let Some(table) = value.as_table() {
            self.of_table(path, table);
        }
        for (number, entry) in value.as_array().into_iter().flatten().enumerate() {
            let path = format!("{path}[{number}]");
            self.note(path.clone(), &entry.span());
            self.of_value(&path, entry.get_ref());
        }
    }

    fn note(&mut self, path: String, span: &Range<usize>) {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let place = format!("{}, line {line}", self.file.display());
        self.places.insert(path, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(file: &str, environment: &[(&str, &str)]) -> Vec<String> {
        let mut sources = Sources::default();
        sources.add_file(Path::new("x.toml"), file).unwrap();
        let variables = environment.iter();
        sources.add_environment(variables.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        sources.settings().err().unwrap_or_default()
    }

    #[test]
    fn numbers_are_told_in_words() {
        let problems = problems(
            "[gateway]\nlist_page = \"many\"\n[worker]\nslots = -1\n",
            &[],
        );
        assert_eq!(problems.len(), 2, "{problems:#?}");
        for problem in &problems {
            assert!(
                problem.contains("expected a whole number from 0"),
                "{problem}"
            );
        }
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_place() {
        let file = r#"
[postgres]
ulr = "postgres://x"
lease = 10
pool_size = 0

[gateway]
list_page = "many"

[nonsense]
a = 1

[alerts]
receivers = []
"#;
        let environment = [
            ("MCP_TASKS__REDIS__BLOCK", "5"),
            ("MCP_TASKS__POSTGRES__HEARTBEAT", "1h"),
            ("MCP_TASKS__LOGS__FORMAT", "xml"),
            ("MCP_TASKS__WORKER__SLOTZ", "1"),
            ("MCP_TASKS_CONFIG", "is another matter"),
            ("MCP_TASKS_GATEWAY_PORT", "tcp://10.0.0.1:80"),
            ("MCP_TASKS_GATEWAY__HOLD", "3s"),
        ];
        let problems = problems(file, &environment);
        for (path, told, place) in [
            ("postgres.ulr", "unknown field", "x.toml, line 3"),
            ("postgres.lease", "e.g. \"30s\"", "x.toml, line 4"),
            ("postgres.pool_size", "at least 1", "x.toml, line 5"),
            ("gateway.list_page", "many", "x.toml, line 8"),
            ("nonsense", "unknown field", "x.toml, line 10"),
            ("redis.block", "e.g. \"30s\"", "MCP_TASKS__REDIS__BLOCK"),
            ("logs.format", "`json` or `text`", "MCP_TASKS__LOGS__FORMAT"),
            ("worker.slotz", "`slots`", "MCP_TASKS__WORKER__SLOTZ"),
        ] {
            let found = problems.iter().find(|problem| {
                problem.starts_with(&format!("{path}:"))
                    && problem.contains(told)
                    && problem.ends_with(&format!("{place})"))
            });
            assert!(found.is_some(), "{path}: {problems:#?}");
        }
        // What a heartbeat of an hour has to say of the lease, which could not be read, is no help.
        let misnamed = "variable MCP_TASKS_GATEWAY__HOLD: names no setting; is MCP_TASKS__GATEWAY__HOLD meant?";
        assert!(problems.iter().any(|problem| problem == misnamed));
        assert_eq!(problems.len(), 9, "{problems:#?}");
    }

    #[test]
    fn entries_of_lists_keep_their_numbers() {
        let file = r#"
[[alerts.receivers]]
name = "a"
kind = "pigeon"
[[alerts.receivers]]
name = "b"
[[alerts.receivers]]
name = "c"
kind = "log"
[[alerts.receivers]]
name = "d"
kind = "webhook"
url = "https://d"
quiet = true
[[alerts.receivers]]
name = 5
kind = 6
"#;
        let problems = problems(file, &[]);
        for (path, told, line) in [
            ("alerts.receivers[0].kind", "`webhook`", 4),
            ("alerts.receivers[1]", "missing field `kind`", 5),
            ("alerts.receivers[3].quiet", "unknown field", 14),
            ("alerts.receivers[4].name", "a string", 16),
        ] {
            let found = problems.iter().find(|problem| {
                problem.starts_with(&format!("{path}:"))
                    && problem.contains(told)
                    && problem.ends_with(&format!("line {line})"))
            });
            assert!(found.is_some(), "{path}: {problems:#?}");
        }
    }

    #[test]
    fn variables_win_and_may_look_like_numbers() {
        let mut sources = Sources::default();
        let file = "[redis]\nkey_prefix = \"file\"\nshards = 2\n";
        sources.add_file(Path::new("x.toml"), file).unwrap();
        let variables = [
            ("MCP_TASKS__REDIS__KEY_PREFIX", "123"),
            ("MCP_TASKS__REDIS__SHARDS", "8"),
            ("mcp_tasks__tools__demo", "TRUE"),
            ("MCP_TASKS__GATEWAY__ALLOWED_HOSTS", "a,b"),
            ("MCP_TASKS__TRACES__SAMPLE_RATIO", "0.5"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        sources.add_environment(variables.into_iter());
        let config = sources.settings().unwrap();
        assert_eq!(config.redis.key_prefix, "123");
        assert_eq!(config.redis.shards, 8);
        assert!(config.tools.demo);
        assert_eq!(config.gateway.allowed_hosts, ["a", "b"]);
        assert!((config.traces.sample_ratio - 0.5).abs() < 0.001);
    }

    /// What is a list of texts can be said in a variable; lists of tables cannot.
    #[test]
    fn every_list_can_be_said_in_a_variable() {
        fn lists(path: &str, value: &serde_json::Value, found: &mut Vec<String>) {
            match value {
                serde_json::Value::Array(_) => found.push(path.to_owned()),
                serde_json::Value::Object(fields) => {
                    for (name, field) in fields {
                        let path = format!("{path}.{name}");
                        lists(path.trim_start_matches('.'), field, found);
                    }
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        let defaults = serde_json::to_value(Config::default()).unwrap();
        lists("", &defaults, &mut found);
        let tables = ["alerts.receivers", "auth.issuers", "encryption.keys"];
        found.retain(|path| !tables.contains(&path.as_str()));
        found.sort_unstable();
        let mut known = LISTS.to_vec();
        known.sort_unstable();
        assert_eq!(found, known);
    }

    #[test]
    fn secrets_stay_out_of_what_is_told() {
        let file = "[gateway]\nrequest_state_keys = \"hunter2\"\n";
        let problems = problems(file, &[]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(!problems[0].contains("hunter2") && problems[0].contains("sequence"));
    }
}
