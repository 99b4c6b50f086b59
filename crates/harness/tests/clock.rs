//! A program under a wrong clock sees it, and nothing else is moved.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use mcp_tasks_harness as harness;

#[test]
fn the_wall_clock_is_off_and_the_monotonic_one_is_not() {
    let read = |seconds: i64| {
        let script = "import time; print(time.time(), time.monotonic())";
        let output = Command::new("python3")
            .args(["-c", script])
            .envs(harness::clock::off_by(seconds).unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let clocks: Vec<f64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        (clocks[0], clocks[1])
    };
    #[expect(clippy::disallowed_methods, reason = "this is about the wall clock")]
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let ((ahead, first), (behind, second)) = (read(3600), read(-3600));
    assert!((ahead - now - 3600.0).abs() < 60.0, "{ahead} at {now}");
    assert!((behind - now + 3600.0).abs() < 60.0, "{behind} at {now}");
    assert!((0.0..60.0).contains(&(second - first)), "{first} {second}");
}
