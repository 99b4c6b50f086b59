//! What the product takes from `std`, on the scheduler's own primitives.

pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;
