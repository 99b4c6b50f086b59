//! Prometheus' own checkers on rules and configuration, and that every alert has its tests and its
//! page.

use std::collections::BTreeSet;

use harness::temp::Temp;

use crate::servers::{repository, run, text};

pub const RULES: &str = "helm/mcp-tasks/files/prometheus-rules.yaml";
const TESTS: &str = "helm/mcp-tasks/files/prometheus-rules.test.yaml";

/// What follows `key` in the lines that begin with it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim_start);
    lines.filter_map(|line| line.strip_prefix(key)).collect()
}

#[test]
fn rules_and_configurations_are_accepted() {
    let files = repository("helm/mcp-tasks/files");
    println!(
        "{}",
        run(
            "promtool",
            &["check", "rules", "prometheus-rules.yaml"],
            &files
        )
    );
    // Side by side, as compose.yaml mounts them.
    let temp = Temp::new().unwrap();
    for (from, name) in [
        (RULES, "prometheus-rules.yaml"),
        ("deploy/prometheus.yml", "prometheus.yml"),
        ("deploy/alertmanager.yml", "alertmanager.yml"),
    ] {
        std::fs::write(temp.path().join(name), text(from)).unwrap();
    }
    run(
        "promtool",
        &["check", "config", "prometheus.yml"],
        temp.path(),
    );
    run("amtool", &["check-config", "alertmanager.yml"], temp.path());
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    let files = repository("helm/mcp-tasks/files");
    let args = ["test", "rules", "prometheus-rules.test.yaml"];
    println!("{}", run("promtool", &args, &files));
    let (rules, tests) = (text(RULES), text(TESTS));
    let named = values(&tests, "- name: ");
    let alerts = values(&rules, "- alert: ");
    assert!(alerts.len() > 25, "{alerts:?}");
    for alert in alerts {
        for what in ["fires", "calm"] {
            let name = format!("{alert} {what}");
            assert!(named.contains(&name.as_str()), "{TESTS}: no test {name:?}");
        }
    }
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let rules = text(RULES);
    let mut alerts: BTreeSet<&str> = values(&rules, "- alert: ").into_iter().collect();
    let urls = values(&rules, "runbook_url: ");
    assert_eq!(urls.len(), alerts.len());
    for (url, alert) in urls.iter().zip(values(&rules, "- alert: ")) {
        assert!(
            url.ends_with(&format!("/docs/runbooks/{alert}.md")),
            "{url}"
        );
    }
    // Those that cron sends by itself.
    let sent = text("crates/cron/src/alerts/message.rs");
    let quoted = sent.split('"').filter(|part| part.starts_with("McpTasks"));
    alerts.extend(quoted);
    let pages = std::fs::read_dir(repository("docs/runbooks")).unwrap();
    let pages: Vec<String> = pages
        .map(|page| page.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .map(|name| name.trim_end_matches(".md").to_owned())
        .collect();
    let pages: BTreeSet<&str> = pages.iter().map(String::as_str).collect();
    assert_eq!(alerts, pages, "alerts and pages in docs/runbooks");
    let index = text("docs/runbooks/README.md");
    for page in pages {
        assert!(index.contains(&format!("({page}.md)")), "index: no {page}");
        let page = text(&format!("docs/runbooks/{page}.md"));
        for part in ["What it means", "How to look", "What to do"] {
            assert!(page.contains(&format!("## {part}\n")), "{page}: no {part}");
        }
    }
}
