//! What a tool is: written by workers, read by gateways.

use protocol::tools::Tool;
use serde::{Deserialize, Serialize};

use crate::ToolPolicy;

/// A tool: its definition as `tools/list` shows it, its version and its policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolSpec {
    /// As listed.
    pub definition: Tool,
    /// Version, from 1. A new one when the journal of the old one cannot be resumed.
    #[serde(default = "one")]
    pub version: i32,
    /// Older versions whose journals this one can resume.
    #[serde(default)]
    pub resumes: Vec<i32>,
    /// Rules.
    #[serde(default)]
    pub policy: ToolPolicy,
}

fn one() -> i32 {
    1
}

impl ToolSpec {
    /// Version 1 with the default policy.
    #[must_use]
    pub fn new(definition: Tool) -> Self {
        Self {
            definition,
            version: 1,
            resumes: Vec::new(),
            policy: ToolPolicy::default(),
        }
    }

    /// Name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }
}
