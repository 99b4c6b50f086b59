//! Upstream servers of a running system: a program spoken to through its pipes, and what becomes
//! of its calls when workers, or it, die.

use std::path::{Path, PathBuf};

use harness::temp::Temp;
use serde_json::{Value, json};

use crate::support::{SOON, System, text};

/// A server of 2025-11-25 as a script: it notes its calls, and answers `slow` ones when a file
/// says so. Whoever calls `die` ends it.
const SERVER: &str = r#"
said() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    said '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
  *'"method":"tools/list"'*)
    if [ -e mute ]; then continue; fi
    said 'this is no message'
    said '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"act","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}}]}}' ;;
  *'"method":"tools/call"'*'"name":"die"'*)
    echo 'I was told to' >&2
    exit 3 ;;
  *'"method":"tools/call"'*)
    name=look; case $line in *'"name":"act"'*) name=act ;; esac
    echo $name >> calls
    said '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$id',"progress":1,"message":"at work"}}'
    (while ! [ -e go ]; do sleep 0.1; done
     said '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"done"}]}}') & ;;
  *'"id"'*)
    said '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
"#;

struct World {
    system: System,
    dir: Temp,
}

impl World {
    /// A worker whose tools file has the script's server, with keys of its own, and whatever else
    /// is said.
    async fn with(own: &str, more: &str) -> Self {
        let dir = Temp::new().unwrap();
        std::fs::write(dir.path().join("server.sh"), SERVER).unwrap();
        let file = dir.path().join("tools.toml");
        std::fs::write(&file, tools(dir.path(), own, more)).unwrap();
        let settings = format!(
            "[tools]\nfile = {:?}\n[worker]\ndrain_deadline = \"500ms\"\n",
            file.display()
        );
        let system = System::with(1, 1, &settings).await;
        let wanted = ["sh_look", "sh_act", "sh_die"];
        system.cluster.wait_for_tools(0, &wanted).await.unwrap();
        Self { system, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.file("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    async fn start(&self, tool: &str) -> String {
        let alice = self.system.cluster.client(0, "alice");
        alice.start(tool, json!({})).await.unwrap()
    }

    async fn until(&self, id: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let alice = self.system.cluster.client(0, "alice");
        let look = async || alice.get(id).await.unwrap();
        harness::wait::for_state(what, SOON, look, |task| is_so(task))
            .await
            .unwrap()
    }

    async fn at_work(&self, id: &str) {
        self.until(id, "work", |task| task["statusMessage"] == "at work")
            .await;
    }

    async fn ended(&self, id: &str) -> Value {
        self.until(id, "an end", |task| task["status"] != "working")
            .await
    }

    /// What `/readyz` answers once its body is so.
    async fn probe(&self, is_so: impl Fn(&str) -> bool) -> u16 {
        let url = format!("{}/readyz", self.system.cluster.workers[0].admin());
        let http = harness::http::Http::new(SOON);
        let look = async || {
            let answer = http.get(&url).await.unwrap();
            (
                answer.status,
                String::from_utf8_lossy(&answer.body).into_owned(),
            )
        };
        let good = |(_, body): &(u16, String)| is_so(body);
        harness::wait::for_state("a probe", SOON, look, good)
            .await
            .unwrap()
            .0
    }

    /// The processes of the server, which have its folder.
    fn alive(&self) -> usize {
        let dir = self.dir.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| {
                std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir)
            })
            .count()
    }
}

fn tools(dir: &Path, own: &str, more: &str) -> String {
    format!(
        "[defaults]\ninline_budget = \"0s\"\n[[upstream]]\nname = \"script\"\nprefix = \"sh_\"\n\
         command = [\"sh\", \"server.sh\"]\ndir = {:?}\n{own}\n{more}",
        dir.display()
    )
}

/// Its processes die with the worker; a read-only call is made again, any other is in doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_means_what_hints_say() {
    let mut world = World::with("", "").await;
    let (look, act) = (world.start("sh_look").await, world.start("sh_act").await);
    world.at_work(&look).await;
    world.at_work(&act).await;
    world.system.cluster.workers[0].kill9();
    harness::wait::for_state("nobody", SOON, async || world.alive(), |alive| *alive == 0)
        .await
        .unwrap();
    world.system.cluster.workers[0].start_again().unwrap();
    let ended = world.ended(&act).await;
    assert_eq!(ended["error"]["data"]["reason"], "step_in_doubt", "{ended}");
    std::fs::write(world.file("go"), "").unwrap();
    let ended = world.ended(&look).await;
    assert_eq!(text(&ended["result"]), "done", "{ended}");
    let mut calls = world.calls();
    calls.sort();
    assert_eq!(calls, ["act", "look", "look"]);
}

/// One that ends in the middle of a call leaves doubt, says why it ended, and is started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_is_started_again() {
    let world = World::with("", "").await;
    let id = world.start("sh_die").await;
    let ended = world.ended(&id).await;
    assert_eq!(ended["error"]["data"]["reason"], "step_in_doubt", "{ended}");
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("has ended in the middle of the call"),
        "{message}"
    );
    std::fs::write(world.file("go"), "").unwrap();
    let look = world.start("sh_look").await;
    assert_eq!(text(&world.ended(&look).await["result"]), "done");
}

/// What cannot be had is told by the probe, and costs nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_had_degrades_and_disturbs_nobody() {
    let more = "[[upstream]]\nname = \"gone\"\nprefix = \"gone_\"\n\
                command = [\"sh\", \"-c\", \"echo broken >&2; exit 7\"]\n";
    let world = World::with("", more).await;
    std::fs::write(world.file("go"), "").unwrap();
    let look = world.start("sh_look").await;
    assert_eq!(text(&world.ended(&look).await["result"]), "done");
    let said = r#"upstream \"gone\" has ended (exit status: 7): broken"#;
    let status = world.probe(|body| body.contains(said)).await;
    assert_eq!(status, 200);
}

/// Many servers do one thing at a time: one that does not answer meanwhile is not ended for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_keeps_its_call() {
    let world = World::with("refresh = \"300ms\"\ntimeout = \"3s\"", "").await;
    let look = world.start("sh_look").await;
    world.at_work(&look).await;
    std::fs::write(world.file("mute"), "").unwrap();
    world
        .probe(|body| body.contains("did not answer within 3s"))
        .await;
    std::fs::remove_file(world.file("mute")).unwrap();
    world.probe(|body| !body.contains("degraded")).await;
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(text(&world.ended(&look).await["result"]), "done");
    assert_eq!(world.calls(), ["look"]);
}
