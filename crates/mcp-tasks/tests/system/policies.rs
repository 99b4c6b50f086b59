//! Policies of the tools file and the settings behind them: what is in force, and what it does.

use std::process::{Command, Output};

use harness::temp::Temp;
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{SOON, System, keyed, text};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// A script that asks, with no default of its own.
const ASKS: &str = r#"read -r start
case $MCP_TASKS_ANSWERS in *'"action"'*) echo "answered $MCP_TASKS_ANSWERS"; exit ;; esac
echo '{"type":"ask","key":"sure","message":"Sure?","schema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}' >&3
read -r answer; echo "told $answer"
"#;

/// A folder with that script.
fn folder() -> Temp {
    let folder = Temp::new().unwrap();
    file(&folder, "asks.sh", ASKS);
    folder
}

fn asks(name: &str, policy: &str) -> String {
    format!(
        "[[command]]\nname = \"{name}\"\ndescription = \"D.\"\nprogram = \"sh\"\n\
         arguments = [\"asks.sh\"]\nprotocol = \"fd3\"\n[command.policy]\n{policy}\n"
    )
}

fn file(folder: &Temp, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run(arguments: &[&str]) -> (Output, String) {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output, said)
}

/// A scheduled caller declares no way to answer: its task never waits. It takes the default that the
/// policy has, or fails with the reason. Deadlines take the same default.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_asked_gets_the_default_or_the_reason() {
    let folder = folder();
    let tools = [
        asks("none", "inline_budget = \"0s\""),
        asks(
            "set",
            "inline_budget = \"0s\"\ndefault_answers = { sure = { ok = true } }",
        ),
        asks(
            "late",
            "inline_budget = \"0s\"\ninput_deadline = \"1s\"\ndefault_answers = { \"*\" = \"decline\" }",
        ),
    ];
    let tools = file(&folder, "tools.toml", &tools.join("\n"));
    let system = System::with(1, 1, &format!("[tools]\nfile = \"{tools}\"\n")).await;
    let names = ["none", "set", "late"];
    system.cluster.wait_for_tools(0, &names).await.unwrap();
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let scheduled = system.cluster.client(0, "cron").capabilities(tasks);
    let id = scheduled.start("none", json!({})).await.unwrap();
    let task = scheduled.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["status"], "failed", "{task}");
    assert_eq!(task["error"]["code"], -32021, "{task}");
    assert_eq!(task["error"]["data"]["reason"], "cannot_ask", "{task}");
    let id = scheduled.start("set", json!({})).await.unwrap();
    let task = scheduled.wait_end(&id, SOON).await.unwrap();
    let told = text(&task["result"]);
    assert!(told.contains("\"ok\":true"), "{task}");
    let parked = "SELECT count(*) FROM tasks WHERE rounds > 0 AND subject = 'cron'";
    assert_eq!(system.count(parked).await, 0, "none of them waited");
    // Without either capability the call is held, and told the same.
    let bare = system.cluster.client(0, "cron").capabilities(json!({}));
    let told = bare.call("none", json!({})).await.unwrap_err().to_string();
    assert!(told.contains("-32021"), "{told}");
    // Who can be asked is, and does not answer in time.
    let alice = system.cluster.client(0, "alice");
    let id = alice.start("late", json!({})).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert!(text(&task["result"]).contains("\"decline\""), "{task}");
}

/// A key makes work reachable again after a disconnect: it goes on for a grace, and is cancelled if
/// nobody returns. Who returns in that time finds it, on whatever gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_a_key_has_a_grace_to_come_back() {
    let system = System::with(2, 1, "[gateway]\nhold = \"5s\"\n").await;
    let begin = async |key: &str, seconds: u64| {
        let client = system.cluster.client(0, "alice").undeclared();
        let params = keyed("slow_compute", json!({"seconds": seconds}), key);
        let stream = client.request("tools/call", params).stream().await.unwrap();
        let running = format!(
            "SELECT count(*) FROM tasks WHERE idempotency_key = '{key}' AND phase = 'running'"
        );
        let running = async || system.count(&running).await;
        wait::for_state("it runs", SOON, running, |n| *n == 1)
            .await
            .unwrap();
        drop(stream);
    };
    begin("comes-back", 2).await;
    let again = system.cluster.client(1, "alice").undeclared();
    let params = keyed("slow_compute", json!({"seconds": 2}), "comes-back");
    let answer = again.request("tools/call", params).send().await.unwrap();
    let result = answer.into_result().unwrap();
    assert_eq!(result["resultType"], "complete", "{result}");
    begin("stays-away", 3600).await;
    let ended = "SELECT count(*) FROM tasks WHERE idempotency_key = 'stays-away' \
                 AND status = 'cancelled' AND stop_reason = 'abandoned'";
    wait::for_state(
        "it is cancelled",
        SOON,
        async || system.count(ended).await,
        |n| *n == 1,
    )
    .await
    .unwrap();
    let attempts = "SELECT max(attempt) FROM tasks";
    assert_eq!(system.count(attempts).await, 1, "nothing ran twice");
}

/// A hang-up is the wish to read the tools file again. Without one it is no reason to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_does_not_end_a_worker_without_a_tools_file() {
    let system = System::of(1, 1).await;
    let worker = &system.cluster.workers[0];
    let pid = i32::try_from(worker.pid().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
    let told = async || std::fs::read_to_string(worker.log()).unwrap_or_default();
    let says = |log: &String| log.contains("there is no tools file to read again");
    wait::for_state("it says so", SOON, told, says)
        .await
        .unwrap();
    let alice = system.cluster.client(0, "alice");
    let month = json!({"collection": "small"});
    let answer = alice.call("reindex_corpus", month).await.unwrap();
    let served = answer["content"].is_array() || answer["taskId"].is_string();
    assert!(served, "{answer}");
}

/// Tools of the file, of the code and of nobody; values of the file, the settings and the code.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_in_force_is_shown_for_every_tool() {
    let folder = folder();
    let tools = asks("asks", "inline_budget = \"1h\"\nscopes = [\"a\", \"b\"]");
    let tools = file(&folder, "tools.toml", &tools);
    let system = System::of(1, 1).await;
    let url = system.database.url();
    let settings = format!(
        "[postgres]\nurl = \"{url}\"\n[tools]\nfile = \"{tools}\"\n[gateway]\ninline_budget = \"2s\"\n\
         inline_budget_max = \"20s\"\n[worker]\nresult_bytes_max = 4000000\n"
    );
    let settings = file(&folder, "settings.toml", &settings);
    let shown = |tool: &str| -> Value {
        let words = [
            "tools", "show", tool, "--config", &settings, "--output", "json",
        ];
        let (output, said) = run(&words);
        assert!(output.status.success(), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let row = |shown: &Value, key: &str| {
        let rows = shown["policy"].as_array().unwrap();
        let row = rows.iter().find(|row| row["policy"] == key).unwrap();
        let part = |name: &str| row[name].to_string().replace('"', "");
        format!("{} {} {}", part("value"), part("from"), part("place"))
    };
    let asks = shown("asks");
    assert_eq!(asks["source"], "command");
    let scopes = format!("[a,b] tool {tools}:9");
    for (key, expected) in [
        ("inline_budget", "20s settings gateway.inline_budget_max"),
        ("call_limit", "10m settings gateway.call_limit"),
        ("scopes", scopes.as_str()),
        (
            "result_bytes_max",
            "4000000 settings worker.result_bytes_max",
        ),
        ("tries_max", "5 default null"),
        ("ttl", "1day 6h 12m 30s settings the sum of what it covers"),
    ] {
        assert_eq!(row(&asks, key), expected);
    }
    // In Rust, and in no file.
    let report = shown("build_report");
    assert_eq!(report["source"], "worker, version 1");
    assert_eq!(row(&report, "inline_budget"), "0s tool null");
    assert_eq!(row(&report, "poll_max"), "10s settings gateway.poll_max");
    let (output, said) = run(&["tools", "show", "nothing", "--config", &settings]);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("has no tool \"nothing\"; it has asks"),
        "{said}"
    );
    assert!(said.contains("there is no \"nothing\""), "{said}");
}

/// What the settings and their tools file say together is checked by all that read them.
#[test]
fn a_file_that_does_not_fit_the_settings_is_refused() {
    let folder = Temp::new().unwrap();
    let large = "[[command]]\nname = \"large\"\ndescription = \"D.\"\nprogram = \"sh\"\n\
                 output_bytes_max = 3000000\n";
    let tools = file(&folder, "tools.toml", large);
    let of = |worker: &str| {
        format!(
            "[tools]\nfile = \"{tools}\"\n[worker]\n{worker}\n[admin]\nlisten = \"127.0.0.1:0\"\n"
        )
    };
    let small = file(&folder, "small.toml", &of(""));
    let more = file(&folder, "more.toml", &of("step_bytes_max = 3000000"));
    let problem = format!(
        "{tools}:5: command \"large\": output_bytes_max: 3000000 is more than \
         worker.step_bytes_max (1048576)"
    );
    for arguments in [
        &["check", &tools][..],
        &["check", "--config", &small],
        &["config", "check", "--config", &small],
        &["worker", "--config", &small],
    ] {
        let (output, said) = run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains(&problem), "{arguments:?}: {said}");
    }
    for arguments in [
        &["check", "--config", &more][..],
        &["config", "check", "--config", &more],
    ] {
        let (output, said) = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {said}");
        let good = format!("{tools}: good");
        assert!(said.contains(&good), "{arguments:?}: {said}");
    }
    let gone = "[tools]\nfile = \"/no/such/tools.toml\"\n";
    let gone = file(&folder, "gone.toml", gone);
    let (output, said) = run(&["config", "check", "--config", &gone]);
    assert!(!output.status.success());
    assert!(
        said.contains("/no/such/tools.toml: cannot be read"),
        "{said}"
    );
}
