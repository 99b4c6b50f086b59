//! Services that answer later: tasks that wait for them hold nothing, one call wins, and no death of
//! ours loses what they say.

use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use harness::cluster::Cluster;
use harness::config::Role;
use harness::http::Http;
use harness::temp::Temp;
use harness::wait;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::{SOON, System, over_own_postgres_with, set, text};

/// The first signs.
const KEYS: &str = "[callbacks]\n\
    keys = [\"1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100\"]\n";

/// A request that came to the service.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub path: String,
    key: String,
    /// Where to call.
    pub url: String,
    /// All of it, as it came.
    pub whole: String,
}

impl Seen {
    /// The value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.whole.lines().take_while(|line| !line.is_empty());
        let mut lines = lines.filter_map(|line| line.split_once(": "));
        let found = lines.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Its body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        let body = self
            .whole
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_default()
    }
}

/// What a service says to a request: status and body; nothing where it answers like all others.
type Says = dyn Fn(&Seen) -> Option<(u16, String)> + Send + Sync;

/// A service that notes what it is asked, and answers with a status, or never with none.
pub struct Service {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    status: Arc<Mutex<Option<u16>>>,
    /// Connections that are not answered are closed by it.
    closing: Arc<Notify>,
    _running: JoinSet<()>,
}

impl Service {
    pub async fn start() -> Self {
        Self::saying(|_| None).await
    }

    /// The same, which has something to say.
    pub async fn saying(
        says: impl Fn(&Seen) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let says: Arc<Says> = Arc::new(says);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let status = Arc::new(Mutex::new(Some(202)));
        let closing = Arc::new(Notify::new());
        let (all, how, close) = (Arc::clone(&seen), Arc::clone(&status), Arc::clone(&closing));
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (close, says) = (Arc::clone(&close), Arc::clone(&says));
                let (all, how) = (Arc::clone(&all), Arc::clone(&how));
                connections.spawn(answer(stream, all, (how, says), close));
            }
        });
        Self {
            url,
            seen,
            status,
            closing,
            _running: running,
        }
    }

    fn answers(&self, status: Option<u16>) {
        *self.status.lock().unwrap() = status;
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The request of this number, from 0, once it has come.
    pub async fn request(&self, number: usize) -> Seen {
        let look = async || self.seen();
        let seen = wait::for_state("a request", SOON, look, |seen| seen.len() > number);
        seen.await.unwrap()[number].clone()
    }
}

async fn answer(
    mut stream: TcpStream,
    all: Arc<Mutex<Vec<Seen>>>,
    (how, says): (Arc<Mutex<Option<u16>>>, Arc<Says>),
    closing: Arc<Notify>,
) {
    let mut bytes = Vec::new();
    loop {
        let mut more = [0; 4096];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&more[..read]),
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let header = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = lines.filter(|(n, _)| n.eq_ignore_ascii_case(name));
            found
                .next()
                .map_or(String::new(), |(_, value)| value.to_owned())
        };
        if body.len() < header("content-length").parse().unwrap_or(0) {
            continue;
        }
        let seen = Seen {
            path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
            key: header("idempotency-key"),
            url: header("mcp-tasks-callback-url"),
            whole: text.clone(),
        };
        all.lock().unwrap().push(seen.clone());
        let status = *how.lock().unwrap();
        let said = says(&seen).or_else(|| status.map(|status| (status, String::new())));
        let Some((status, body)) = said else {
            // Until one of both goes.
            tokio::select! {
                _ = stream.read(&mut more) => {}
                () = closing.notified() => {}
            }
            return;
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        bytes.clear();
    }
}

/// A tools file with one tool for each of these names and its own keys.
fn tools(dir: &Temp, service: &str, tools: &[(&str, &str)]) -> String {
    let sections: Vec<String> = tools
        .iter()
        .map(|(name, more)| {
            format!(
                "[[http]]\nname = \"{name}\"\ndescription = \"D.\"\nurl = \"{service}/{name}\"\n{more}\n\
                 [http.policy]\ninline_budget = \"0s\"\nbackoff = {{ first = \"100ms\", max = \"1s\" }}\n"
            )
        })
        .collect();
    let file = dir.path().join("tools.toml");
    std::fs::write(&file, sections.join("\n")).unwrap();
    format!(
        "[tools]\nfile = {:?}\n[worker]\nslots = 1\ndrain_deadline = \"500ms\"\nstop_grace = \"1s\"\n\
         {KEYS}public_url = \"http://callbacks.example\"\n",
        file.display()
    )
}

async fn system(service: &Service, gateways: usize, names: &[(&str, &str)]) -> (System, Temp) {
    let dir = Temp::new().unwrap();
    let settings = tools(&dir, &service.url, names);
    let system = System::with(gateways, 1, &settings).await;
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    for gateway in 0..gateways {
        system
            .cluster
            .wait_for_tools(gateway, &names)
            .await
            .unwrap();
    }
    (system, dir)
}

/// Where the gateway of this number answers for an address.
fn at(cluster: &Cluster, gateway: usize, url: &str) -> String {
    let token = url.strip_prefix("http://callbacks.example").unwrap();
    cluster.gateways[gateway].url().replace("/mcp", token)
}

pub async fn post(url: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let request = Request::post(url).header("content-type", "application/json");
    send(request.body(Full::new(body.into())).unwrap()).await
}

async fn send(request: Request<Full<Bytes>>) -> (u16, Value) {
    let reply = Http::new(SOON).send(request).await.unwrap();
    let body = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status, body)
}

/// Waits until the task has no worker any more and waits for its service.
async fn waits(system: &System, id: &str) {
    let sql = format!(
        "SELECT count(*) FROM tasks t JOIN callbacks c ON c.task_id = t.id \
         WHERE t.id = '{id}' AND t.phase = 'queued' AND c.waiting_since IS NOT NULL"
    );
    let look = async || system.count(&sql).await;
    wait::for_state("it waits", SOON, look, |count| *count == 1)
        .await
        .unwrap();
}

const LATER: &str = "callback_wait = \"1h\"\neffects = \"repeatable\"";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_calls_first_wins_on_any_gateway() {
    let service = Service::start().await;
    let (system, _dir) = system(&service, 3, &[("job", LATER)]).await;
    let (alice, cluster) = (system.cluster.client(0, "alice"), &system.cluster);
    let id = alice.start("job", json!({})).await.unwrap();
    let url = service.request(0).await.url;
    waits(&system, &id).await;
    // The one slot is free meanwhile.
    let other = alice.call("build_report", json!({})).await.unwrap();
    assert_ne!(other["resultType"], "error", "{other}");

    // Nobody learns anything without an address of ours.
    let place = at(cluster, 1, &url);
    for forged in [
        format!("{}A", &place[..place.len() - 1]),
        format!("{place}A"),
        cluster.gateways[1].url().replace("/mcp", "/callbacks/"),
        cluster.gateways[1]
            .url()
            .replace("/mcp", &format!("/callbacks/{id}")),
    ] {
        let (status, said) = post(&forged, "{\"text\":\"forged\"}").await;
        assert_eq!(
            (status, said),
            (404, json!({"error": "there is no such address"}))
        );
    }
    // What cannot be read uses nothing up.
    for (body, status) in [
        (Bytes::from_static(b""), 400),
        (Bytes::from_static(b"[]"), 400),
        (Bytes::from_static(b"{\"text\":"), 400),
        (Bytes::from_static(b"{\"result\":1}"), 400),
        (Bytes::from_static(b"\xff"), 400),
        (
            Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(1024 * 1024))),
            413,
        ),
    ] {
        assert_eq!(post(&place, body).await.0, status);
    }
    let typed = Request::post(&place).header("content-type", "text/plain");
    assert_eq!(
        send(typed.body(Full::from("{\"text\":\"a\"}")).unwrap())
            .await
            .0,
        415
    );
    assert_eq!(
        send(Request::get(&place).body(Full::default()).unwrap())
            .await
            .0,
        405
    );

    let told = post(
        &place,
        "{\"progress\":1,\"total\":2,\"message\":\"half way\"}",
    )
    .await;
    assert_eq!(told.0, 202, "{told:?}");
    let half = alice.wait(&id, SOON, |task| task["statusMessage"] == "half way");
    assert_eq!(half.await.unwrap()["status"], "working");

    let mut calls = JoinSet::new();
    for n in 0..20 {
        let url = at(cluster, n % 3, &url);
        calls.spawn(async move { (n, post(&url, format!("{{\"text\":\"{n}\"}}")).await) });
    }
    let all = calls.join_all().await;
    let won: Vec<_> = all
        .iter()
        .filter(|(_, (status, _))| *status == 200)
        .collect();
    assert_eq!(won.len(), 1, "{all:?}");
    assert!(
        all.iter()
            .all(|(_, (status, _))| [200, 409].contains(status)),
        "{all:?}"
    );
    let winner = won[0].0;
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), winner.to_string(), "{task}");
    // The same again is a repeat, for as long as the task is known.
    let again = post(&at(cluster, 2, &url), format!("{{\"text\":\"{winner}\"}}")).await;
    assert_eq!(again, (200, json!({"status": "kept before"})));
    assert_eq!(post(&place, "{\"text\":\"other\"}").await.0, 409);
    assert_eq!(post(&place, "{\"progress\":1}").await.0, 410);
    assert_eq!(service.seen().len(), 1);
    let counted = cluster.gateways[1]
        .metric("mcp_tasks_gateway_callbacks_total", "result=\"unknown\"")
        .await;
    assert_eq!(counted.unwrap(), 4.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_says_decides_and_silence_ends_the_wait() {
    let service = Service::start().await;
    let promised = format!("{LATER}\noutput_schema = {{ type = \"object\", required = [\"n\"] }}");
    let short = "callback_wait = \"1s\"\neffects = \"repeatable\"";
    let names = [
        ("job", LATER),
        ("promised", promised.as_str()),
        ("short", short),
    ];
    let (system, _dir) = system(&service, 1, &names).await;
    let (alice, cluster) = (system.cluster.client(0, "alice"), &system.cluster);
    let mut number = 0;
    for (tool, body, status, shown) in [
        (
            "job",
            json!({"text": "no", "isError": true}),
            "completed",
            "no",
        ),
        (
            "job",
            json!({"structured": {"a": 1}}),
            "completed",
            "{\"a\":1}",
        ),
        (
            "job",
            json!({"content": [{"type": "text", "text": "c"}]}),
            "completed",
            "c",
        ),
        (
            "promised",
            json!({"structured": {"n": 1}, "text": "one"}),
            "completed",
            "one",
        ),
        (
            "promised",
            json!({"structured": {"m": 1}}),
            "failed",
            "outputSchema",
        ),
        (
            "promised",
            json!({"text": "no structure"}),
            "failed",
            "outputSchema",
        ),
        (
            "promised",
            json!({"text": "it broke", "isError": true}),
            "completed",
            "it broke",
        ),
    ] {
        let id = alice.start(tool, json!({})).await.unwrap();
        let url = at(cluster, 0, &service.request(number).await.url);
        number += 1;
        assert_eq!(post(&url, body.to_string()).await.0, 200, "{body}");
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], status, "{task}");
        assert!(
            task.to_string().contains(&shown.replace('"', "\\\"")),
            "{task}"
        );
    }
    let id = alice.start("short", json!({})).await.unwrap();
    let url = at(cluster, 0, &service.request(number).await.url);
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(
        task["error"]["data"]["reason"], "callback_overdue",
        "{task}"
    );
    assert!(
        task["error"]["message"]
            .as_str()
            .unwrap()
            .contains("within 1s"),
        "{task}"
    );
    assert_eq!(post(&url, "{\"text\":\"late\"}").await.0, 410);
    let after = alice.get(&id).await.unwrap();
    assert_eq!(after["error"], task["error"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_wait_by_what_the_service_may_still_do() {
    let service = Service::start().await;
    let told = format!(
        "{LATER}\ncancel_url = \"{}/cancel?of={{idempotency_key}}\"",
        service.url
    );
    let homeless = told.replace("idempotency_key", "principal_tenant");
    let names = [
        ("reads", "callback_wait = \"1h\"\neffects = \"none\""),
        ("acts", "callback_wait = \"1h\"\neffects = \"once\""),
        ("told", &told),
        ("homeless", &homeless),
    ];
    let (system, _dir) = system(&service, 1, &names).await;
    let (alice, cluster) = (system.cluster.client(0, "alice"), &system.cluster);
    for (number, (tool, status, reason)) in [
        ("reads", "cancelled", Value::Null),
        ("acts", "failed", json!("step_in_doubt")),
        ("told", "cancelled", Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let id = alice.start(tool, json!({})).await.unwrap();
        let seen = service.request(number).await;
        waits(&system, &id).await;
        alice.cancel(&id).await.unwrap();
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], status, "{tool}: {task}");
        assert_eq!(task["error"]["data"]["reason"], reason, "{tool}: {task}");
        let late = post(&at(cluster, 0, &seen.url), "{\"text\":\"late\"}").await;
        assert_eq!(late.0, 410, "{late:?}");
        assert_eq!(alice.get(&id).await.unwrap()["status"], status);
        if tool == "told" {
            let cancel = service.request(number + 1).await;
            let key = seen.key.replace(':', "%3A");
            assert_eq!(cancel.path, format!("/cancel?of={key}"));
        }
    }
    // One that could not be told to stop, because its caller has no tenant, is not told to begin.
    let before = service.seen().len();
    let id = alice.start("homeless", json!({})).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert!(
        task.to_string().contains("{principal_tenant}: is needed"),
        "{task}"
    );
    assert_eq!(service.seen().len(), before);
}

/// kill -9 of the worker between its request and what it would have written of the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_its_request_loses_nothing() {
    let service = Service::start().await;
    let once = "callback_wait = \"1h\"\neffects = \"once\"";
    let (mut system, _dir) = system(&service, 1, &[("again", LATER), ("once", once)]).await;
    let alice = system.cluster.client(0, "alice");

    service.answers(None);
    let id = alice.start("again", json!({})).await.unwrap();
    let first = service.request(0).await;
    system.cluster.workers[0].kill9();
    service.answers(Some(202));
    system.cluster.add(Role::Worker).unwrap();
    let second = service.request(1).await;
    let of = |seen: &Seen| (seen.path.clone(), seen.key.clone(), seen.url.clone());
    assert_eq!(
        of(&second),
        of(&first),
        "the same key, and the same address"
    );
    assert_eq!(
        post(&at(&system.cluster, 0, &first.url), "{\"text\":\"a\"}")
            .await
            .0,
        200
    );
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), "a", "{task}");

    // The service calls before anybody has noticed: that proves what it was asked for.
    service.answers(None);
    let id = alice.start("once", json!({})).await.unwrap();
    let seen = service.request(2).await;
    system.cluster.workers[1].kill9();
    assert_eq!(
        post(&at(&system.cluster, 0, &seen.url), "{\"text\":\"b\"}")
            .await
            .0,
        200
    );
    system.cluster.add(Role::Worker).unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), "b", "{task}");
    assert_eq!(service.seen().len(), 3, "nobody asked again");

    // It has called back, and its answer never comes.
    let id = alice.start("once", json!({})).await.unwrap();
    let seen = service.request(3).await;
    assert_eq!(
        post(&at(&system.cluster, 0, &seen.url), "{\"text\":\"c\"}")
            .await
            .0,
        200
    );
    service.closing.notify_one();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(text(&task["result"]), "c", "{task}");
    assert_eq!(service.seen().len(), 4);
}

/// Both servers are killed while a task waits; what is said before and after is kept.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_of_postgres_and_redis_lose_nothing() {
    let service = Service::start().await;
    let dir = Temp::new().unwrap();
    let settings = tools(&dir, &service.url, &[("job", LATER)]);
    let (cluster, mut postgres, mut redis) = over_own_postgres_with(2, 1, &settings).await;
    cluster.wait_for_tools(0, &["job"]).await.unwrap();
    let alice = cluster.client(0, "alice");
    let mut ids = Vec::new();
    for number in 0..2 {
        ids.push(alice.start("job", json!({})).await.unwrap());
        service.request(number).await;
    }
    let taken_on = |task: &Value| task["statusMessage"] == "the service has taken the work on";
    for id in &ids {
        alice.wait(id, SOON, taken_on).await.unwrap();
    }
    let seen = service.seen();
    let url = |number: usize| at(&cluster, 1, &seen[number].url);
    redis.kill9();
    assert_eq!(
        post(&url(0), "{\"text\":\"0\"}").await.0,
        200,
        "without Redis"
    );
    redis.start_again().await.unwrap();
    redis.flush().await.unwrap();
    postgres.kill9().await;
    postgres.start_again().await.unwrap();
    let kept = async || post(&url(1), "{\"text\":\"1\"}").await.0;
    wait::for_state("it is kept", SOON, kept, |status| *status == 200)
        .await
        .unwrap();
    for id in &ids {
        let task = alice.wait_end(id, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
    }
    assert_eq!(service.seen().len(), 2);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example of the documentation, as it is but for its port.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_answers_later_and_is_told_of_a_cancel() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    let port = harness::ports::free().unwrap();
    let service = Command::new("python3")
        .arg(format!("{examples}/render_service.py"))
        .arg(port.to_string())
        .spawn()
        .unwrap();
    let _service = Killed(service);
    let dir = Temp::new().unwrap();
    let file = std::fs::read_to_string(format!("{examples}/http.toml")).unwrap();
    let file = file.replace("8088", &port.to_string());
    let path = dir.path().join("http.toml");
    std::fs::write(&path, file).unwrap();
    let settings = format!(
        "[tools]\nfile = {:?}\n[worker]\nslots = 1\n{KEYS}",
        path.display()
    );
    let mut system = System::with(1, 0, &settings).await;
    let public = system.cluster.gateways[0].url().replace("/mcp", "");
    let worker = system.cluster.add(Role::Worker).unwrap();
    worker.kill9();
    set(worker, &format!("[callbacks]\npublic_url = \"{public}\""));
    worker.restart().await.unwrap();
    let names = ["render", "renders"];
    system.cluster.wait_for_tools(0, &names).await.unwrap();
    let alice = system.cluster.client(0, "alice");
    let look = async || alice.call("renders", json!({})).await.unwrap();
    wait::for_state("the service", SOON, look, |listed| {
        listed["structuredContent"] == json!({})
    })
    .await
    .unwrap();

    let short = json!({"scene": "a/b c", "seconds": 0.2});
    let id = alice.start("render", short).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(
        task["result"]["structuredContent"],
        json!({"frames": 2}),
        "{task}"
    );

    let long = json!({"scene": "long", "seconds": 3600});
    let id = alice.start("render", long).await.unwrap();
    let rendering = |task: &Value| task["statusMessage"] == "rendering long";
    alice.wait(&id, SOON, rendering).await.unwrap();
    let listed = look().await;
    assert!(listed.to_string().contains("long"), "{listed}");
    let shown = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
        .args(["tasks", "show", &id])
        .env("MCP_TASKS__POSTGRES__URL", system.database.url())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("waits_for"), "{shown}");
    assert!(shown.contains("callback due"), "{shown}");
    alice.cancel(&id).await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["status"], "cancelled", "{task}");
    let gone = |listed: &Value| !listed.to_string().contains("long");
    wait::for_state("it is told", Duration::from_secs(20), look, gone)
        .await
        .unwrap();
}
