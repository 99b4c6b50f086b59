//! How far a run is: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write as _, stderr};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::series::{Series, ms, together};
use crate::figures::Figures;

const BAR: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(5);
const WIDTH: usize = 30;
/// The latest seconds that the figures are of.
const LATEST: usize = 3;

/// Tells until dropped.
pub async fn tell(series: &Series, figures: &Figures, whole: Duration) {
    let terminal = stderr().is_terminal();
    let mut next = Instant::now();
    loop {
        next += if terminal { BAR } else { LINE };
        sleep_until(next).await;
        let line = line(series, figures, whole);
        if terminal {
            // Over the line before, and what is left of a longer one is cleared.
            eprint!("\r{line}\x1b[K");
            let _ = stderr().flush();
        } else {
            eprintln!("load: {line}");
        }
    }
}

/// Ends the bar's line.
pub fn end() {
    if stderr().is_terminal() {
        eprintln!();
    }
}

fn line(series: &Series, figures: &Figures, whole: Duration) -> String {
    let elapsed = series.start().elapsed();
    let share = (elapsed.as_secs_f64() / whole.as_secs_f64().max(0.001)).min(1.0);
    let seconds = series.latest(LATEST);
    let latency = together(&seconds);
    let answers: u64 = seconds.iter().map(|second| second.answered).sum();
    let answers = answers / LATEST as u64;
    format!(
        "{} {:>3}/{} s, {answers} answers/s, p99 {:.0} ms, {} tasks, {} errors",
        bar(share),
        elapsed.as_secs(),
        whole.as_secs(),
        ms(&latency, 99.0),
        figures.tasks(),
        series.fault_count()
    )
}

fn bar(share: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "from 0 to the width"
    )]
    let done = (share.clamp(0.0, 1.0) * WIDTH as f64).round() as usize;
    format!("[{}{}]", "#".repeat(done), "-".repeat(WIDTH - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_always_as_wide() {
        for share in [0.0, 0.5, 1.0, 7.0] {
            assert_eq!(bar(share).len(), WIDTH + 2);
        }
        assert!(bar(1.0).ends_with("#]"));
    }
}
