//! The threads that tools run on, apart from those that keep leases.
//!
//! A tool that blocks its thread stalls the timers and sockets of the whole runtime it runs on.
//! On a runtime of its own it stalls other tools at worst: heartbeats go on, stops are seen, and
//! the tool is found out.

use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime for tools; when dropped, it waits for none of them.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    /// One thread a core, two at least: one tool that blocks must not stop them all.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("tool")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> Handle {
        let runtime = self.0.as_ref();
        runtime.expect("taken by drop only").handle().clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Not dropped in place: that would wait for a tool that never returns.
            runtime.shutdown_background();
        }
    }
}
