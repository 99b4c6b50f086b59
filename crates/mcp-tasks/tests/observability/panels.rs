//! Every expression of every panel and rule gives data of a stack under load, and every metric
//! that is exported is shown somewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use harness::{ports, wait};

use crate::dashboards::{self, Expression};
use crate::load::{self, SOON};
use crate::rules::RULES;
use crate::servers::{Server, replaced, text};
use crate::stack::Stack;

/// For the last scrapes and evaluations to come round.
const SETTLED: Duration = Duration::from_secs(30);

/// As many as places: two workers of four.
const PLACES: usize = 8;

/// The configuration of deploy/, looking at this stack, and once a second.
async fn prometheus(stack: &mut Stack) -> Server {
    let nodes = stack.cluster.nodes();
    let targets: Vec<String> = nodes
        .map(|node| format!("{:?}", node.admin().trim_start_matches("http://")))
        .collect();
    let nobody = format!("127.0.0.1:{}", ports::free().unwrap());
    let config = text("deploy/prometheus.yml");
    let config = replaced(&config, "15s", "1s");
    let shipped = [9111, 9112, 9113, 9121, 9122, 9131].map(|port| format!("\"127.0.0.1:{port}\""));
    let mut config = replaced(&config, &shipped.join(", "), &targets.join(", "));
    for other in [9090, 9093, 8405, 8888] {
        config = replaced(&config, &format!("127.0.0.1:{other}"), &nobody);
    }
    Server::prometheus(&config, &[("prometheus-rules.yaml", &text(RULES))]).await
}

/// Names of all metrics that the stack exports.
async fn exported(stack: &mut Stack) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for node in stack.cluster.nodes() {
        let page = node.metrics().await.unwrap();
        let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.extend(heads.filter_map(|head| Some(head.split_once(' ')?.0.to_owned())));
    }
    names
}

/// Names in the first column of docs/metrics.md's tables. `rest`: only those that it says no panel
/// and no rule shows.
fn documented(rest: bool) -> BTreeSet<String> {
    let page = text("docs/metrics.md");
    let (shown, not_shown) = page.split_once("## Not shown").unwrap_or((&page, ""));
    let part = if rest { not_shown } else { shown };
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect()
}

/// The rules as Prometheus took them: name and expression.
async fn of_rules(prometheus: &Server) -> (BTreeSet<String>, Vec<Expression>) {
    let loaded = prometheus.get("/api/v1/rules").await;
    let groups = loaded["data"]["groups"].as_array().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let mut records = BTreeSet::new();
    let mut all = Vec::new();
    for rule in rules {
        let name = rule["name"].as_str().unwrap();
        if rule["type"] == "recording" {
            records.insert(name.to_owned());
        }
        all.push(Expression {
            place: format!("rule {name}"),
            text: rule["query"].as_str().unwrap().to_owned(),
        });
    }
    (records, all)
}

/// Those that have no data, and why.
async fn silent(prometheus: &Server, all: &[(String, String)]) -> Vec<String> {
    let asked = all.iter().map(async |(place, probe)| {
        let why = match prometheus.query(probe).await {
            Ok(samples) if samples.is_empty() => "no data".to_owned(),
            Ok(_) => return None,
            Err(error) => error,
        };
        Some(format!("{place}: {why}: {probe}"))
    });
    join_all(asked).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_has_data_and_every_metric_is_shown() {
    let nobody = ports::free().unwrap();
    let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{nobody}/v1/traces\"");
    let mut stack = Stack::of((2, 2), &traces).await;
    let exported = exported(&mut stack).await;
    assert_eq!(
        exported,
        documented(false),
        "exported from the start, and documented"
    );
    let prometheus = prometheus(&mut stack).await;

    join_all((0..3).map(|caller| load::mixed(&stack, caller))).await;
    stack.redis.kill9();
    stack.redis.start_again().await.unwrap();
    load::mixed(&stack, 3).await;
    let waiting = load::backlog(&stack, PLACES + 4).await;
    assert_eq!(waiting.len(), PLACES + 4);

    let (panels, mut expressions) = dashboards::of_panels();
    let (records, rules) = of_rules(&prometheus).await;
    let (of_panels, of_rules) = (expressions.len(), rules.len());
    expressions.extend(rules);
    let probes: Vec<(String, String)> = expressions
        .iter()
        .flat_map(|expression| {
            let probes = dashboards::probes(&expression.text);
            probes
                .into_iter()
                .map(|probe| (expression.place.clone(), probe))
        })
        .collect();
    let look = async || silent(&prometheus, &probes).await;
    wait::for_state("expressions without data", SETTLED, look, Vec::is_empty)
        .await
        .unwrap();

    let used: BTreeSet<String> = expressions
        .iter()
        .flat_map(|expression| dashboards::metrics(&expression.text))
        .collect();
    let known: BTreeSet<String> = exported.union(&records).cloned().collect();
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "no process exports {unknown:?}");
    let not_shown: BTreeSet<String> = exported.difference(&used).cloned().collect();
    assert_eq!(not_shown, documented(true), "shown nowhere, and why");
    println!(
        "{of_panels} expressions in {panels} panels, {of_rules} rules ({} recorded), {} probes; \
         {} metrics exported, {} not shown",
        records.len(),
        probes.len(),
        exported.len(),
        not_shown.len()
    );
}

/// `promtool check metrics`: names, units and help as Prometheus wants them.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_named_as_prometheus_wants_them() {
    let mut stack = Stack::of((1, 1), "").await;
    let client = stack.cluster.client(0, "alice");
    let plan = load::plan("named", serde_json::json!([]), "result");
    let id = client.start(load::TOOL, plan).await.unwrap();
    client.wait_end(&id, SOON).await.unwrap();
    let dir = harness::temp::Temp::new().unwrap();
    for node in stack.cluster.nodes() {
        let page = dir.path().join(node.name());
        std::fs::write(&page, node.metrics().await.unwrap()).unwrap();
        let check = format!("promtool check metrics < {}", page.display());
        crate::servers::run("bash", &["-c", &check], dir.path());
    }
}
