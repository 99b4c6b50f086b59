//! A tools file served by the stock worker: scripts that ask, workers that die, files that change.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use harness::config::Role;
use harness::temp::Temp;
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{SOON, System, text};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// A folder with a tools file and its scripts.
struct Folder(Temp);

impl Folder {
    fn new() -> Self {
        Self(Temp::new().unwrap())
    }

    /// The examples of the documentation.
    fn of_examples() -> Self {
        let folder = Self::new();
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            if entry.path().is_dir() {
                continue;
            }
            std::fs::copy(entry.path(), folder.0.path().join(entry.file_name())).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), executable).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A section for a script, whose calls are tasks at once; `more` are further keys of it.
    fn script(&self, name: &str, script: &str, more: &str) -> String {
        self.write(&format!("{name}.sh"), script);
        format!(
            "[[command]]\nname = \"{name}\"\ndescription = \"D.\"\nprogram = \"./{name}.sh\"\n{more}\n\
             [command.policy]\ninline_budget = \"0s\"\n"
        )
    }

    /// The settings of workers that serve it.
    fn settings(&self) -> String {
        let file = self.path("tools.toml");
        format!(
            "[tools]\nfile = \"{}\"\n[worker]\nstop_grace = \"2s\"\n",
            file.display()
        )
    }

    /// Processes that run in it.
    fn alive(&self) -> Vec<i32> {
        let dir = self.0.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir)
        })
        .collect()
    }

    async fn wait_for(&self, file: &str) {
        let look = async || self.path(file).exists();
        wait::for_state(file, SOON, look, |there| *there)
            .await
            .unwrap();
    }
}

fn hang_up(system: &System) {
    let pid = system.cluster.workers[0].pid().unwrap();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGHUP).unwrap();
}

/// The script of the documentation asks; another gateway shows the question and takes the answer.
/// Beside it, one tool is answered at once or becomes a task, by how long it takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_asks_and_another_gateway_answers() {
    let folder = Folder::of_examples();
    let system = System::with(2, 1, &folder.settings()).await;
    for gateway in 0..2 {
        let tools = system.cluster.wait_for_tools(gateway, &["release", "wait"]);
        tools.await.unwrap();
    }
    let (one, other) = (
        system.cluster.client(0, "alice"),
        system.cluster.client(1, "alice"),
    );
    let id = one
        .start("release", json!({"version": "1.2"}))
        .await
        .unwrap();
    let task = other
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    let question = &task["inputRequests"]["publish"];
    assert_eq!(question["params"]["message"], "Publish 1.2?", "{task}");
    assert_eq!(folder.alive(), [0; 0], "nothing is held meanwhile");
    let yes = json!({"publish": {"action": "accept", "content": {"publish": true}}});
    other.update(&id, yes).await.unwrap();
    let task = one.wait_end(&id, SOON).await.unwrap();
    assert_eq!(
        text(&task["result"]),
        "published https://example.com/1.2",
        "{task}"
    );
    assert_eq!(folder.read("releases.log"), format!("1.2 {id}:publish\n"));

    let small = one.call("wait", json!({"seconds": 0})).await.unwrap();
    assert_eq!(small["resultType"], "complete", "{small}");
    let large = one.start("wait", json!({"seconds": 4})).await.unwrap();
    let task = one.wait_end(&large, SOON).await.unwrap();
    assert_eq!(task["status"], "completed", "{task}");
}

/// kill -9 of the worker in the middle of four programs: each ends as its rules say.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_leaves_what_the_rules_say() {
    let folder = Folder::new();
    // The first run of each stays, a second one ends.
    let run = "#!/bin/sh\necho ran >> $0.log\n[ \"$(wc -l < $0.log)\" -gt 1 ] && echo second && exit\n\
               touch $0.up; sleep 1000 & sleep 1000";
    let script = "#!/bin/sh\nread -r start\ncase $MCP_TASKS_CHECKPOINT in '\"half\"')\n\
                  echo '{\"type\":\"step\",\"key\":\"act\"}'; read -r reply\n\
                  echo '{\"type\":\"result\",\"text\":\"from half\"}'; exit ;; esac\n\
                  echo '{\"type\":\"checkpoint\",\"value\":\"half\"}'\n\
                  echo '{\"type\":\"step\",\"key\":\"act\"}'; read -r go; echo acted >> $0.log\n\
                  echo '{\"type\":\"end\",\"key\":\"act\"}'\n\
                  echo '{\"type\":\"step\",\"key\":\"more\",\"idempotent\":true}'; read -r go\n\
                  touch $0.up; sleep 1000";
    let finishing = script.replace(
        "read -r reply\n",
        "read -r reply\necho '{\"type\":\"step\",\"key\":\"more\",\"idempotent\":true}'; read -r go\n\
         echo '{\"type\":\"end\",\"key\":\"more\"}'\n",
    );
    let file = [
        folder.script("once", run, ""),
        folder.script("none", run, "effects = \"none\""),
        folder.script("repeatable", run, "effects = \"repeatable\""),
        folder.script("fail", run, "effects = \"none\"") + "on_lost = \"fail\"\n",
        folder.script("lines", &finishing, "protocol = \"stdout\""),
    ];
    let names = ["once", "none", "repeatable", "fail", "lines"];
    folder.write("tools.toml", &file.join("\n"));
    let mut system = System::with(1, 1, &folder.settings()).await;
    system.cluster.wait_for_tools(0, &names).await.unwrap();
    let alice = system.cluster.client(0, "alice");
    let mut ids = Vec::new();
    for name in names {
        ids.push(alice.start(name, json!({})).await.unwrap());
    }
    for name in names {
        folder.wait_for(&format!("{name}.sh.up")).await;
    }
    system.cluster.workers[0].kill9();
    wait::for_state("nobody", SOON, async || folder.alive(), Vec::is_empty)
        .await
        .unwrap();
    system.cluster.add(Role::Worker).unwrap();
    let mut ends = Vec::new();
    for id in &ids {
        let task = alice.wait_end(id, SOON).await.unwrap();
        let reason = task["error"]["data"]["reason"].as_str().unwrap_or("");
        ends.push(format!(
            "{} {reason}{}",
            task["status"].as_str().unwrap(),
            text(&task["result"])
        ));
    }
    assert_eq!(
        ends,
        [
            "failed step_in_doubt",
            "completed second",
            "completed second",
            "failed worker_lost",
            "completed from half",
        ]
    );
    assert_eq!(folder.read("once.sh.log"), "ran\n");
    assert_eq!(folder.read("lines.sh.log"), "acted\n", "only once");
    assert_eq!(folder.alive(), [0; 0]);
}

/// Programs that hang, with children that do not want to end: their time is over, or they are
/// cancelled, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_is_ended_with_all_it_started() {
    let folder = Folder::new();
    let script = "#!/bin/sh\ntrap '' TERM\n\
                  for i in 1 2 3; do (trap '' TERM; sleep 1000 & setsid sleep 1000 & wait) & done\n\
                  touch $0.up; wait; sleep 1000";
    let free = "effects = \"none\"\ngrace = \"300ms\"";
    let file = [
        folder.script("late", script, free) + "work_limit = \"2s\"\ntries_max = 1\n",
        folder.script("cancelled", script, free),
        folder.script("doubtful", script, "grace = \"300ms\""),
        folder.script(
            "repeatable",
            script,
            "effects = \"repeatable\"\ngrace = \"300ms\"",
        ),
    ];
    folder.write("tools.toml", &file.join("\n"));
    let system = System::with(1, 1, &folder.settings()).await;
    let names = ["late", "cancelled", "doubtful", "repeatable"];
    system.cluster.wait_for_tools(0, &names).await.unwrap();
    let alice = system.cluster.client(0, "alice");
    let id = alice.start("late", json!({})).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["error"]["data"]["reason"], "work_limit", "{task}");
    assert_eq!(folder.alive(), [0; 0]);
    for (name, status, reason) in [
        ("cancelled", "cancelled", Value::Null),
        ("doubtful", "failed", json!("step_in_doubt")),
        ("repeatable", "failed", json!("step_in_doubt")),
    ] {
        let id = alice.start(name, json!({})).await.unwrap();
        folder.wait_for(&format!("{name}.sh.up")).await;
        alice.cancel(&id).await.unwrap();
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], status, "{task}");
        assert_eq!(task["error"]["data"]["reason"], reason, "{task}");
        assert_eq!(folder.alive(), [0; 0]);
    }
}

/// SIGHUP: tools come, change and go, work that runs goes on, and a broken file changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_read_again_disturbs_no_work() {
    let folder = Folder::new();
    let old = folder.script(
        "old",
        "#!/bin/sh\ntouch up; while [ ! -e go ]; do sleep 0.1; done; echo done",
        "",
    );
    let kept = folder.script("kept", "#!/bin/sh\necho kept", "");
    let new = folder.script("new", "#!/bin/sh\necho new", "");
    folder.write("tools.toml", &format!("{old}{kept}"));
    let system = System::with(1, 1, &folder.settings()).await;
    let tools = system.cluster.wait_for_tools(0, &["old", "kept"]);
    tools.await.unwrap();
    let alice = system.cluster.client(0, "alice");
    let id = alice.start("old", json!({})).await.unwrap();
    folder.wait_for("up").await;

    let changed = kept.replace("\"D.\"", "\"Another.\"");
    folder.write("tools.toml", &format!("{new}{changed}"));
    hang_up(&system);
    let listed = async || {
        let mut listed = Vec::new();
        for tool in alice.list().await.unwrap_or_default() {
            let name = tool["name"].as_str().unwrap_or_default();
            if ["old", "kept", "new"].contains(&name) {
                let description = tool["description"].as_str().unwrap_or_default();
                listed.push(format!("{name} {description}"));
            }
        }
        listed.sort();
        listed
    };
    let wanted = ["kept Another.", "new D."];
    wait::for_state("the new list", SOON, listed, |seen| *seen == wanted)
        .await
        .unwrap();
    assert!(alice.call("old", json!({})).await.is_err());
    folder.write("go", "");
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), "done", "{task}");

    folder.write("tools.toml", &format!("{kept}\n[defaults]\nttl = 3\n"));
    hang_up(&system);
    let worker = &system.cluster.workers[0];
    let reads = "mcp_tasks_worker_tools_file_reads_total";
    let refused = async || {
        let refused = worker.metric(reads, "result=\"refused\"").await;
        refused.unwrap_or_default()
    };
    wait::for_state("a refusal", SOON, refused, |count| *count == 1.0)
        .await
        .unwrap();
    assert_eq!(
        worker.metric(reads, "result=\"ok\"").await.unwrap(),
        2.0,
        "at the start, and once again"
    );
    let log = std::fs::read_to_string(worker.log()).unwrap();
    assert!(log.contains("defaults.ttl"), "the log says why");
    let id = alice.start("new", json!({})).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), "new");
}

fn run(arguments: &[&str]) -> Output {
    let command = Command::new(BINARY).args(arguments).output();
    command.unwrap()
}

/// What a file could mean otherwise than it says is told beside the verdict.
#[test]
fn a_check_tells_what_it_can_see() {
    let folder = Folder(Temp::new().unwrap());
    let checked = |text: &str, settings: &str| {
        folder.write("seen.toml", text);
        folder.write("settings.toml", settings);
        let (file, settings) = (folder.path("seen.toml"), folder.path("settings.toml"));
        let (file, settings) = (file.display().to_string(), settings.display().to_string());
        let output = run(&["check", &file, "--config", &settings]);
        let mut told = String::from_utf8_lossy(&output.stdout).into_owned();
        told.push_str(&String::from_utf8_lossy(&output.stderr));
        (output.status.success(), told)
    };
    let (good, told) = checked("", "");
    assert!(good && told.contains("declares no tools"), "{told}");

    let lacking = "[[upstream]]\nname = \"a\"\ncommand = [\"no-such-program\"]\n";
    let (good, told) = checked(lacking, "");
    assert!(!good && !told.contains(": good"), "{told}");
    assert!(
        told.contains("command: no-such-program is not on the PATH"),
        "{told}"
    );
    assert!(told.contains("mcp-tasks: 1 problem\n"), "{told}");

    let cut = "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"sh\"\ngrace = \"1m\"\n\
               policy = { inline_budget = \"50s\" }\n";
    let (good, told) = checked(
        cut,
        "[worker]\nstop_grace = \"5s\"\n[gateway]\ninline_budget = \"2s\"\ninline_budget_max = \"20s\"\n",
    );
    assert!(good && told.contains(": good"), "{told}");
    for note in [
        "5: command \"a\": grace: 1m is longer than worker.stop_grace (5s)",
        "6: command \"a\": policy.inline_budget: 50s is more than gateway.inline_budget_max (20s)",
    ] {
        assert!(told.contains(note), "{note}: {told}");
    }

    for (length, noted) in [(9, false), (10, false), (11, true)] {
        let named = cut.replace("\"a\"", &format!("\"{}\"", "a".repeat(length)));
        let settings = "[gateway.limits]\ntool_name_bytes_max = 10\n";
        let (good, told) = checked(&named, settings);
        assert!(good && told.contains(": good"), "{told}");
        assert_eq!(
            told.contains("tool_name_bytes_max"),
            noted,
            "{length}: {told}"
        );
        let note = "1: command \"aaaaaaaaaaa\": name: 11 bytes are more than \
                    gateway.limits.tool_name_bytes_max (10)";
        assert!(!noted || told.contains(note), "{told}");
    }
}

/// What a call does is shown with its policy, and what is not known of a server's tools is said.
#[test]
fn tools_show_tells_effects_and_upstreams() {
    let folder = Folder(Temp::new().unwrap());
    folder.write(
        "two.toml",
        "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"sh\"\neffects = \"none\"\n\
         [[upstream]]\nname = \"docs\"\nprefix = \"docs_\"\nurl = \"http://a/\"\n",
    );
    let file = folder.path("two.toml").display().to_string();
    let shown = |name: &str| -> Value {
        let output = run(&["tools", "show", name, "--tools", &file, "--output", "json"]);
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let effects = |shown: &Value| {
        let rows = shown["policy"].as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["policy"] == "effects");
        let row = rows.next().unwrap();
        (row["value"].clone(), row["from"].clone())
    };
    let own = shown("a");
    assert_eq!(effects(&own), (json!("none"), json!("tool")));
    assert_eq!(own["note"], Value::Null);
    let other = shown("docs_x");
    assert_eq!(effects(&other), (json!("by_hints"), json!("default")));
    assert!(
        other["note"]
            .as_str()
            .unwrap()
            .contains("is not known here")
    );

    let output = run(&["tools", "show", "nothing", "--tools", &file]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        told.contains("it has a, those of upstream \"docs\" (docs_…)"),
        "{told}"
    );
}

/// `check` says everything at once; `tools show` says where values come from; a worker does not
/// begin with a broken file.
#[test]
fn a_file_can_be_looked_at_before_it_is_served() {
    let folder = Folder::of_examples();
    let good = folder.path("tools.toml").display().to_string();
    let checked = run(&["check", &good]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("empty_folder, list_folder, release, wait"));

    let shown = run(&[
        "tools", "show", "wait", "--tools", &good, "--output", "json",
    ]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let row = |key: &str| {
        let rows = shown["policy"].as_array().unwrap();
        let row = rows.iter().find(|row| row["policy"] == key).unwrap();
        (row["value"].clone(), row["from"].clone())
    };
    assert_eq!(row("inline_budget"), (json!("2s"), json!("tool")));
    assert_eq!(row("work_limit"), (json!("1m"), json!("tool")));
    assert_eq!(row("tries_max"), (json!(5), json!("default")));
    let shown = run(&["tools", "show", "release", "--tools", &good]);
    let table = String::from_utf8_lossy(&shown.stdout).into_owned();
    let row = table.lines().find(|line| line.starts_with("work_limit"));
    let place = format!("{good}:4");
    assert!(
        row.is_some_and(|row| row.contains("defaults") && row.contains("10m")),
        "{table}"
    );
    assert!(place.len() > 60 || table.contains(&place), "{table}");
    assert!(
        !run(&["tools", "show", "nothing", "--tools", &good])
            .status
            .success()
    );

    folder.write(
        "bad.toml",
        "[defaults]\nwork = \"a\"\n[[command]]\nname = 3\n",
    );
    let bad = folder.path("bad.toml").display().to_string();
    let checked = run(&["check", &bad]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success());
    for place in [
        "2: defaults.work: ",
        "3: command[0]: program: ",
        "4: command[0]: name: ",
    ] {
        assert!(said.contains(&format!("{bad}:{place}")), "{place}: {said}");
    }
    for arguments in [&["worker", "--tools", &bad][..], &["dev", "--tools", &bad]] {
        let refused = Command::new(BINARY)
            .args(arguments)
            .current_dir(folder.0.path())
            .env("MCP_TASKS__ADMIN__LISTEN", "127.0.0.1:0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("defaults.work"),
            "{said}"
        );
    }
}
