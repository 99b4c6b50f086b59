//! The tour of the README, as it is written there: a tool that is sometimes a task, and a shell script
//! with a question.

use std::path::Path;
use std::process::Command;

use harness::temp::Temp;

use crate::support::System;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");

/// The shell commands of the README that contain a text: one block.
fn block<'a>(page: &'a str, text: &str) -> &'a str {
    let mut blocks = page.split("```sh\n").skip(1);
    let block = blocks.find_map(|rest| {
        let (block, _) = rest.split_once("\n```")?;
        block.contains(text).then_some(block)
    });
    block.unwrap_or_else(|| panic!("the README has no commands with {text}"))
}

/// What `URL`, `META` and `mcp` are, at the gateway of this test.
fn definitions(page: &str, url: &str) -> String {
    let six = block(page, "build_report");
    let (definitions, _) = six.split_once("# 1. ").unwrap();
    let (first, rest) = definitions.split_once('\n').unwrap();
    assert!(first.starts_with("URL=") && rest.starts_with("META="));
    format!("set -eu\nURL={url}\n{rest}")
}

/// The example files, in a folder of their own.
fn examples() -> Temp {
    let folder = Temp::new().unwrap();
    for name in ["tools.toml", "release.py", "empty_folder.sh"] {
        std::fs::copy(Path::new(EXAMPLES).join(name), folder.path().join(name)).unwrap();
    }
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_of_the_readme_goes_as_it_says() {
    let folder = examples();
    let file = folder.path().join("tools.toml");
    let settings = format!("[tools]\nfile = \"{}\"\n", file.display());
    let system = System::with(1, 1, &settings).await;
    let tools = system.cluster.wait_for_tools(0, &["wait", "empty_folder"]);
    tools.await.unwrap();
    let page = std::fs::read_to_string(README).unwrap();
    let url = system.cluster.client(0, "alice").url().to_owned();
    let tour = block(&page, "empty_folder");
    let script = format!("{}\n{tour}", definitions(&page, &url));
    let run = || {
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{errors}");
        said
    };
    // A machine that is busy may need the whole budget for nothing at all; what takes a while comes
    // as a stream, whose first lines are comments.
    let quick = |said: &String| {
        let mut answers = said.lines().filter(|line| line.contains("\"jsonrpc\""));
        answers
            .next()
            .is_some_and(|first| first.contains("\"complete\""))
    };
    let mut tours = std::iter::repeat_with(|| tokio::task::block_in_place(run)).take(5);
    let said = tours.find(quick).expect("a small input is answered inline");
    let line = |text: &str| {
        let mut lines = said.lines();
        lines
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("{text}: {said}"))
    };
    assert!(
        line("\"resultType\":\"task\"").contains("\"status\":\"working\""),
        "{said}"
    );
    assert!(
        line("\"inputRequests\":").contains("Delete 2 files?"),
        "{said}"
    );
    let last = said.trim_end().lines().last().unwrap();
    assert!(last.contains("emptied"), "nothing is left: {said}");
}
