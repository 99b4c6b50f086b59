//! Locks and channels, by one name: tests put those of a scheduler in their place that runs
//! every order of events.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use tokio::sync::oneshot;
