//! Tools we ship: for now the demo tools that tell the story, on the public API alone.
//!
//! Architecture invariant: this crate never touches the store or the queue.

mod build_report;
mod reindex_corpus;
mod run_suite;

use std::sync::Arc;

use worker::Tool;

/// The demo tools.
#[must_use]
pub fn demo() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(build_report::BuildReport),
        Arc::new(reindex_corpus::ReindexCorpus),
        Arc::new(run_suite::RunSuite),
    ]
}
