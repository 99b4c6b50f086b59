//! Everything that may go away while work is done: Postgres, Redis, an upstream server's token. What is told of
//! that names no password.

use std::process::Command;

use harness::proxy::Mode;
use harness::wait;
use serde_json::json;

use crate::doors::Heard;
use crate::planted::Planted;
use crate::server::{ACCESS, TOOLS};
use crate::stack::{SOON, plan};

/// What operators are told by a process' own settings, whatever it is.
fn told(planted: &mut Planted, commands: &[&str], heard: &mut Heard) {
    let node = &mut planted.cluster.workers[0];
    let file = format!("{}.toml", node.name());
    let settings = node.plan_mut().dir.join(file);
    for command in commands {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
        let process = process.args(command.split(' '));
        let output = process.arg("--config").arg(&settings).output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        assert!(!all.is_empty(), "{command}");
        heard.push(String::from_utf8_lossy(&all).into_owned());
    }
}

/// The lines of all logs that are warnings or worse.
fn warnings(planted: &mut Planted) -> usize {
    let logs = planted
        .cluster
        .nodes()
        .map(|node| std::fs::read_to_string(node.log()).unwrap());
    let counts = logs.map(|log| log.matches("\"WARN\"").count() + log.matches("\"ERROR\"").count());
    counts.sum()
}

async fn works(planted: &Planted) {
    let alice = planted.cluster.client(0, "alice");
    let call = alice.start("chaos_undo", plan("hush-argument", json!([]), "result"));
    let id = call.await.unwrap();
    alice.wait_end(&id, SOON).await.unwrap();
}

/// What operators are told with a key of encryption that sealed nothing, and with one that is none.
pub fn of_keys(planted: &mut Planted, heard: &mut Heard) {
    let plan = planted.cluster.workers[0].plan_mut();
    let settings = std::fs::read_to_string(plan.dir.join("worker-1.toml")).unwrap();
    for (key, right) in [("other-key", true), ("broken-key", false)] {
        let changed = settings.replace("/key\"", &format!("/{key}\""));
        assert_ne!(changed, settings);
        let file = planted.files().join("changed.toml");
        std::fs::write(&file, changed).unwrap();
        for command in ["doctor", "tasks list", "config check", "worker"] {
            // It would begin to work.
            if right && command == "worker" {
                continue;
            }
            let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
            let process = process.args(command.split(' '));
            let output = process.arg("--config").arg(&file).output().unwrap();
            let all = [output.stdout, output.stderr].concat();
            let all = String::from_utf8_lossy(&all).into_owned();
            assert!(command != "worker" || !output.status.success(), "{all}");
            heard.push(all);
        }
    }
}

/// Postgres cannot be reached; whoever waits for it is served when it is back.
pub async fn of_postgres(planted: &mut Planted, heard: &mut Heard) {
    let before = warnings(planted);
    planted.postgres.set(Mode::Cut);
    told(planted, &["doctor", "tasks list"], heard);
    wait::until("warnings", SOON, async || {
        (warnings(planted) > before).then_some(())
    })
    .await
    .unwrap();
    let alice = planted.cluster.client(0, "alice");
    let asked = alice.request(
        "tasks/get",
        json!({ "taskId": "0198c0de-0000-7000-8000-000000000000" }),
    );
    let waits = asked.send();
    let back = async { planted.postgres.set(Mode::Pass) };
    let (answer, ()) = tokio::join!(waits, back);
    heard.push(String::from_utf8_lossy(&answer.unwrap().body).into_owned());
    works(planted).await;
}

/// Redis is gone, and comes back without the user that we are.
pub async fn of_redis(planted: &mut Planted, heard: &mut Heard) {
    let before = warnings(planted);
    planted.redis.kill9();
    told(planted, &["doctor", "queues"], heard);
    works(planted).await;
    wait::until("warnings", SOON, async || {
        (warnings(planted) > before).then_some(())
    })
    .await
    .unwrap();
    planted.redis.start_again().await.unwrap();
    told(planted, &["doctor"], heard);
    works(planted).await;
    planted.let_into_redis().await;
    works(planted).await;
}

/// A server that repeats what it is shown, however its calls end, and an endpoint that gives no token.
pub async fn of_upstreams(planted: &mut Planted, heard: &mut Heard) {
    let alice = planted.cluster.client(0, "alice");
    for refuses in [false, true] {
        planted.upstream.refuses(refuses);
        // The first one takes our token for a bad one, so that the next one needs another.
        let tools = if refuses { &TOOLS[..2] } else { &TOOLS[..] };
        for tool in tools {
            let id = alice.start(&format!("up_{tool}"), json!({})).await.unwrap();
            alice.wait_end(&id, SOON).await.unwrap();
            let ended = alice.get(&id).await.unwrap();
            // What was repeated is in it, but for the secrets.
            assert!(ended.to_string().contains("***"), "{tool}: {ended}");
            heard.push(ended.to_string());
        }
    }
    planted.upstream.refuses(false);
    let shown = planted.upstream.shown();
    for secret in [ACCESS, "hush-secret-header"] {
        assert!(shown.contains(secret), "{shown}");
    }
}
