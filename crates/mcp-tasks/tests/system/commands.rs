//! External commands of tools, and what becomes of them when tasks are stopped and workers die:
//! a task's end shows only when its commands are gone, and no command outlives its lease.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::config::Role;
use harness::temp::Temp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{SOON, System, text};

const SHELL: &str = r#"
[tools]
shell = true
[worker]
stop_grace = "2s"
drain_deadline = "500ms"
"#;
/// As in the settings of all systems here.
const LEASE: Duration = Duration::from_secs(3);
const SUPERVISOR: &str = "task-supervisor";

/// A system, and processes of scripts that can be found in it.
struct Shells {
    system: System,
    dir: Temp,
}

impl Shells {
    async fn of(workers: usize) -> Self {
        let system = System::with(1, workers, SHELL).await;
        system
            .cluster
            .wait_for_tools(0, &["run_shell"])
            .await
            .unwrap();
        let dir = Temp::new().unwrap();
        Self { system, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a task for a script, which finds its files in its working directory. So are its
    /// processes found, whatever else they do to hide.
    async fn start(&self, script: &str, more: Value) -> String {
        let script = format!("cd {}\n{script}", self.dir.path().display());
        let mut arguments = json!({ "script": script });
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        let alice = self.system.cluster.client(0, "alice");
        alice.start("run_shell", arguments).await.unwrap()
    }

    fn alive(&self) -> Vec<i32> {
        let dir = self.dir.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir)
        })
        .collect()
    }

    async fn wait_alive(&self, count: usize) {
        let what = format!("{count} processes");
        harness::wait::for_state(&what, SOON, async || self.alive().len(), |n| *n == count)
            .await
            .unwrap();
    }

    async fn wait_gone(&self) {
        harness::wait::for_state("nobody", SOON, async || self.alive(), Vec::is_empty)
            .await
            .unwrap();
    }

    /// The supervisor of the only command.
    fn supervisor(&self) -> Pid {
        let worker = self.system.cluster.workers[0].pid().unwrap().to_string();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let mut stats = entries.filter_map(|e| std::fs::read_to_string(e.path().join("stat")).ok());
        let supervisor = stats.find_map(|stat| {
            let (pid, rest) = stat.split_once(&format!(" ({SUPERVISOR}) "))?;
            let parent = rest.split(' ').nth(1)?;
            (parent == worker).then(|| pid.parse().unwrap())
        });
        Pid::from_raw(supervisor.unwrap())
    }

    /// The task once it has ended. Whenever that shows, nothing may be left.
    async fn end(&self, id: &str) -> Value {
        let client = self.system.cluster.client(0, "alice");
        let deadline = Instant::now() + SOON;
        loop {
            let task = client.get(id).await.unwrap();
            if task["status"] != "working" {
                assert_eq!(self.alive(), [0; 0], "{}: but they live", task["status"]);
                return task;
            }
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }
}

/// Twenty processes that do not want to end: groups and sessions of their own, and one that forked
/// twice and forgot its environment.
const FAMILY: &str = "trap '' TERM
    for i in 1 2 3; do (sleep 1000 & sleep 1000 & sleep 1000 & wait) & done
    for i in 1 2; do setsid sh -c 'sleep 1000 & sleep 1000 & wait' & done
    setsid sleep 1000 &
    (env -i setsid sleep 1000 >/dev/null 2>&1 &)
    wait";
const MEMBERS: usize = 1 + 3 * 4 + 2 * 3 + 1 + 1;

/// A cancel asks, waits for the grace, kills; and `cancelled` shows only when all are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_command_is_gone_before_it_shows() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let id = shells.start(FAMILY, json!({"grace_ms": 700})).await;
    shells.wait_alive(MEMBERS).await;
    alice.cancel(&id).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        alice.get(&id).await.unwrap()["status"],
        "working",
        "not yet"
    );
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "cancelled");
}

/// One that hears of it ends by itself, and sooner than by its grace.
#[tokio::test(flavor = "multi_thread")]
async fn a_polite_command_ends_at_once() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let script = "trap 'echo bye > said; exit' TERM; touch up; sleep 1000 & wait";
    let id = shells
        .start(script, json!({"step": "once", "interruptible": true}))
        .await;
    shells.wait_alive(2).await;
    let asked = Instant::now();
    alice.cancel(&id).await.unwrap();
    let task = shells.end(&id).await;
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(task["status"], "cancelled", "it said that no harm was done");
    assert_eq!(shells.read("said"), "bye\n");
}

/// A command inside a step that was stopped half way may have acted: the task says so, and still
/// nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_stopped_half_way_is_in_doubt() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let id = shells
        .start(FAMILY, json!({"step": "once", "grace_ms": 100}))
        .await;
    shells.wait_alive(MEMBERS).await;
    alice.cancel(&id).await.unwrap();
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["data"]["reason"], "step_in_doubt");
}

/// A grace that is longer than the worker's own does not help: the tool is dropped, and the row
/// waits for its commands all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_tool_takes_its_commands_along() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let id = shells.start(FAMILY, json!({"grace_ms": 600_000})).await;
    shells.wait_alive(MEMBERS).await;
    let asked = Instant::now();
    alice.cancel(&id).await.unwrap();
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "cancelled");
    assert!(
        asked.elapsed() >= Duration::from_secs(2),
        "the worker's grace"
    );
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
}

/// The supervisor does not work: its worker ends the command, and only then the row says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_supervisor_keeps_the_row_waiting() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let script = "trap '' TERM; sleep 1000 & setsid sleep 1000 & wait";
    let id = shells.start(script, json!({"grace_ms": 100})).await;
    shells.wait_alive(3).await;
    kill(shells.supervisor(), Signal::SIGSTOP).unwrap();
    alice.cancel(&id).await.unwrap();
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "cancelled");
}

/// The supervisor is killed: the worker ends what it left, and the task says that nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_leaves_nothing() {
    let shells = Shells::of(1).await;
    let script = "trap '' TERM; sleep 1000 & setsid sleep 1000 & wait";
    let id = shells.start(script, json!({"step": "once"})).await;
    shells.wait_alive(3).await;
    kill(shells.supervisor(), Signal::SIGKILL).unwrap();
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["data"]["reason"], "step_in_doubt");
}

/// kill -9 of a worker: its command is gone within a second, and another worker, which runs the
/// script again, never meets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_takes_its_commands_along() {
    let mut shells = Shells::of(1).await;
    // The first one stays, the second one ends.
    let script = format!("[ -e second ] && exit 7; touch second\n{FAMILY}");
    let id = shells.start(&script, json!({})).await;
    shells.wait_alive(MEMBERS).await;
    let killed = Instant::now();
    shells.system.cluster.workers[0].kill9();
    shells.wait_gone().await;
    assert!(
        killed.elapsed() < Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    shells.system.cluster.add(Role::Worker).unwrap();
    let task = shells.end(&id).await;
    let result: Value = serde_json::from_str(&text(&task["result"])).unwrap();
    assert_eq!(result["code"], 7, "{task}");
}

/// A worker that is frozen for longer than its lease: its command is gone before the lease ends,
/// and so before another worker can begin.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_loses_its_commands_before_its_lease() {
    let mut shells = Shells::of(1).await;
    // The second one counts whom it meets, and takes its time.
    let script = format!(
        "if [ -e second ]; then pgrep -fxc 'sleep 4711' > met; exit 7; fi; touch second\n{}",
        FAMILY.replace("sleep 1000", "sleep 4711")
    );
    let id = shells.start(&script, json!({})).await;
    shells.wait_alive(MEMBERS).await;
    shells.system.cluster.workers[0].freeze();
    let frozen = Instant::now();
    shells.system.cluster.add(Role::Worker).unwrap();
    // The last heartbeat is up to a second old, and the lease counts from it.
    shells.wait_gone().await;
    let gone = frozen.elapsed();
    println!("gone {gone:.2?} after the freeze");
    assert!(gone < LEASE, "{gone:?}");
    let sql = format!("SELECT attempt FROM tasks WHERE id = '{id}'");
    assert_eq!(
        shells.system.count(&sql).await,
        1,
        "nobody has claimed it yet"
    );
    let task = shells.end(&id).await;
    let result: Value = serde_json::from_str(&text(&task["result"])).unwrap();
    assert_eq!(result["code"], 7, "{task}");
    assert_eq!(shells.read("met"), "0\n");
    shells.system.cluster.workers[0].thaw();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = shells.end(&id).await;
    assert_eq!(again["result"], task["result"], "terminal is final");
    assert!(shells.system.cluster.workers[0].ended().is_none());
}

/// A worker that drains stops its commands and hands their tasks back; the next one runs them
/// from the start, after they have ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_stops_its_commands_first() {
    let mut shells = Shells::of(1).await;
    let script = "[ -e second ] && { cat order; exit 7; }; touch second
        trap 'sleep 0.3; echo first >> order; exit' TERM; sleep 1000 & wait";
    let id = shells
        .start(script, json!({"step": "once", "interruptible": true}))
        .await;
    shells.wait_alive(2).await;
    shells.system.cluster.add(Role::Worker).unwrap();
    shells.system.cluster.ready().await.unwrap();
    shells.system.cluster.workers[0].stop(SOON).await.unwrap();
    let task = shells.end(&id).await;
    let result: Value = serde_json::from_str(&text(&task["result"])).unwrap();
    assert_eq!(result["stdout"], "first\n", "{task}");
    let tries = format!("SELECT tries FROM tasks WHERE id = '{id}'");
    assert_eq!(
        shells.system.count(&tries).await,
        0,
        "a drain spends no try"
    );
}

/// An undo is a command too: run after the cancel, and gone before `cancelled` shows.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_may_be_a_command() {
    let shells = Shells::of(1).await;
    let alice = shells.system.cluster.client(0, "alice");
    let dir = shells.dir.path().display();
    let more = json!({
        "step": "once",
        "undo": format!("cd {dir}; sleep 0.3; echo undone >> ledger; (setsid sleep 1000 &)"),
        "then": format!("cd {dir}; touch up; exec sleep 1000"),
    });
    let id = shells.start("echo done >> ledger", more).await;
    harness::wait::until("the step is over", SOON, async || {
        shells.file("up").exists().then_some(())
    })
    .await
    .unwrap();
    alice.cancel(&id).await.unwrap();
    let task = shells.end(&id).await;
    assert_eq!(task["status"], "cancelled");
    assert_eq!(shells.read("ledger"), "done\nundone\n");
}

/// Ten megabytes through a command of a real worker; the password of its database stays with it.
#[tokio::test(flavor = "multi_thread")]
async fn much_output_and_no_secrets() {
    let shells = Shells::of(1).await;
    let script = "head -c 10000000 /dev/zero; env >&2; cat /proc/$PPID/environ >&2";
    let id = shells.start(script, json!({})).await;
    let task = shells.end(&id).await;
    let result: Value = serde_json::from_str(&text(&task["result"])).unwrap();
    assert_eq!(result["code"], 0);
    assert_eq!(
        result["stdout"].as_str().unwrap().len(),
        1024 * 1024,
        "the limit"
    );
    let environment = result["stderr"].as_str().unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("MCP_TASKS_CONFIG"));
    assert!(!environment.contains("CARGO"), "{environment}");
}

/// A person who finds the subcommand is told what it is for.
#[test]
fn supervise_is_not_for_people() {
    for arguments in [&["supervise"][..], &["supervise", "--pipe=2", "touch", "x"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("started by workers"), "{said}");
    }
}
