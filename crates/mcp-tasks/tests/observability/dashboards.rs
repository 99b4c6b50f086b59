//! The expressions of dashboards and rules, and what must be true of them without a server.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::load::TOOL;
use crate::servers::{repository, text};

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

/// Number of panels, and every expression in them with its variables filled in.
pub fn of_panels() -> (usize, Vec<Expression>) {
    let mut count = 0;
    let mut all = Vec::new();
    for (name, board) in dashboards() {
        for panel in panels(&board) {
            count += 1;
            for target in panel["targets"].as_array().unwrap() {
                let text = target["expr"].as_str().unwrap();
                all.push(Expression {
                    place: format!("{name}: {}", panel["title"]),
                    text: text
                        .replace("$__rate_interval", "2m")
                        .replace("$tool", TOOL),
                });
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
/// with `absent` turned round: it has an answer if what it asks for exists. Alternatives apart.
pub fn probes(expression: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut depth, mut braces, mut quoted) = (0_i32, 0_i32, false);
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        let outside = !quoted && braces == 0;
        let probe = all.last_mut().expect("there is one");
        if outside && depth == 0 && rest.starts_with(" or ") {
            all.push(String::new());
            rest = &rest[4..];
            continue;
        }
        let comparison = ["==", "!=", "<=", ">=", "<", ">"]
            .into_iter()
            .find(|sign| outside && rest.starts_with(sign));
        if let Some(sign) = comparison {
            probe.push_str(sign);
            probe.push_str(" bool");
            rest = &rest[sign.len()..];
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
    assert_eq!(
        probes(r#"a{b!="x > y"} == 0"#),
        [r#"a{b!="x > y"} == bool 0"#]
    );
    assert_eq!(probes("absent(a) or absent(b)"), ["count(a)", "count(b)"]);
    assert_eq!(probes("sum(a or b)"), ["sum(a or b)"]);
    assert_eq!(probes("sum(a) or vector(0)"), ["sum(a)"]);
}

/// Grafana finds them by `uid`, and draws panels where their grid says.
#[test]
fn dashboards_are_well_formed() {
    let mut uids = BTreeSet::new();
    for (name, board) in dashboards() {
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
        for panel in panels(&board) {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}");
            assert_ne!(panel["title"], "", "{name}");
            assert_ne!(panel["targets"].as_array().unwrap().len(), 0, "{name}");
        }
    }
    assert_eq!(uids.len(), 4);
}
