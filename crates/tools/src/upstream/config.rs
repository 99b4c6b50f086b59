//! `[[upstream]]`: what may be said of one upstream MCP server.

mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One upstream MCP server. Exactly one of `url` and `command` says where it is.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// For logs, probes and messages.
    pub name: String,
    /// What the names of its tools begin with here; may be empty.
    #[serde(default)]
    pub prefix: String,
    /// Streamable HTTP: the endpoint, `https://host/mcp`. Redirects to other hosts are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// stdio: program and arguments. One process for each worker, started again when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// What the URIs of its resources begin with here, `docs+` for one; also where its results link to
    /// them. Without it they are as the server says, and of two servers with the same URI the first
    /// by name has it.
    #[serde(default)]
    pub uri_prefix: String,
    /// Whether its resources are served.
    #[serde(default = "yes")]
    pub resources: bool,
    /// Whether its prompts are served.
    #[serde(default = "yes")]
    pub prompts: bool,
    /// Variables for the command. Of the worker's own it gets `PATH`, `HOME` and the like only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of the worker's own environment that the command gets as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_pass: Vec<String>,
    /// Folder that the command runs in, and that relative paths among its arguments begin at;
    /// without it that of the tools file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Headers of every request, beside those of the protocol.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are read from files, again for each request: name of the header = path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_headers: BTreeMap<String, PathBuf>,
    /// File that holds the bearer token we show to the server; read again for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_file: Option<PathBuf>,
    /// Variable of the worker's environment that holds the bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_env: Option<String>,
    /// Our own access tokens by client credentials (OAuth 2.1), instead of `bearer_…`: a table of
    /// `token_url`, `client_id`, `client_secret_file` and where needed `scope` and `resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
    /// File (PEM) with the authorities that may sign the server's certificate, instead of the public
    /// ones; also of `oauth.token_url`. Read when the tools file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Revision of the protocol that is spoken: `"2026-07-28"` (requests that stand alone),
    /// `"2025-11-25"` (sessions; older servers answer with their own revision), or `"auto"`: found
    /// out.
    #[serde(default)]
    pub protocol: Protocol,
    /// Between two looks at its list of tools; a list that it says has changed is read at once.
    #[serde(default = "refresh", with = "humantime_serde")]
    #[schemars(with = "String")]
    pub refresh: Duration,
    /// For whatever is no call of a tool: greeting it, listing, asking for a task's state.
    #[serde(default = "timeout", with = "humantime_serde")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// What a call of its tools does, and so whether it may be repeated.
    #[serde(default)]
    pub effects: Effects,
    /// The same for single tools, by the server's own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, UpstreamTool>,
    /// For how long the connection of a call that must not be repeated is held while a question
    /// of an older server (before 2026-07-28) waits for its answer.
    #[serde(default = "hold", with = "humantime_serde")]
    #[schemars(with = "String")]
    pub hold: Duration,
    /// One message of the server, at most (bytes).
    #[serde(default = "message_bytes_max")]
    pub message_bytes_max: usize,
}

/// Where our own access tokens come from (RFC 6749 §4.4).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// The endpoint that gives them, of `https` unless it is on this machine.
    pub token_url: String,
    /// Who we are there.
    pub client_id: String,
    /// File with our secret there; read for each token.
    pub client_secret_file: PathBuf,
    /// What we want to be allowed, words with spaces between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whom the token is for (RFC 8707); `url` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// What may be said of one tool of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTool {
    /// What a call of it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// It is not offered.
    pub hide: bool,
}

/// Which revision of MCP an upstream is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// Asked for 2026-07-28, then greeted as older revisions want it.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Stateless requests.
    #[serde(rename = "2026-07-28")]
    Modern,
    /// `initialize`, sessions, requests of the server's own; what it answers, 2025-06-18 for one,
    /// is spoken.
    #[serde(rename = "2025-11-25")]
    Legacy,
}

/// What a call does outside, and so what follows when its end is unknown: after a lost worker, a
/// cut connection, a cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// By the tool's own hints: `readOnlyHint` is `none`, `idempotentHint` is `repeatable`,
    /// anything else `once`.
    #[default]
    ByHints,
    /// Nothing: it is repeated, and a cancelled one leaves no doubt.
    None,
    /// Repeating it changes nothing more: it is repeated.
    Repeatable,
    /// It must not be repeated: its task fails with `step_in_doubt`.
    Once,
}

fn yes() -> bool {
    true
}

fn refresh() -> Duration {
    Duration::from_secs(5 * 60)
}

fn timeout() -> Duration {
    Duration::from_secs(30)
}

fn hold() -> Duration {
    Duration::from_secs(10 * 60)
}

fn message_bytes_max() -> usize {
    8 * 1024 * 1024
}

impl UpstreamConfig {
    /// A server behind `url`, all else as if it was not said.
    pub fn at(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            ..Self::named(name.into())
        }
    }

    /// A server that is this program, all else as if it was not said.
    pub fn run(
        name: impl Into<String>,
        command: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            command: Some(command.into_iter().map(Into::into).collect()),
            ..Self::named(name.into())
        }
    }

    fn named(name: String) -> Self {
        Self {
            name,
            prefix: String::new(),
            url: None,
            command: None,
            uri_prefix: String::new(),
            resources: true,
            prompts: true,
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            dir: None,
            headers: BTreeMap::new(),
            secret_headers: BTreeMap::new(),
            bearer_file: None,
            bearer_env: None,
            oauth: None,
            ca_file: None,
            protocol: Protocol::default(),
            refresh: refresh(),
            timeout: timeout(),
            effects: Effects::default(),
            tools: BTreeMap::new(),
            hold: hold(),
            message_bytes_max: message_bytes_max(),
        }
    }

    /// What a call of this tool does.
    pub(super) fn effects_of(
        &self,
        tool: &str,
        hints: Option<&worker::ToolAnnotations>,
    ) -> Effects {
        let said = self.tools.get(tool).and_then(|tool| tool.effects);
        match said.unwrap_or(self.effects) {
            Effects::ByHints => match hints {
                Some(hints) if hints.read_only_hint == Some(true) => Effects::None,
                Some(hints) if hints.idempotent_hint == Some(true) => Effects::Repeatable,
                _ => Effects::Once,
            },
            said => said,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(toml: &str) -> Vec<String> {
        toml::from_str::<UpstreamConfig>(toml).unwrap().validate()
    }

    #[test]
    fn what_is_needed_is_enough() {
        assert!(problems("name = \"a\"\nurl = \"http://127.0.0.1:1/mcp\"").is_empty());
        assert!(
            problems("name = \"a\"\ncommand = [\"node\", \"x.js\"]\nprefix = \"a_\"").is_empty()
        );
    }

    #[test]
    fn contradictions_name_their_keys() {
        let both = problems("name = \"a\"\nurl = \"http://a/\"\ncommand = [\"b\"]");
        assert_eq!(both, ["url, command: exactly one of them must be given"]);
        assert!(problems("name = \"a\"\nurl = \"a/mcp\"")[0].starts_with("url: "));
        let headers = "name = \"a\"\ncommand = [\"b\"]\nheaders = { X = \"1\" }\nrefresh = \"1ms\"";
        let found = problems(headers);
        assert!(found[0].starts_with("headers: ") && found[1].starts_with("refresh: "));
        assert!(
            problems("name = \"a\"\nurl = \"http://a/\"\nprefix = \"a b\"")[0]
                .starts_with("prefix: ")
        );
    }

    #[test]
    fn secrets_stand_in_files_and_nowhere_else() {
        let of = |more: &str| problems(&format!("name = \"a\"\n{more}"));
        let url = of("url = \"https://who:hush@a/mcp\"");
        assert!(url[0].starts_with("url: holds a user's name") && !url[0].contains("hush"));
        let oauth = "url = \"https://a/\"\noauth = { token_url = \"https://who:hush@a/\", client_id = \"x\", client_secret_file = \"x\" }";
        let told = of(oauth);
        assert!(
            told[0].starts_with("oauth.token_url: holds a user's name"),
            "{told:?}"
        );
        // Also where they are no URLs.
        for (bad, why) in [
            ("https://who:hu sh@a/", "holds a user's name"),
            ("https://who:hush%@a?x", "holds a user's name"),
            ("https://who:hu/sh@a/", "is not http"),
            ("https://who:hu#sh@a/", "is not http"),
            ("who:hu-sh@a/mcp", "is not http"),
        ] {
            let told = of(&format!("url = \"{bad}\"")).join("\n");
            assert!(told.starts_with("url: ") && told.contains(why), "{told}");
            assert!(!told.contains("hu") && !told.contains("sh@"), "{told}");
            let told = of(&oauth.replace("https://who:hush@a/", bad)).join("\n");
            assert!(told.starts_with("oauth.token_url: "), "{told}");
            assert!(!told.contains("hu") && !told.contains("sh@"), "{told}");
        }
        for (header, why) in [
            ("X-Key = \"f\"", None),
            ("Authorization = \"f\"", None),
            ("\"X Key\" = \"f\"", Some("not a header")),
            ("Mcp-Session-Id = \"f\"", Some("is set by the protocol")),
            ("x-plain = \"f\"", Some("stands among headers, too")),
        ] {
            let told = of(&format!(
                "url = \"https://a/\"\nheaders = {{ X-Plain = \"1\" }}\nsecret_headers = {{ {header} }}"
            ));
            match why {
                None => assert!(told.is_empty(), "{told:?}"),
                Some(why) => assert!(told[0].contains(why), "{told:?}"),
            }
        }
        let command = of("command = [\"b\"]\nsecret_headers = { X = \"f\" }");
        assert!(command[0].starts_with("secret_headers: only a server with a url"));
    }

    #[test]
    fn hints_decide_unless_something_is_said() {
        let mut config = UpstreamConfig::at("a", "http://a/");
        let hints = |read_only, idempotent| worker::ToolAnnotations {
            read_only_hint: Some(read_only),
            idempotent_hint: Some(idempotent),
            ..worker::ToolAnnotations::default()
        };
        assert_eq!(config.effects_of("t", None), Effects::Once);
        assert_eq!(
            config.effects_of("t", Some(&hints(true, false))),
            Effects::None
        );
        assert_eq!(
            config.effects_of("t", Some(&hints(false, true))),
            Effects::Repeatable
        );
        config.effects = Effects::Repeatable;
        assert_eq!(config.effects_of("t", None), Effects::Repeatable);
        let once = UpstreamTool {
            effects: Some(Effects::Once),
            hide: false,
        };
        config.tools.insert("t".to_owned(), once);
        assert_eq!(
            config.effects_of("t", Some(&hints(true, true))),
            Effects::Once
        );
    }
}
