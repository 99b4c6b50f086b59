//! `mcp-tasks worker`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tools::upstream::Upstreams;
use worker::ToolSet;

use super::{Failure, neighbours, tools_file};
use crate::config::{self, Fixtures, Tools};
use crate::metrics::Metrics;
use crate::{Settings, lifecycle, monitor};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    settings: Settings,
    /// The tools file, instead of `tools.file` of the settings.
    #[arg(long)]
    tools: Option<PathBuf>,
}

/// Runs tools until a signal, then drains.
///
/// # Errors
/// When it cannot start.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    let mut config = config::load(options.settings.config.as_deref())?;
    config.tools.file = options.tools.or(config.tools.file);
    lifecycle::run(config, "mcp-tasks-worker", |process| async move {
        let tools = serve(&process.config.tools)?;
        let metrics = Metrics::prepared(&process.registry);
        let upstreams = Upstreams::new().observed_by(Arc::new(metrics.clone()));
        let upstreams = Arc::new(upstreams);
        let told = Told::new(&process.health, metrics.clone());
        // Before a file is read, so that no wish to read it again ends the process; without a file
        // neither does it.
        let again = signal(SignalKind::hangup())?;
        let file = match process.config.tools.file.clone() {
            Some(file) => {
                let served = (tools.clone(), Arc::clone(&upstreams));
                let limits = tools_file::limits(&process.config.worker);
                Some(tools_file::Served::new(file, limits, served, metrics)?)
            }
            None => None,
        };
        if tools.is_empty() && file.is_none() {
            tracing::warn!("no tools to serve: set tools.file, or link tools of your own");
        }
        let (store, queue) = neighbours(&process, &["tools"]).await?;
        let worker = worker::Worker::new(
            process.config.worker.clone(),
            store.clone(),
            queue.clone(),
            tools.clone(),
            &process.registry,
            process.health.clone(),
        )
        .called_back_at(process.config.callbacks.addresses());
        let drained = CancellationToken::new();
        let watching = monitor::run(store, queue, process.health, drained.clone());
        let working = async {
            let worked = Box::pin(worker.run(process.shutdown.clone())).await;
            drained.cancel();
            worked
        };
        // Calls end with their connections, so these outlive the worker's last job.
        let connecting = upstreams.run(&tools, &drained, |upstream, how| told.tell(upstream, how));
        let following = async {
            match file {
                Some(served) => served.follow(again).await,
                None => tools_file::follow_nothing(again).await,
            }
        };
        tokio::select! {
            (worked, (), ()) = async { tokio::join!(working, watching, connecting) } => Ok(worked?),
            () = following => Err("signals cannot be heard any more".into()),
        }
    })
}

/// How upstream servers go, for probes and logs. One that is down costs its own tools only.
struct Told {
    check: telemetry::Check,
    metrics: Metrics,
    down: Mutex<BTreeMap<String, String>>,
}

impl Told {
    fn new(health: &telemetry::Health, metrics: Metrics) -> Self {
        let check = health.check("upstreams");
        check.ready();
        Self {
            check,
            metrics,
            down: Mutex::default(),
        }
    }

    fn tell(&self, upstream: &str, how: Option<Result<(), String>>) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.remove(upstream);
        self.metrics
            .upstream(upstream, how.as_ref().map(Result::is_ok));
        match how {
            Some(Ok(())) => tracing::info!(upstream, "upstream server is connected"),
            Some(Err(problem)) => {
                tracing::warn!(upstream, problem, "upstream server cannot be used");
                down.insert(upstream.to_owned(), problem);
            }
            None => tracing::info!(upstream, "upstream server is not wanted any more"),
        }
        let reasons: Vec<String> = down
            .iter()
            .map(|(name, problem)| format!("upstream \"{name}\" {problem}"))
            .collect();
        if reasons.is_empty() {
            self.check.ready();
        } else {
            self.check.degraded(reasons.join("; "));
        }
    }
}

fn serve(settings: &Tools) -> Result<ToolSet, Failure> {
    let tools = ToolSet::new();
    if settings.demo {
        for tool in tools::demo() {
            tools.insert(tool)?;
        }
    }
    let fixtures = match (settings.fixtures, &settings.ledger) {
        (Some(Fixtures::Conformance), _) => fixtures::conformance(&tools),
        (Some(Fixtures::Chaos), Some(ledger)) => fixtures::chaos(ledger)
            .map_err(|error| format!("tools.ledger: {}: {error}", ledger.display()))?,
        // The settings were checked: chaos tools come with a ledger.
        (Some(Fixtures::Chaos), None) | (None, _) => Vec::new(),
    };
    for tool in fixtures {
        tools.insert(tool)?;
    }
    if let Some(version) = settings.drills {
        for tool in fixtures::drills(version, &settings.drills_resume) {
            tools.insert(tool)?;
        }
    }
    if settings.shell {
        tools.insert(fixtures::shell())?;
    }
    Ok(tools)
}
