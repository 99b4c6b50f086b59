//! The whole system as real processes: gateways, workers and crons of the built binary over a
//! real Postgres and a real Redis, and what happens when parts of it die.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod clocks;
mod commands;
mod drains;
mod faults;
mod figures;
mod flows;
mod invariants;
mod parking;
mod postgres_committed;
mod postgres_load;
mod postgres_promoted;
mod postgres_replies;
mod postgres_restarted;
mod postgres_sessions;
mod postgres_unreachable;
mod rollout;
mod support;
