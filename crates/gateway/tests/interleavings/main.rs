//! The register of waiting calls in every order of events: the product's own source, on locks of a
//! scheduler that decides at each of them who goes on.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

mod calls;
mod metrics;
mod sync;
#[path = "../../src/waiters.rs"]
mod waiters;
