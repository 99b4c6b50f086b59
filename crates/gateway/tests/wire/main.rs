//! The gateway over real sockets, a real Postgres and a real Redis: every way in which a request
//! can be wrong, and what becomes of calls that are right. The tests play the worker themselves.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

extern crate mcp_tasks_gateway as gateway;

mod auth;
mod bad_input;
mod browsers;
mod budgets;
mod callbacks;
mod calls;
mod crowds;
mod deliveries;
mod drains;
mod duplicates;
mod edges;
mod encryption;
mod expiries;
mod floods;
mod frames;
mod hangups;
mod http2;
mod idle;
mod kept;
mod labels;
mod large;
mod legacy;
mod listens;
mod lists;
mod outages;
mod pace;
mod pace_faults;
mod provided;
mod questions;
mod quotas;
mod scopes;
mod slow;
mod smuggling;
mod support;
mod table;
mod tasks;
mod timing;
mod versions;
