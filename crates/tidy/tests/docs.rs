//! The docs tell the truth: metrics and links.

use std::collections::BTreeSet;
use std::path::Path;

use mcp_tasks_tidy::{files, root, shown, text};

/// Names of all metrics that the source declares.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&root().join("crates"), "metrics.rs")
        .iter()
        .chain(&files(&root().join("crates/telemetry"), ".rs"))
    {
        if shown(file) == "crates/telemetry/src/metrics.rs" {
            continue;
        }
        for part in text(file)
            .split('"')
            .filter(|part| part.starts_with("mcp_tasks_"))
        {
            if part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                names.insert(part.to_owned());
            }
        }
    }
    names
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let page = text(&root().join("docs/metrics.md"));
    let declared = declared();
    let documented: BTreeSet<String> = page
        .split('`')
        .filter(|part| part.starts_with("mcp_tasks_"))
        .map(|part| part.split('{').next().unwrap_or(part).to_owned())
        .collect();
    let missing: Vec<_> = declared.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&declared).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks {missing:?}");
    assert!(
        gone.is_empty(),
        "docs/metrics.md tells of metrics that do not exist: {gone:?}"
    );
}

#[test]
fn links_between_pages_lead_somewhere() {
    for file in files(&root(), ".md") {
        let dir = file.parent().expect("a file lies in a folder");
        for link in text(&file)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                dir.join(target).exists(),
                "{}: {link} leads nowhere",
                shown(&file)
            );
        }
    }
}

#[test]
fn the_changelog_is_open() {
    assert!(text(&root().join("CHANGELOG.md")).contains("## Unreleased"));
}

/// `file::test` in backticks, as the page of faults writes tests.
fn named_tests(line: &str) -> Vec<(&str, &str)> {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|part| part.split_once("::"))
        .filter(|(file, test)| word(file) && word(test))
        .collect()
}

/// Every row of a page's tables names tests, and they exist; of so many rows at least. The first cell of
/// a head is one of `heads`.
fn rows_name_tests(page: &str, heads: &[&str], rows_min: usize) {
    let sources: Vec<_> = [root().join("crates"), root().join("loadtest")]
        .iter()
        .flat_map(|dir| files(dir, ".rs"))
        .map(|file| {
            let folder = file.parent().and_then(Path::file_name);
            let stem = match file.file_stem() {
                Some(stem) if stem == "mod" => folder,
                stem => stem,
            };
            let module = stem.unwrap_or_default().to_string_lossy();
            (module.into_owned(), text(&file))
        })
        .collect();
    let lists: Vec<&String> = sources
        .iter()
        .map(|(_, text)| text)
        .filter(|text| text.contains("tests!["))
        .collect();
    // Marked as a test, or listed by one of the programs that run their tests themselves.
    let exists = |file: &str, test: &str| {
        let (begins, listed) = (format!("fn {test}("), format!("{file}::{test},"));
        let marked = |text: &str| {
            text.split_once(&begins).is_some_and(|(before, _)| {
                let near = before.lines().rev().take(4);
                near.into_iter().any(|line| line.contains("test"))
            })
        };
        let mut of_file = sources.iter().filter(|(stem, _)| stem == file);
        of_file.any(|(_, text)| marked(text)) || lists.iter().any(|text| text.contains(&listed))
    };
    let content = text(&root().join(page));
    let mut rows = 0;
    for line in content.lines() {
        let named = named_tests(line);
        for (file, test) in &named {
            assert!(exists(file, test), "{page}: no test {file}::{test}");
        }
        let is_head = heads
            .iter()
            .any(|head| line.starts_with(&format!("| {head} |")));
        if line.starts_with("| ") && !is_head {
            rows += 1;
            assert!(
                !named.is_empty() || line.contains("later: "),
                "{page}: a row without a test: {line}"
            );
        }
    }
    assert!(rows > rows_min, "{page}: only {rows} rows");
}

#[test]
fn every_fault_names_tests_that_exist() {
    let heads = ["what dies", "what fails elsewhere"];
    rows_name_tests("docs/faults.md", &heads, 60);
}

#[test]
fn every_attack_names_tests_that_exist() {
    rows_name_tests("docs/threat-model.md", &["asset", "attack"], 55);
}

#[test]
fn every_requirement_names_tests_that_exist() {
    rows_name_tests("docs/security-requirements.md", &["asked of us"], 45);
}
