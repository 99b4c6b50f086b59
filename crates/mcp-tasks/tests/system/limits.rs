//! Limits of tools over several workers: never exceeded, and no slot stays empty while somebody waits.

use futures::future::join_all;
use harness::temp::Temp;
use serde_json::json;

use crate::fairness::multiply;
use crate::support::{SOON, System, entries};

/// Takes one of two locks that the system gives back when the last of its processes is gone, or leaves a
/// note that there was none: more than two run.
const SCRIPT: &str = "#!/bin/sh
for slot in 1 2; do
  eval \"exec 9>slot.$slot\"
  if flock -n 9; then
    echo started >> log
    sleep 0.2
    exit 0
  fi
done
echo exceeded >> exceeded
";

/// Two of the tool at once, over four workers that have room for all.
struct Limited {
    folder: Temp,
    system: System,
}

impl Limited {
    async fn new(policy: &str, settings: &str) -> Limited {
        let folder = Temp::new().unwrap();
        let script = folder.path().join("limited.sh");
        std::fs::write(&script, SCRIPT).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        let file = folder.path().join("tools.toml");
        let tools = format!(
            "[[command]]\nname = \"limited\"\ndescription = \"D.\"\nprogram = \"./limited.sh\"\n\
             annotations = {{ readOnlyHint = true }}\n\
             [command.policy]\ninline_budget = \"0s\"\ntries_max = 9\n{policy}\n"
        );
        std::fs::write(&file, tools).unwrap();
        let settings = format!("[tools]\nfile = \"{}\"\n{settings}", file.display());
        let system = System::with(1, 4, &settings).await;
        system
            .cluster
            .wait_for_tools(0, &["limited"])
            .await
            .unwrap();
        Limited { folder, system }
    }

    /// So many tasks of each of three principals.
    async fn start(&self, each: usize) -> Vec<(&'static str, String)> {
        let one = async |who| {
            let client = self.system.cluster.client(0, who);
            (who, client.start("limited", json!({})).await.unwrap())
        };
        let all = (0..each).flat_map(|_| ["alice", "bob", "carol"]);
        join_all(all.map(one)).await
    }

    async fn all_completed(&self, tasks: &[(&str, String)]) {
        for (who, id) in tasks {
            let client = self.system.cluster.client(0, who);
            let task = client.wait_end(id, SOON).await.unwrap();
            assert_eq!(task["status"], "completed", "{task}");
        }
    }

    fn lines(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.folder.path().join(name));
        text.unwrap_or_default().lines().count()
    }

    async fn claims(&self, result: &str) -> f64 {
        let label = format!("result=\"{result}\"");
        let mut sum = 0.0;
        for worker in &self.system.cluster.workers {
            let claims = worker.metric("mcp_tasks_worker_claims_total", &label);
            sum += claims.await.unwrap();
        }
        sum
    }
}

/// No sweep helps: whoever ends a job wakes the next one, and nobody asks meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_comes_free_is_taken_at_once_and_nobody_polls() {
    let settings = "[cron]\nreconcile_interval = \"1h\"\n[redis]\nreclaim_idle = \"1h\"\n";
    let limited = Limited::new("concurrency = 2", settings).await;
    let tasks = limited.start(8).await;
    limited.all_completed(&tasks).await;
    assert_eq!((limited.lines("log"), limited.lines("exceeded")), (24, 0));
    // One for each hint of a new task, and one for each of a slot that came free.
    let (won, refused) = (limited.claims("won").await, limited.claims("refused").await);
    println!("{won} claims won, {refused} refused");
    assert!(refused <= 2.0 * 24.0, "{refused} claims were refused");
}

/// Each principal has one slot; those whose worker is killed get it back when the lease has run out.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_keep_no_slot() {
    let mut limited = Limited::new("concurrency = 2\nconcurrency_per_principal = 1", "").await;
    let tasks = limited.start(6).await;
    for worker in 0..2 {
        let done = "SELECT count(*) FROM tasks WHERE status = 'completed'";
        let at_least = 4 * (i64::try_from(worker).unwrap() + 1);
        harness::wait::for_state(
            "some are done",
            SOON,
            async || limited.system.count(done).await,
            |count| *count >= at_least,
        )
        .await
        .unwrap();
        let both = "SELECT count(*) FROM (SELECT subject FROM tasks WHERE phase = 'running' AND lease_until > now() \
                    GROUP BY subject HAVING count(*) > 1) x";
        assert_eq!(limited.system.count(both).await, 0, "one has two slots");
        limited.system.cluster.workers[worker].kill9();
    }
    limited.all_completed(&tasks).await;
    assert_eq!(limited.lines("exceeded"), 0);
    assert!(limited.lines("log") >= 18);
}

/// More slots than places, and workers that are busy for long: each sweep finds free slots, and somebody for them.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_nobody_takes_are_not_hinted_for_ever() {
    const SLOTS: i64 = 100;
    const ENOUGH: i64 = 256;
    let settings = "[cron]\nreconcile_interval = \"100ms\"\nhint_age = \"100ms\"\n";
    let mut limited = Limited::new(&format!("concurrency = {SLOTS}"), settings).await;
    for worker in &mut limited.system.cluster.workers {
        worker.freeze();
    }
    let alice = limited.system.cluster.client(0, "alice");
    let id = alice.start("limited", json!({})).await.unwrap();
    multiply(&limited.system, &id, 1_000).await;
    let sweeps = async || {
        let cron = &limited.system.cluster.crons[0];
        let name = "mcp_tasks_store_operation_seconds_count";
        cron.metric(name, "operation=\"unhinted\"").await.unwrap()
    };
    let hints = async || entries(&limited.system.redis).await;
    harness::wait::for_state("hinted", SOON, hints, |hints| *hints >= ENOUGH)
        .await
        .unwrap();
    let seen = sweeps().await;
    harness::wait::for_state("swept", SOON, sweeps, |now| *now >= seen + 10.0)
        .await
        .unwrap();
    let hints = hints().await;
    println!("{hints} hints");
    assert!(hints <= ENOUGH + SLOTS, "{hints} hints");
}
