//! What every source file keeps to.

use std::path::PathBuf;

use mcp_tasks_tidy::{files, root, shown, text};

/// All source files of ours.
fn sources() -> Vec<PathBuf> {
    let crates = files(&root().join("crates"), ".rs");
    [crates, files(&root().join("loadtest"), ".rs")].concat()
}

#[test]
fn every_file_says_its_subject() {
    for file in sources() {
        assert!(
            text(&file).starts_with("//! "),
            "{}: begin with //! and its one subject",
            shown(&file)
        );
    }
}

#[test]
fn lints_are_expected_and_never_allowed() {
    for file in sources() {
        let path = shown(&file);
        if path.starts_with("crates/tidy/") {
            continue;
        }
        assert!(
            !text(&file).contains("#[allow"),
            "{path}: use #[expect(.., reason = \"..\")]"
        );
    }
}

#[test]
fn nothing_is_left_for_later_in_secret() {
    for file in sources() {
        let path = shown(&file);
        if path.starts_with("crates/tidy/") {
            continue;
        }
        for word in ["TODO", "FIXME", "XXX", "#[ignore"] {
            assert!(!text(&file).contains(word), "{path}: {word}");
        }
    }
}
