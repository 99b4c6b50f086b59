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

/// Whether this is the address of a page that is there, under the same base as the rules use.
pub fn is_runbook(url: &str) -> bool {
    let rules = text(RULES);
    let base = values(&rules, "runbook_url: ")[0]
        .rsplit_once('/')
        .unwrap()
        .0;
    let name = url
        .strip_prefix(base)
        .and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| repository(&format!("docs/runbooks/{name}")).exists())
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
    let expressions = values(&rules, "expr: ");
    let expressions = &expressions[expressions.len() - alerts.len()..];
    let urls = values(&rules, "runbook_url: ");
    assert_eq!(urls.len(), alerts.len());
    for (url, alert) in urls.iter().zip(values(&rules, "- alert: ")) {
        assert!(
            url.ends_with(&format!("/docs/runbooks/{alert}.md")),
            "{url}"
        );
    }
    for (alert, expression) in values(&rules, "- alert: ").iter().zip(expressions) {
        let page = text(&format!("docs/runbooks/{alert}.md"));
        let quoted = expression.trim_matches('\'').replace("''", "'");
        assert!(page.contains(&quoted), "{alert}: its page has another rule");
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

/// The trial stack: what its files say of each other.
#[test]
fn the_trial_stack_finds_its_own_parts() {
    let compose = text("deploy/compose.yaml");
    // Every file that is mounted is there.
    let mounted: Vec<&str> = compose
        .split(['"', ' ', '\n', '['])
        .filter_map(|word| word.strip_suffix(":ro"))
        .filter_map(|word| Some(word.split_once(':')?.0))
        .collect();
    assert!(mounted.len() >= 7, "{mounted:?}");
    for path in mounted {
        let path = format!("deploy/{path}");
        assert!(repository(&path).exists(), "compose.yaml mounts {path}");
    }
    // Prometheus scrapes the admin addresses of our processes, and no others.
    let prometheus = text("deploy/prometheus.yml");
    let admins: Vec<&str> = compose
        .split("ADMIN__LISTEN: \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(admins.len(), 6);
    let targets: Vec<String> = admins.iter().map(|admin| format!("{admin:?}")).collect();
    assert!(prometheus.contains(&format!("targets: [{}]", targets.join(", "))));
    // Alerts of Prometheus and of cron go to the same Alertmanager; Grafana asks that Prometheus.
    let listens = |service: &str| {
        let (_, rest) = compose.split_once(&format!("\n  {service}:\n")).unwrap();
        let (_, rest) = rest.split_once("--web.listen-address=").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let alertmanager = listens("alertmanager");
    assert!(prometheus.contains(&format!("targets: [\"{alertmanager}\"]")));
    let cron = format!("url = \"http://{alertmanager}\"");
    assert!(text("deploy/mcp-tasks.toml").contains(&cron));
    let source = format!("url: http://{}", listens("prometheus"));
    assert!(text("deploy/grafana/datasources.yaml").contains(&source));
    // Where Grafana looks for dashboards they are mounted.
    let provided = text("deploy/grafana/dashboards.yaml");
    let folder = provided.split("path: ").nth(1).unwrap();
    let folder = folder.split(' ').next().unwrap();
    let mount = format!("../helm/mcp-tasks/files/dashboards:{folder}:ro");
    assert!(compose.contains(&mount), "{mount}");
}
