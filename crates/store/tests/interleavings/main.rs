//! The coalescing of reads in every order of events: the product's own source, on locks and
//! channels of a scheduler that decides at each of them who goes on.
//!
//! A lost wake-up shows as a deadlock, which the scheduler reports with the order that led to it.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

#[path = "../../src/batch.rs"]
mod batch;
mod reads;
mod sync;
