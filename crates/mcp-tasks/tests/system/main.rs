//! The whole system as real processes: gateways, workers and crons of the built binary over a
//! real Postgres and a real Redis, and what happens when parts of it die.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod commands;
mod drains;
mod faults;
mod flows;
mod invariants;
mod parking;
mod rollout;
mod support;
