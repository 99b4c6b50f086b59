//! Workers over a real Postgres and a real Redis: how attempts begin, replay, stop and end.

extern crate mcp_tasks_worker as worker;

mod endings;
mod journal;
mod losses;
mod stops;
mod world;
