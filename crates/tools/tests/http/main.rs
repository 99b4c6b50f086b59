//! Tools behind a URL, against a server that answers what the test says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_tools as tools;

mod bad;
mod encryption;
#[path = "../common/front.rs"]
mod front;
mod requests;
mod world;
