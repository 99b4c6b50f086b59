//! Runs tests by name, one after the other, and says how they ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// A test: its name and itself.
pub type Test = (&'static str, fn());

/// Makes [`Test`]s of async functions.
#[macro_export]
macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            || $crate::runner::block_on($module::$name()),
        )),*]
    };
}

pub fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// As the usual harness: words are filters, `--exact` and `--list` do what they do there.
pub fn run(arguments: &[String], tests: &[Test]) -> ExitCode {
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| {
        wanted.is_empty()
            || wanted.iter().any(|word| {
                if exact {
                    name == *word
                } else {
                    name.contains(*word)
                }
            })
    };
    let chosen: Vec<&Test> = tests.iter().filter(|test| is_wanted(test.0)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let mut failed = Vec::new();
    for (name, test) in &chosen {
        let began = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.2?})", began.elapsed());
        if !passed {
            failed.push(*name);
        }
    }
    let (passed, filtered) = (chosen.len() - failed.len(), tests.len() - chosen.len());
    let count = failed.len();
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {count} failed; {filtered} filtered out\n"
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("failed: {failed:?}");
        ExitCode::FAILURE
    }
}
