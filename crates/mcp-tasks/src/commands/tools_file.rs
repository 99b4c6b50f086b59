//! The tools file of a worker: served, and read again when asked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tools::file::Limits;
use tools::upstream::Upstreams;
use worker::ToolSet;

use super::Failure;
use crate::config::Config;
use crate::metrics::Metrics;

/// The file that is meant: this one, or that of the settings.
///
/// # Errors
/// When there is none.
pub fn named(file: Option<PathBuf>, config: &Config) -> Result<PathBuf, Failure> {
    let none = "name a tools file, or settings with tools.file (--config)";
    let file = file.or_else(|| config.tools.file.clone());
    file.ok_or_else(|| none.into())
}

/// What a worker with these settings keeps of what its tools write.
pub fn limits(worker: &worker::Config) -> Limits {
    Limits {
        step_bytes_max: worker.step_bytes_max,
        result_bytes_max: worker.result_bytes_max,
    }
}

/// Says at every signal that there is nothing to read again.
pub async fn follow_nothing(mut signal: Signal) {
    while signal.recv().await.is_some() {
        tracing::warn!("SIGHUP: there is no tools file to read again (tools.file, or --tools)");
    }
}

/// Tools of a file among those that a worker serves.
pub struct Served {
    file: PathBuf,
    limits: Limits,
    tools: ToolSet,
    upstreams: Arc<Upstreams>,
    /// Those that come from the file.
    names: BTreeSet<String>,
    metrics: Metrics,
}

impl Served {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(
        file: PathBuf,
        limits: Limits,
        (tools, upstreams): (ToolSet, Arc<Upstreams>),
        metrics: Metrics,
    ) -> Result<Self, Failure> {
        let mut served = Self {
            file,
            limits,
            tools,
            upstreams,
            names: BTreeSet::new(),
            metrics,
        };
        served.read()?;
        Ok(served)
    }

    /// Reads it again at every signal; a broken one changes nothing.
    pub async fn follow(mut self, mut signal: Signal) {
        while signal.recv().await.is_some() {
            let file = self.file.display().to_string();
            match self.read() {
                Ok(()) => tracing::info!(file, tools = self.names.len(), "tools file read again"),
                Err(error) => {
                    tracing::error!(
                        file,
                        error = error.to_string(),
                        "the tools file is broken: what was served is served as before"
                    );
                }
            }
        }
    }

    /// All of it, or nothing.
    fn read(&mut self) -> Result<(), Failure> {
        let read = self.try_read();
        let result = if read.is_ok() { "ok" } else { "refused" };
        self.metrics.tools_file.with_label_values(&[result]).inc();
        read
    }

    fn try_read(&mut self) -> Result<(), Failure> {
        let read = tools::file::load_within(&self.file, self.limits)?;
        for declared in &read.tools {
            let name = &declared.name;
            if !self.names.contains(name) && self.tools.contains(name) {
                let (file, line) = (self.file.display(), declared.line);
                return Err(
                    format!("{file}:{line}: the worker has a tool \"{name}\" already").into(),
                );
            }
        }
        for problem in &read.missing {
            let problem = problem.of(&self.file);
            tracing::warn!(problem, "an upstream server lacks what it needs");
        }
        let names: BTreeSet<String> = read.tools.iter().map(|tool| tool.name.clone()).collect();
        let upstreams = read.upstreams.into_iter().map(|one| one.wanted);
        self.upstreams.set(upstreams.collect())?;
        // They were checked one by one when the file was read: none of them is refused now.
        for declared in read.tools {
            self.tools.insert(declared.tool)?;
        }
        for gone in self.names.difference(&names) {
            self.tools.remove(gone);
        }
        self.names = names;
        Ok(())
    }
}
