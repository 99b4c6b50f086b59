//! Tools of upstream servers, against servers that do what the test says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

extern crate mcp_tasks_tools as tools;

mod bad;
mod calls;
mod credentials;
mod encryption;
#[path = "../common/front.rs"]
mod front;
mod legacy_tasks;
mod modern;
mod provided;
mod questions;
mod server;
mod world;
