//! Waiting times between attempts: doubling, bounded, and different in every process.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(2);

/// Counts failures in a row.
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The time to wait after one more failure: half to all of the doubled time, so that many
    /// processes do not come back at the same moment.
    pub(crate) fn failed(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(10)).min(MAX);
        self.failures = self.failures.saturating_add(1);
        let share = f64::from(random::<1>()[0]) / 255.0;
        full.mul_f64(0.5 + share / 2.0)
    }

    /// It worked.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
    }
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes once it has booted");
    bytes
}

/// Sixteen random hexadecimal digits, as a name.
pub(crate) fn random_name() -> String {
    format!("{:016x}", u64::from_be_bytes(random()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_bound_and_starts_again() {
        let mut backoff = Backoff::default();
        assert!(backoff.failed() <= FIRST);
        let last = (0..40).map(|_| backoff.failed()).last().unwrap();
        assert!(last >= MAX / 2 && last <= MAX);
        backoff.worked();
        assert!(backoff.failed() <= FIRST);
    }
}
