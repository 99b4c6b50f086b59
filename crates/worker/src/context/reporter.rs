//! How the work goes: status message and progress, also from inside of a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::progress::Progress;
use tokio::sync::watch;

use crate::backend::Backend;

/// Says how a task's work goes; clones count together. See [`crate::Context::reporter`].
#[derive(Clone)]
pub struct Reporter {
    backend: Arc<dyn Backend>,
    status: watch::Sender<String>,
    reports: Arc<AtomicU64>,
}

impl Reporter {
    pub(crate) fn new(backend: Arc<dyn Backend>, status: watch::Sender<String>) -> Self {
        Self {
            backend,
            status,
            reports: Arc::default(),
        }
    }

    /// As [`crate::Context::progress`].
    pub async fn progress(&self, message: impl Into<String>) {
        let count = self.reports.fetch_add(1, Ordering::Relaxed) + 1;
        let report = Progress::new(count).with_message(message);
        self.report(report).await;
    }

    /// As [`crate::Context::report`].
    pub async fn report(&self, progress: Progress) {
        if let Some(message) = &progress.message {
            self.status.send_replace(message.clone());
        }
        self.backend.publish(&progress).await;
    }

    /// The last status message; empty if there was none.
    pub(crate) fn said(&self) -> String {
        self.status.borrow().clone()
    }
}
