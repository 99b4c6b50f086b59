//! What gateways, workers and crons say of a task: spans at a collector, and lines in logs.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod collector;
mod collectors;
mod commands;
mod doors;
mod leaks;
mod life;
mod outages;
mod planted;
mod secrets;
mod server;
mod stack;
