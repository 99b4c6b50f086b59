//! Workers over a real Postgres and a real Redis: how attempts begin, replay, stop and end.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_worker as worker;

mod bounds;
mod endings;
mod journal;
mod kit;
mod kit_life;
mod lanes;
mod losses;
mod principals;
mod retries;
mod sizes;
mod stops;
mod undo;
mod undo_losses;
mod wanted;
mod world;
