//! Alerts on their way, with real processes and receivers that do as they are told.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

#[path = "../../../tools/tests/common/front.rs"]
mod front;
mod receivers;
mod stack;
mod ways;
