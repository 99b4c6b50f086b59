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

/// The compiler forbids it where a crate takes the workspace's lints; that every crate does is seen here.
#[test]
fn nothing_is_unsafe() {
    let manifest = text(&root().join("Cargo.toml"));
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    let mut crates = 0;
    for file in files(&root(), "Cargo.toml") {
        let content = text(&file);
        // libFuzzer's macro exports a symbol; what it calls is a crate like the others.
        if !content.contains("[package]") || content.contains("libfuzzer-sys") {
            continue;
        }
        crates += 1;
        let forbids = content.contains("[lints]\nworkspace = true")
            || content.contains("unsafe_code = \"forbid\"");
        assert!(forbids, "{}: [lints] workspace = true", shown(&file));
    }
    assert!(crates > 12, "only {crates} crates");
    for file in sources() {
        let is_unsafe = |line: &&str| {
            let code = line.trim_start();
            !code.starts_with("//")
                && (code.contains(concat!("unsafe", " {"))
                    || code.contains(concat!("unsafe", " fn")))
        };
        let content = text(&file);
        let found = content.lines().find(is_unsafe);
        assert_eq!(found, None, "{}", shown(&file));
    }
}
