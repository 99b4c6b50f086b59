//! The tools that a worker serves; may change while it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use queue::Lane;
use store::ToolSpec;
use tokio::sync::watch;

use crate::error::InvalidTool;
use crate::tool::Tool;

/// The tools of one worker, by name and version. Clones are the same set.
///
/// A change shows in the catalogue, and so in `tools/list`, within about a second: an added tool
/// is published, a removed one is delisted. Running jobs of a removed tool go on; its queued ones
/// wait for another worker that serves it.
#[derive(Clone)]
pub struct ToolSet {
    inner: Arc<Inner>,
}

struct Inner {
    tools: Mutex<BTreeMap<(String, i32), Served>>,
    changes: watch::Sender<u64>,
}

/// A tool with its specification, asked once.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) tool: Arc<dyn Tool>,
}

impl Served {
    /// All versions whose jobs it can run, its own first.
    pub(crate) fn versions(&self) -> Vec<i32> {
        let mut versions = vec![self.spec.version];
        versions.extend(&self.spec.resumes);
        versions
    }
}

impl Default for ToolSet {
    fn default() -> Self {
        Self::new()
    }
}

impl ToolSet {
    /// No tools.
    #[must_use]
    pub fn new() -> Self {
        let (changes, _) = watch::channel(0);
        let tools = Mutex::default();
        Self { inner: Arc::new(Inner { tools, changes }) }
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// When its definition, version or policy can't be served, or its name and version are
    /// taken; the set is then as before.
    pub fn insert(&self, tool: Arc<dyn Tool>) -> Result<(), InvalidTool> {
        let spec = Arc::new(tool.spec());
        check(&spec)?;
        let key = (spec.name().to_owned(), spec.version);
        let mut tools = self.lock();
        if tools.contains_key(&key) {
            let (tool, version) = key;
            return Err(InvalidTool::Twice { tool, version });
        }
        tools.insert(key, Served { spec, tool });
        drop(tools);
        self.changed();
        Ok(())
    }

    /// Takes all versions of a tool away. False if there was none.
    pub fn remove(&self, name: &str) -> bool {
        let mut tools = self.lock();
        let before = tools.len();
        tools.retain(|(served, _), _| served != name);
        let removed = tools.len() < before;
        drop(tools);
        if removed {
            self.changed();
        }
        removed
    }

    /// Whether some version of the tool is served.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.lock().keys().any(|(served, _)| served == name)
    }

    /// The names, sorted, each once.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.lock().keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    }

    /// How many tools there are, each version counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The lanes to read: a tool's own version and those it resumes.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = self
            .lock()
            .values()
            .flat_map(|served| {
                let tool = served.spec.name().to_owned();
                let lane = move |version| Lane { tool: tool.clone(), version };
                served.versions().into_iter().map(lane)
            })
            .collect();
        lanes.sort();
        lanes.dedup();
        lanes
    }

    /// The tool that runs the jobs of a lane: the very version, else the newest that resumes it.
    pub(crate) fn find(&self, lane: &Lane) -> Option<Served> {
        let tools = self.lock();
        if let Some(served) = tools.get(&(lane.tool.clone(), lane.version)) {
            return Some(served.clone());
        }
        let of_name = tools.iter().rev().filter(|((name, _), _)| *name == lane.tool);
        of_name.map(|(_, served)| served).find(|s| s.versions().contains(&lane.version)).cloned()
    }

    pub(crate) fn specs(&self) -> Vec<Arc<ToolSpec>> {
        self.lock().values().map(|served| Arc::clone(&served.spec)).collect()
    }

    /// A count that moves with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, i32), Served>> {
        self.inner.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(spec: &ToolSpec) -> Result<(), InvalidTool> {
    spec.definition.check().map_err(InvalidTool::Definition)?;
    spec.policy.validate(spec.name())?;
    let problem = if spec.version < 1 {
        format!("version {} is below 1", spec.version)
    } else if let Some(odd) = spec.resumes.iter().find(|v| **v < 1 || **v >= spec.version) {
        format!("version {} cannot resume version {odd}: only older ones", spec.version)
    } else {
        return Ok(());
    };
    Err(InvalidTool::Version { tool: spec.name().to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use protocol::tools::{CallToolResult, Tool as Definition};
    use serde_json::json;

    use super::*;
    use crate::{Arguments, Context, ToolError};

    struct Named(&'static str, i32, &'static [i32]);

    #[async_trait]
    impl Tool for Named {
        fn spec(&self) -> ToolSpec {
            let mut spec = ToolSpec::new(Definition::new(self.0, &json!({"type": "object"})));
            spec.version = self.1;
            spec.resumes = self.2.to_vec();
            spec
        }

        async fn call(&self, _: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
            Ok(CallToolResult::text(self.1.to_string()))
        }
    }

    fn lane(tool: &str, version: i32) -> Lane {
        Lane { tool: tool.to_owned(), version }
    }

    #[test]
    fn lanes_are_own_and_resumable_versions() {
        let tools = ToolSet::new();
        tools.insert(Arc::new(Named("a", 3, &[2]))).unwrap();
        tools.insert(Arc::new(Named("a", 2, &[1]))).unwrap();
        tools.insert(Arc::new(Named("b", 1, &[]))).unwrap();
        assert_eq!(tools.lanes(), [lane("a", 1), lane("a", 2), lane("a", 3), lane("b", 1)]);
        let version = |l| tools.find(&l).map(|served| served.spec.version);
        assert_eq!(version(lane("a", 2)), Some(2), "the very version wins");
        assert_eq!(version(lane("a", 1)), Some(2));
        assert_eq!(version(lane("b", 2)), None);
        assert_eq!(tools.names(), ["a", "b"]);
    }

    #[test]
    fn refuses_what_cannot_be_served() {
        let tools = ToolSet::new();
        let refused = |tool: Named| tools.insert(Arc::new(tool)).unwrap_err().to_string();
        assert!(refused(Named("not a name", 1, &[])).contains("name"));
        assert!(refused(Named("a", 0, &[])).contains("below 1"));
        assert!(refused(Named("a", 2, &[2])).contains("only older"));
        tools.insert(Arc::new(Named("a", 1, &[]))).unwrap();
        assert!(refused(Named("a", 1, &[])).contains("already"));
        assert!(tools.remove("a") && !tools.remove("a") && tools.is_empty());
    }
}
