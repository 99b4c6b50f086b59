//! Tools we ship, on the public API alone: those that a tools file declares, and the demo tools
//! that tell the story.
//!
//! Architecture invariant: this crate never touches the store or the queue.

mod build_report;
mod command;
pub mod file;
#[doc(hidden)]
pub mod fuzzed;
mod http;
mod reindex_corpus;
mod run_suite;
pub mod upstream;
mod web;

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
