//! Load at a steady rate: operations begin when they are due, whatever became of the earlier ones
//! (an open loop), and every latency counts from when it was due, so that a stall shows in all the
//! requests that it held up and not in one.
//!
//! What clients see is recorded and judged by the chaos checker; the figures by the scenario's
//! objectives.

pub mod balance;
pub mod breaks;
pub mod chart;
pub mod clients;
pub mod operation;
pub mod outside;
pub mod page;
pub mod pods;
pub mod progress;
pub mod report;
pub mod run;
pub mod scenario;
pub mod series;
pub mod usage;
pub mod verdict;
