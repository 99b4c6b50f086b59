//! Migrations are numbered without gaps and do nothing that locks out a running release.

use mcp_tasks_tidy::{files, root, shown, text};

#[test]
fn numbers_have_no_gaps() {
    for (at, file) in files(&root().join("migrations"), ".sql").iter().enumerate() {
        let name = file
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        assert!(
            name.starts_with(&format!("{:04}_", at + 1)),
            "{name}: expected number {:04}",
            at + 1
        );
    }
}

#[test]
fn only_expansions_that_do_not_lock() {
    for file in files(&root().join("migrations"), ".sql").iter().skip(1) {
        let sql = text(file).to_uppercase();
        for (found, instead) in [
            (
                "DROP COLUMN",
                "contract a release later, and say so in the file",
            ),
            ("RENAME", "add the new name, and contract a release later"),
            ("ALTER COLUMN", "add a column instead"),
        ] {
            assert!(
                !sql.contains(found) || sql.contains("-- CONTRACT:"),
                "{}: {found}: {instead}",
                shown(file)
            );
        }
        assert!(
            !sql.contains("CREATE INDEX ")
                || sql.contains("CREATE INDEX CONCURRENTLY")
                || sql.contains("CREATE TABLE"),
            "{}: an index on an existing table is built CONCURRENTLY",
            shown(file)
        );
    }
}
