//! As much of the product's metrics as the register touches. Outside of the scheduler's sight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) held_calls: Arc<AtomicUsize>,
}

pub(crate) struct Level(Arc<AtomicUsize>);

impl Level {
    pub(crate) fn raise(gauge: &Arc<AtomicUsize>, by: usize) -> Self {
        gauge.fetch_add(by, Ordering::SeqCst);
        Self(Arc::clone(gauge))
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
