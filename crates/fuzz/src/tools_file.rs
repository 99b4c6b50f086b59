//! The tools file: whatever is wrong with it is told with its line and its key.

use std::path::Path;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Err(problems) = tools::fuzzed::tools_file(text, Path::new("/nonexistent")) else {
        return;
    };
    assert!(!problems.is_empty());
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    for problem in &problems {
        let shown = problem.of(Path::new("tools.toml"));
        assert!((1..=lines).contains(&problem.line), "{shown}");
        let no_toml = problem.problem.starts_with("is no TOML: ");
        assert!(no_toml || !problem.key.is_empty(), "{shown}");
        assert!(!problem.problem.is_empty(), "{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown:?}");
    }
}
