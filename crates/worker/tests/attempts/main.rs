//! Workers over a real Postgres and a real Redis: how attempts begin, replay, stop and end.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_worker as worker;

mod endings;
mod journal;
mod losses;
mod stops;
mod world;
