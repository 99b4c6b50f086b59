//! The queue on a real Redis.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

// Under the name it has in the rest of the workspace.
extern crate mcp_tasks_queue as queue;

mod cluster;
mod jobs;
mod left_behind;
mod outages;
mod pipelining;
mod support;
mod wakeups;
mod ways;
