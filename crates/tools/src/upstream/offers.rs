//! What is offered of which upstream: a list that is read again replaces what was offered of the
//! same one before, also when its settings have changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use worker::{Tool, ToolSet};

use super::list::Listed;
use super::source::Source;
use super::tool::UpstreamTool;

/// Tools by their names here, each as it was offered.
type Offered = BTreeMap<String, String>;

/// What is offered just now, by the names of the upstreams.
#[derive(Default)]
pub(super) struct Offers(Mutex<BTreeMap<String, Offered>>);

impl Offers {
    /// How many tools there are of one.
    pub(super) fn count(&self, upstream: &str) -> usize {
        self.lock().get(upstream).map_or(0, BTreeMap::len)
    }

    /// Its settings have changed: each of its tools is offered anew.
    pub(super) fn renew(&self, upstream: &str) {
        if let Some(offered) = self.lock().get_mut(upstream) {
            offered.values_mut().for_each(String::clear);
        }
    }

    /// It is no upstream any more.
    pub(super) fn withdraw(&self, upstream: &str, tools: &ToolSet) {
        for name in self.lock().remove(upstream).unwrap_or_default().into_keys() {
            tools.remove(&name);
        }
    }

    /// Offers what is listed, and nothing else; says what cannot be.
    pub(super) fn replace(
        &self,
        source: &Arc<Source>,
        listed: Listed,
        tools: &ToolSet,
    ) -> Vec<String> {
        let mut offers = self.lock();
        let offered = offers.entry(source.name().to_owned()).or_default();
        let mut problems = listed.problems;
        let mut now = BTreeSet::new();
        for (definition, support) in listed.tools {
            let own = source.config.tools.get(&definition.name);
            if own.is_some_and(|tool| tool.hide) {
                continue;
            }
            let tool = match UpstreamTool::new(source, definition, support) {
                Ok(tool) => tool,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let spec = tool.spec();
            let name = spec.name().to_owned();
            if tools.contains(&name) && !offered.contains_key(&name) {
                problems.push(format!("tool {name}: another source has one of this name"));
                continue;
            }
            if !now.insert(name.clone()) {
                problems.push(format!("tool {name} is listed twice"));
                continue;
            }
            let text = serde_json::to_string(&spec).unwrap_or_default();
            let text = format!("{text} {support:?}");
            if offered.get(&name) == Some(&text) {
                continue;
            }
            if let Some(why) = tool.unchecked() {
                tracing::warn!(
                    tool.name = name,
                    why,
                    "results of an upstream's tool are not checked against its outputSchema"
                );
            }
            match tools.insert(Arc::new(tool)) {
                Ok(()) => drop(offered.insert(name, text)),
                Err(problem) => {
                    now.remove(&name);
                    problems.push(problem.to_string());
                }
            }
        }
        let gone = offered.keys().filter(|name| !now.contains(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            tools.remove(&name);
            offered.remove(&name);
        }
        problems
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Offered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
