//! What a provider offers beside tools, and by which rules it is asked: written by workers, read by
//! gateways.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::completion::CompleteParams;
use protocol::prompts::Prompt;
use protocol::resources::{Resource, ResourceTemplate, URI_BYTES_MAX};
use protocol::template::UriTemplate;
use serde::{Deserialize, Serialize};

use crate::tool_policy::{Backoff, TaskSupport, ToolPolicy};

/// What the jobs of providers are called by. No tool can have such a name: a `/` may not stand in
/// one, so no client can call it.
const JOB_PREFIX: &str = "provider/";

/// Definitions of one provider together, at most (bytes of JSON).
const SPEC_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Definitions of one provider, at most.
const DEFINITIONS_MAX: usize = 10_000;
/// Templates and prefixes of one provider, at most: a read may have to look at all of them.
const PATTERNS_MAX: usize = 1_000;

/// Where resources, prompts and completions come from: one name for all that is listed, registered
/// and asked together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProviderSpec {
    /// 1 to 128 of `A–Z a–z 0–9 _ . -`; one a provider in the whole installation.
    pub name: String,
    /// Version, from 1: the highest that a worker serves is listed.
    #[serde(default = "one")]
    pub version: i32,
    /// Its resources; `None` = it serves none, and never will.
    #[serde(default)]
    pub resources: Option<Resources>,
    /// Its prompts; `None` = it serves none, and never will.
    #[serde(default)]
    pub prompts: Option<Vec<Prompt>>,
    /// It completes arguments of its prompts, and variables of its templates.
    #[serde(default)]
    pub completes: bool,
    /// Rules of its jobs.
    pub policy: ToolPolicy,
}

/// The resources of one provider.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Those that are listed.
    #[serde(default)]
    pub list: Vec<Resource>,
    /// Families of resources. A URI that fits one belongs to the provider.
    #[serde(default)]
    pub templates: Vec<ResourceTemplate>,
    /// What URIs begin with that belong to the provider too, listed or not.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// It tells when they change.
    #[serde(default)]
    pub subscribe: bool,
}

/// What a provider is asked: the arguments of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// `resources/read`.
    Read {
        /// Which resource.
        uri: String,
    },
    /// `prompts/get`.
    Prompt {
        /// Which prompt.
        name: String,
        /// With which arguments.
        #[serde(default)]
        arguments: BTreeMap<String, String>,
    },
    /// `completion/complete`.
    Complete(CompleteParams),
}

fn one() -> i32 {
    1
}

impl ProviderSpec {
    /// A provider of nothing yet, version 1. Its jobs are short, may be repeated, and never become
    /// tasks.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: 1,
            resources: None,
            prompts: None,
            completes: false,
            policy: Self::rules(),
        }
    }

    /// The policy of a provider that says nothing.
    #[must_use]
    pub fn rules() -> ToolPolicy {
        let minute = Duration::from_secs(60);
        ToolPolicy {
            task_support: TaskSupport::None,
            asks_first: true,
            work_limit: minute / 2,
            call_limit: Some(minute / 2),
            queue_wait: minute,
            client_absence: minute,
            undo_limit: Duration::from_secs(1),
            tries_max: 3,
            backoff: Backoff {
                first: Duration::from_millis(200),
                max: Duration::from_secs(2),
            },
            input_deadline: 10 * minute,
            // Somebody waits for each, and none takes long.
            priority: 10,
            ..ToolPolicy::default()
        }
    }

    /// The name under which its jobs run, as operators see it.
    #[must_use]
    pub fn job(&self) -> String {
        format!("{JOB_PREFIX}{}", self.name)
    }

    /// Whether this is the name of a provider's jobs, and not of a tool.
    #[must_use]
    pub fn is_job(tool: &str) -> bool {
        tool.starts_with(JOB_PREFIX)
    }

    /// Checks what cannot work.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |what: String| Err(format!("provider {}: {what}", self.name));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=128).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            return refuse("its name must be 1 to 128 of A-Z a-z 0-9 _ . -".to_owned());
        }
        if self.version < 1 {
            return refuse("its version must be at least 1".to_owned());
        }
        if self.policy.task_support != TaskSupport::None {
            return refuse("what it is asked cannot become a task".to_owned());
        }
        let resources = self.resources.as_ref();
        let count = resources.map_or(0, |own| own.list.len() + own.templates.len())
            + self.prompts.as_ref().map_or(0, Vec::len);
        if count > DEFINITIONS_MAX {
            return refuse(format!(
                "{count} definitions are more than {DEFINITIONS_MAX}"
            ));
        }
        let patterns = resources.map_or(0, |own| own.templates.len() + own.prefixes.len());
        if patterns > PATTERNS_MAX {
            return refuse(format!(
                "{patterns} templates and prefixes are more than {PATTERNS_MAX}"
            ));
        }
        for resource in resources.iter().flat_map(|own| &own.list) {
            resource.check().or_else(refuse)?;
        }
        for template in resources.iter().flat_map(|own| &own.templates) {
            UriTemplate::parse(&template.uri_template)
                .map(drop)
                .or_else(refuse)?;
        }
        for prefix in resources.iter().flat_map(|own| &own.prefixes) {
            if prefix.is_empty() || prefix.len() > URI_BYTES_MAX {
                return refuse("a prefix of its URIs is empty or too long".to_owned());
            }
        }
        for prompt in self.prompts.iter().flatten() {
            prompt.check().or_else(refuse)?;
        }
        let bytes = serde_json::to_vec(self).map_or(0, |json| json.len());
        if bytes > SPEC_BYTES_MAX {
            return refuse(format!(
                "its definitions are {bytes} bytes long; {SPEC_BYTES_MAX} are allowed"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::completion::Reference;
    use serde_json::json;

    use super::*;

    /// Gateways of one release ask workers of another.
    #[test]
    fn what_is_asked_keeps_its_form() {
        let read = |json| serde_json::from_value::<Asked>(json).unwrap();
        let uri = "a://b".to_owned();
        assert_eq!(
            read(json!({ "read": { "uri": "a://b" } })),
            Asked::Read { uri }
        );
        let prompt = json!({ "prompt": { "name": "p", "arguments": { "a": "b" } } });
        assert!(matches!(read(prompt), Asked::Prompt { name, .. } if name == "p"));
        let complete = json!({ "complete": {
            "reference": { "prompt": "p" }, "argument": "a", "value": "x", "context": {}
        } });
        let asked = CompleteParams {
            reference: Reference::Prompt("p".to_owned()),
            argument: "a".to_owned(),
            value: "x".to_owned(),
            context: BTreeMap::new(),
        };
        assert_eq!(read(complete), Asked::Complete(asked));
    }

    #[test]
    fn the_rules_of_a_provider_that_says_nothing_work() {
        let spec = ProviderSpec::new("files");
        spec.check().unwrap();
        spec.policy.validate(&spec.job()).unwrap();
        assert!(spec.policy.ttl_needed() < Duration::from_secs(15 * 60));
        assert!(ProviderSpec::is_job(&spec.job()) && !ProviderSpec::is_job("files"));
    }

    #[test]
    fn what_clients_would_refuse_is_refused_with_its_name() {
        let resources = |own: Resources| ProviderSpec {
            resources: Some(own),
            ..ProviderSpec::new("files")
        };
        let listed = |uri: &str| {
            resources(Resources {
                list: vec![Resource::new(uri, "a")],
                ..Resources::default()
            })
        };
        let bad = [
            (ProviderSpec::new("a/b"), "its name"),
            (ProviderSpec::new(""), "its name"),
            (listed("no scheme"), "scheme"),
            (listed("file:///a b"), "percent-encoded"),
            (
                resources(Resources {
                    templates: vec![ResourceTemplate::new("file:///{", "a")],
                    ..Resources::default()
                }),
                "without its `}`",
            ),
            (
                resources(Resources {
                    prefixes: vec![String::new()],
                    ..Resources::default()
                }),
                "prefix",
            ),
            (
                ProviderSpec {
                    prompts: Some(vec![Prompt::new("")]),
                    ..ProviderSpec::new("files")
                },
                "prompt name",
            ),
        ];
        for (spec, told) in bad {
            let problem = spec.check().unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
        listed("file:///a%20b").check().unwrap();
    }
}
