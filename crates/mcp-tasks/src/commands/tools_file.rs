//! The tools file of a worker: served, and read again when asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::signal::unix::Signal;
use tools::upstream::Upstreams;
use worker::ToolSet;

use super::Failure;
use super::operator::{Output, object, table};
use crate::Settings;
use crate::metrics::Metrics;
use crate::out::{out, outln};

/// The file that is meant: this one, or that of the settings.
///
/// # Errors
/// When there is none.
pub fn named(file: Option<PathBuf>, settings: &Settings) -> Result<PathBuf, Failure> {
    if let Some(file) = file {
        return Ok(file);
    }
    let config = crate::config::load(settings.config.as_deref())?;
    let none = "name a tools file, or settings with tools.file (--config)";
    config.tools.file.ok_or_else(|| none.into())
}

/// Tools of a file among those that a worker serves.
pub struct Served {
    file: PathBuf,
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
        tools: ToolSet,
        upstreams: Arc<Upstreams>,
        metrics: Metrics,
    ) -> Result<Self, Failure> {
        let mut served = Self {
            file,
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
        let read = tools::file::load(&self.file)?;
        for declared in &read.tools {
            let name = &declared.name;
            if !self.names.contains(name) && self.tools.contains(name) {
                let (file, line) = (self.file.display(), declared.line);
                return Err(
                    format!("{file}:{line}: the worker has a tool \"{name}\" already").into(),
                );
            }
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

/// Shows the policy of a tool of the file, and where its values come from.
///
/// # Errors
/// When the file cannot be read, or has no such tool.
pub fn show(name: &str, file: &Path, output: Output) -> Result<ExitCode, Failure> {
    let read = tools::file::load(file)?;
    let Some(policy) = read.policy(name) else {
        let names: Vec<&str> = read.tools.iter().map(|tool| tool.name.as_str()).collect();
        let (file, names) = (file.display(), names.join(", "));
        return Err(format!("{file} has no tool \"{name}\"; it has {names}").into());
    };
    let rows: Vec<Value> = policy
        .values
        .iter()
        .map(|row| {
            let place = row.line.map(|line| format!("{}:{line}", file.display()));
            object([
                ("policy", json!(row.key)),
                ("value", row.value.clone()),
                ("from", json!(row.from.as_str())),
                ("place", json!(place)),
            ])
        })
        .collect();
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({ "tool": name, "source": policy.source, "line": policy.line, "policy": rows })
        ),
        Output::Table => {
            outln!(
                "{name}: {}, {}:{}",
                policy.source,
                file.display(),
                policy.line
            );
            out!("{}", table(&["policy", "value", "from", "place"], &rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}
