//! The expressions of dashboards and rules, and what must be true of them without a server.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::load::TOOL;
use crate::servers::{repository, text};

/// Grafana's names of the units that we use; it shows an unknown one as it is written.
const UNITS: [&str; 7] = ["short", "s", "bytes", "percentunit", "reqps", "cps", "ops"];

/// An expression and where it stands.
pub struct Expression {
    pub place: String,
    pub text: String,
}

/// The dashboards, by file name.
fn dashboards() -> Vec<(String, Value)> {
    let dir = repository("helm/mcp-tasks/files/dashboards");
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| {
            let name = file.unwrap().file_name().to_string_lossy().into_owned();
            let text = text(&format!("helm/mcp-tasks/files/dashboards/{name}"));
            let board = serde_json::from_str(&text);
            (
                name.clone(),
                board.unwrap_or_else(|error| panic!("{name}: {error}")),
            )
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Panels that show something.
fn panels(board: &Value) -> Vec<&Value> {
    let panels = board["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// Number of panels, and every expression of the dashboards, those of annotations and variables among
/// them, with variables filled in.
pub fn of_panels() -> (usize, Vec<Expression>) {
    let mut count = 0;
    let mut all = Vec::new();
    for (name, board) in dashboards() {
        let mut add = |place: &Value, text: &str| {
            let text = text.replace("$__rate_interval", "2m");
            all.push(Expression {
                place: format!("{name}: {place}"),
                text: text.replace("$tool", TOOL),
            });
        };
        for panel in panels(&board) {
            count += 1;
            for target in panel["targets"].as_array().unwrap() {
                add(&panel["title"], target["expr"].as_str().unwrap());
            }
        }
        for annotation in board["annotations"]["list"].as_array().unwrap() {
            add(&annotation["name"], annotation["expr"].as_str().unwrap());
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            if let Some(query) = variable["query"]["query"].as_str() {
                let metric = query.strip_prefix("label_values(").unwrap();
                add(&variable["name"], metric.split_once(',').unwrap().0);
            }
        }
    }
    (count, all)
}

/// Names of metrics in an expression, those of histograms' parts as of the whole.
pub fn metrics(expression: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !word(c));
    words
        .filter(|word| {
            word.starts_with("mcp_tasks_") || word.starts_with("process_") || word.contains(':')
        })
        .map(|word| {
            let parts = ["_bucket", "_sum", "_count"];
            let whole = parts.iter().find_map(|part| word.strip_suffix(part));
            whole.unwrap_or(word).to_owned()
        })
        .collect()
}

/// The expression with its comparisons giving 0 or 1 instead of leaving out what is not so, and
/// with `absent` turned round: it has an answer if what it asks for exists. Alternatives, and what is
/// an exception, apart.
pub fn probes(expression: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut depth, mut braces, mut quoted) = (0_i32, 0_i32, false);
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        let outside = !quoted && braces == 0;
        let probe = all.last_mut().expect("there is one");
        let apart = [" or ", " unless on (tool) "]
            .into_iter()
            .find(|word| outside && depth == 0 && rest.starts_with(word));
        if let Some(word) = apart {
            all.push(String::new());
            rest = &rest[word.len()..];
            continue;
        }
        let comparison = ["==", "!=", "<=", ">=", "<", ">"]
            .into_iter()
            .find(|sign| outside && rest.starts_with(sign));
        if let Some(sign) = comparison {
            rest = &rest[sign.len()..];
            probe.push_str(sign);
            if !rest.starts_with(" bool ") {
                probe.push_str(" bool");
            }
            continue;
        }
        match c {
            '"' => quoted = !quoted,
            '{' if !quoted => braces += 1,
            '}' if !quoted => braces -= 1,
            '(' if outside => depth += 1,
            ')' if outside => depth -= 1,
            _ => {}
        }
        probe.push(c);
        rest = &rest[c.len_utf8()..];
    }
    all.iter()
        .map(|probe| probe.replace("absent(", "count("))
        .filter(|probe| probe != "vector(0)")
        .collect()
}

#[test]
fn a_probe_has_an_answer_where_its_metric_has() {
    assert_eq!(probes("a > 5"), ["a > bool 5"]);
    assert_eq!(probes("a > bool 5"), ["a > bool 5"]);
    assert_eq!(
        probes(r#"a{b!="x > y"} == 0"#),
        [r#"a{b!="x > y"} == bool 0"#]
    );
    assert_eq!(probes("absent(a) or absent(b)"), ["count(a)", "count(b)"]);
    assert_eq!(probes("sum(a or b)"), ["sum(a or b)"]);
    assert_eq!(
        probes("a > 5 unless on (tool) b == 1"),
        ["a > bool 5", "b == bool 1"]
    );
    assert_eq!(probes("sum(a) or vector(0)"), ["sum(a)"]);
}

/// Grafana finds them by `uid`, and draws panels where their grid says.
#[test]
fn dashboards_are_well_formed() {
    let mut uids = BTreeSet::new();
    let boards = dashboards();
    let ours: BTreeSet<_> = boards
        .iter()
        .map(|(_, board)| board["uid"].as_str())
        .collect();
    for (name, board) in &boards {
        assert!(uids.insert(board["uid"].to_string()), "{name}: uid twice");
        let mut places = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            assert!(
                ids.insert(panel["id"].as_u64().unwrap()),
                "{name}: id twice"
            );
            let grid = &panel["gridPos"];
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| grid[side].as_u64().unwrap());
            assert!(x + w <= 24, "{name}: {} is too wide", panel["title"]);
            for square in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(places.insert(square), "{name}: {} overlaps", panel["title"]);
            }
        }
        let variables = board["templating"]["list"].as_array().unwrap();
        assert_eq!(variables[0]["name"], "datasource", "{name}");
        assert_eq!(variables[0]["type"], "datasource", "{name}");
        for panel in panels(board) {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}");
            assert_ne!(panel["title"], "", "{name}");
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(UNITS.contains(&unit.as_str().unwrap()), "{name}: {unit}");
            let targets = panel["targets"].as_array().unwrap();
            assert_ne!(targets.len(), 0, "{name}");
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}");
            }
            for link in panel["links"].as_array().into_iter().flatten() {
                let url = link["url"].as_str().unwrap();
                let uid = url.trim_start_matches("/d/").split('?').next().unwrap();
                assert!(ours.contains(&Some(uid)), "{name}: {url}");
            }
        }
    }
    assert_eq!(uids.len(), 4);
}

/// Grafana's sidecar takes dashboards from a ConfigMap: a key a file, a mebibyte for all.
#[test]
fn dashboards_fit_into_a_config_map() {
    let mut bytes = 0;
    for (name, _) in dashboards() {
        let key = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        assert!(name.chars().all(key), "{name}");
        bytes += text(&format!("helm/mcp-tasks/files/dashboards/{name}")).len();
    }
    assert!(bytes < 900_000, "{bytes} bytes");
}
