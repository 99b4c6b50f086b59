//! The store on a real Postgres: every function, and whatever could break a promise.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

// As every other crate calls it.
extern crate mcp_tasks_store as store;

mod alerts;
mod attempts;
mod audit;
mod broken;
mod callbacks;
mod cancel;
mod claim;
mod create;
mod crowd;
mod distribution;
mod ends;
mod erase;
mod erase_tenant;
mod expire;
mod grants;
mod input;
mod journal;
mod keys;
mod limits;
mod lone;
mod migrate;
mod model;
mod operate;
mod operate_fleet;
mod operate_looks;
mod pool;
mod providers;
mod quiet;
mod races;
mod read;
mod recover;
mod released;
mod roles;
mod roles_journal;
mod sealed;
mod slots;
mod statements;
mod support;
mod terminal;
mod together;
mod tools;
mod turns;
mod undo;
mod ways;
