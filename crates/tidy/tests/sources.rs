//! What every source file keeps to.

use mcp_tasks_tidy::{files, root, shown, text};

#[test]
fn every_file_says_its_subject() {
    for file in files(&root().join("crates"), ".rs") {
        assert!(
            text(&file).starts_with("//! "),
            "{}: begin with //! and its one subject",
            shown(&file)
        );
    }
}

#[test]
fn lints_are_expected_and_never_allowed() {
    for file in files(&root().join("crates"), ".rs") {
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
    for file in files(&root().join("crates"), ".rs") {
        let path = shown(&file);
        if path.starts_with("crates/tidy/") {
            continue;
        }
        for word in ["TODO", "FIXME", "XXX", "#[ignore"] {
            assert!(!text(&file).contains(word), "{path}: {word}");
        }
    }
}
