//! What a scrape gets while Postgres does not answer anybody.

use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Plan};
use harness::http::Http;
use harness::postgres::Postgres;
use harness::redis::Redis;
use harness::wait;

use crate::load::SOON;
use crate::stack::migrate;

/// Long before Prometheus gives a scrape up (10 s); a busy machine needs some of it.
const AT_ONCE: Duration = Duration::from_secs(5);

const STATE: &str = "mcp_tasks_tasks_live{";

/// What this process serves; asked anew, so that nothing of an earlier answer is in it.
async fn page(url: &str) -> String {
    let asked = Instant::now();
    let reply = Http::new(AT_ONCE).get(&format!("{url}/metrics")).await;
    let reply = reply.unwrap();
    assert!(asked.elapsed() < AT_ONCE);
    assert_eq!(reply.status, 200);
    let kind = reply.headers["content-type"].to_str().unwrap();
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    String::from_utf8(reply.body.to_vec()).unwrap()
}

async fn tells(cron: &str) -> bool {
    page(cron).await.contains(STATE)
}

/// A server that is frozen keeps every connection, and every question asked on it, waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_waits_for_nobody_and_a_cut_off_leader_falls_silent() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("tasks").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_mcp-tasks"), &url, &redis.url());
    let settings = "[cron]\ngauges_interval = \"500ms\"\n[tools]\nfixtures = \"conformance\"\n";
    let mut cluster: Cluster = plan.of(1, 1, 1).settings(settings).start().await.unwrap();
    let admins: Vec<String> = cluster.nodes().map(|node| node.admin()).collect();
    let cron = cluster.crons[0].admin();
    let told = async || tells(&cron).await;
    wait::for_state("cron tells", SOON, told, |tells| *tells)
        .await
        .unwrap();

    postgres.freeze();
    let silent = async || {
        for admin in &admins {
            page(admin).await;
        }
        tells(&cron).await
    };
    wait::for_state("cron is silent", SOON, silent, |tells| !*tells)
        .await
        .unwrap();

    postgres.thaw();
    wait::for_state("cron tells again", SOON, told, |tells| *tells)
        .await
        .unwrap();
}
