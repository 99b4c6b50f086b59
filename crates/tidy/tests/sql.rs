//! All SQL lies in `crates/store/src/sql`, one statement a file, named like what runs it.

use mcp_tasks_tidy::{files, root, shown, text};

#[test]
fn every_statement_is_used_and_says_what_it_is_for() {
    let store = root().join("crates/store/src");
    let code: String = files(&store, ".rs").iter().map(|file| text(file)).collect();
    for file in files(&store.join("sql"), ".sql") {
        let name = file
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        assert!(
            code.contains(&format!("sql!(\"{name}\")")),
            "{}: nothing runs it",
            shown(&file)
        );
        assert!(
            text(&file).starts_with("-- "),
            "{}: say what it is for",
            shown(&file)
        );
    }
}

#[test]
fn statements_lie_in_files() {
    // Settings of a session and transaction brackets are no statements of ours.
    let allowed = ["SET lock_timeout"];
    for file in files(&root().join("crates"), ".rs") {
        let path = shown(&file);
        if path.contains("/tests/")
            || path.starts_with("crates/harness")
            || path.starts_with("crates/tidy")
        {
            continue;
        }
        for (at, line) in text(&file).lines().enumerate() {
            let sql = [
                "\"SELECT ",
                "\"INSERT INTO",
                "\"UPDATE ",
                "\"DELETE FROM",
                "\"WITH ",
            ];
            assert!(
                !sql.iter().any(|verb| line.contains(verb))
                    || allowed.iter().any(|a| line.contains(a)),
                "{path}:{}: SQL belongs in crates/store/src/sql",
                at + 1
            );
        }
    }
}

/// `NOTIFY` takes a lock of the whole database at every commit, and who listens may be dead
/// without knowing.
#[test]
fn nothing_is_notified() {
    for file in files(&root().join("crates/store/src/sql"), ".sql") {
        let text = text(&file).to_uppercase();
        for word in ["NOTIFY", "LISTEN"] {
            let mut words = text.split(|c: char| !c.is_alphanumeric());
            assert!(
                !words.any(|found| found == word),
                "{}: {word}",
                shown(&file)
            );
        }
        assert!(!text.contains("PG_NOTIFY"), "{}", shown(&file));
    }
}

/// Rows that are picked with `SKIP LOCKED` for a change are picked once: as part of a join they
/// might be picked again and again, and more than the limit.
#[test]
fn what_skips_locked_rows_is_picked_once() {
    for file in files(&root().join("crates/store/src/sql"), ".sql") {
        let text = text(&file);
        let code: String = text
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        let changes =
            code.contains("UPDATE ") && code.contains(" SET ") || code.contains("DELETE FROM");
        if code.contains("SKIP LOCKED") && changes {
            assert!(code.contains("AS MATERIALIZED ("), "{}", shown(&file));
        }
    }
}
