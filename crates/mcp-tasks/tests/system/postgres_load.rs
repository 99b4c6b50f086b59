//! Clients that use everything at once and tolerate nothing, while something happens to Postgres;
//! and the ledger of what their tools did meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness::client::Client;
use harness::cluster::{Cluster, Plan};
use harness::redis::Redis;
use harness::temp::Temp;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{SOON, plan};

/// Gateways, workers and a cron that serve the chaos tools over a Postgres of the test's own.
pub struct World {
    pub cluster: Cluster,
    pub redis: Redis,
    pub ledger: Ledger,
    _temp: Temp,
}

impl World {
    /// So many gateways and workers over the database behind this URL, which is migrated.
    pub async fn start(url: &str, (gateways, workers): (usize, usize), settings: &str) -> World {
        World::start_with(url, settings, |plan| plan.of(gateways, workers, 1)).await
    }

    /// The same, with any change to the plan.
    pub async fn start_with(url: &str, settings: &str, change: impl FnOnce(Plan) -> Plan) -> World {
        let redis = Redis::temporary().await.unwrap();
        let temp = Temp::new().unwrap();
        let ledger = Ledger(temp.path().join("ledger.jsonl"));
        let served = format!("[tools]\nfixtures = \"chaos\"\nledger = {:?}\n", ledger.0);
        let planned = plan(url, &redis.url()).settings(&served).settings(settings);
        let cluster = change(planned).start().await.unwrap();
        let world = World {
            cluster,
            redis,
            ledger,
            _temp: temp,
        };
        if !world.cluster.workers.is_empty() {
            world.serves().await;
        }
        world
    }

    /// Waits until every gateway lists the tools.
    pub async fn serves(&self) {
        let tools = ["chaos_steps", "chaos_ask", "chaos_quick"];
        for gateway in 0..self.cluster.gateways.len() {
            self.cluster.wait_for_tools(gateway, &tools).await.unwrap();
        }
    }

    /// Every process by name and number: the same again later means that none was restarted.
    pub fn processes(&mut self) -> Vec<(String, Option<u32>)> {
        let nodes = self.cluster.nodes();
        nodes
            .map(|node| {
                let running = node.ended().is_none();
                (node.name().to_owned(), node.pid().filter(|_| running))
            })
            .collect()
    }
}

/// The file that the chaos tools append their acts to.
#[derive(Clone)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// All acts so far, in order.
    pub fn acts(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// How often each step of the call of this name acted.
    pub fn of(&self, call: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for act in self.acts().iter().filter(|act| act["call"] == call) {
            let step = act["step"].as_str().unwrap().to_owned();
            *counts.entry(step).or_default() += 1;
        }
        counts
    }

    /// How many acts lie between these times of [`now_us`].
    pub fn between(&self, from: u64, to: u64) -> usize {
        let at = |act: &Value| act["at_us"].as_u64().unwrap();
        let acts = self.acts();
        acts.iter()
            .filter(|act| (from..to).contains(&at(act)))
            .count()
    }
}

/// The clock of the ledger.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000).unwrap()
}

/// A step of a chaos tool, half its time before the act.
pub fn step(key: &str, ms: u64) -> Value {
    json!({"step": {"key": key, "idempotent": true, "before_ms": ms / 2, "after_ms": ms / 2}})
}

/// The answer to a question of a chaos tool.
pub fn accept(value: &str) -> Value {
    json!({"action": "accept", "content": {"value": value}})
}

/// What the tool told in its result.
pub fn told(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub what: &'static str,
    pub at: Instant,
    pub answered: Instant,
}

/// What a kind of client does, again and again, each time to the end.
type Flow = &'static str;
const FLOWS: [Flow; 6] = ["steps", "asks", "cancels", "inline", "listens", "keyed"];

/// Running clients.
pub struct Load {
    clients: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    urls: Vec<String>,
    asked: Mutex<Vec<Asked>>,
    errors: Mutex<Vec<String>>,
    ended: Mutex<HashMap<Flow, usize>>,
    numbers: AtomicUsize,
    stop: CancellationToken,
}

/// What the clients saw.
#[derive(Debug)]
pub struct Report {
    pub asked: Vec<Asked>,
    pub errors: Vec<String>,
    pub ended: HashMap<Flow, usize>,
}

impl Load {
    /// So many clients of each kind, at all gateways.
    pub fn start(cluster: &Cluster, each: usize) -> Load {
        let shared = Arc::new(Shared {
            urls: cluster.gateways.iter().map(|node| node.url()).collect(),
            asked: Mutex::default(),
            errors: Mutex::default(),
            ended: Mutex::default(),
            numbers: AtomicUsize::new(0),
            stop: CancellationToken::new(),
        });
        let mut clients = JoinSet::new();
        for number in 0..each {
            for flow in FLOWS {
                clients.spawn(client(Arc::clone(&shared), flow, number));
            }
        }
        Load { clients, shared }
    }

    /// Waits until every kind has come to an end once more.
    pub async fn once_more(&self) {
        let before = self.shared.ended.lock().unwrap().clone();
        let more = |flow: &Flow| {
            let now = self.shared.ended.lock().unwrap();
            now.get(flow) > before.get(flow)
        };
        let all = async || (FLOWS.iter().all(more) || self.has_errors()).then_some(());
        let waited = harness::wait::until("every kind of client came to an end", SOON, all).await;
        assert!(waited.is_ok(), "ended: {:?}", self.shared.ended.lock());
    }

    fn has_errors(&self) -> bool {
        !self.shared.errors.lock().unwrap().is_empty()
    }

    /// Lets all come to their end.
    pub async fn finish(mut self) -> Report {
        self.shared.stop.cancel();
        let ended = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(SOON, ended)
            .await
            .expect("every client comes to its end");
        let shared = &self.shared;
        Report {
            asked: shared.asked.lock().unwrap().clone(),
            errors: shared.errors.lock().unwrap().clone(),
            ended: shared.ended.lock().unwrap().clone(),
        }
    }
}

impl Report {
    /// Nobody saw an error, and every kind of client came to an end.
    pub fn assert_nothing_seen(&self) {
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
        for flow in FLOWS {
            assert!(self.ended.contains_key(flow), "{flow}: {:?}", self.ended);
        }
    }

    /// How long the requests that waited at `moment` went on waiting, the longest of each kind.
    pub fn waited_after(&self, moment: Instant) -> BTreeMap<&'static str, Duration> {
        let mut longest = BTreeMap::new();
        for asked in &self.asked {
            if asked.at < moment && asked.answered > moment {
                let waited = asked.answered - moment;
                let longest = longest.entry(asked.what).or_insert(waited);
                *longest = waited.max(*longest);
            }
        }
        longest
    }
}

async fn client(shared: Arc<Shared>, flow: Flow, number: usize) {
    let name = format!("{flow}-{number}");
    while !shared.stop.is_cancelled() {
        let turn = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let session = Session {
            shared: &shared,
            call: format!("{flow}-{turn}"),
            name: name.clone(),
        };
        let done = match flow {
            "steps" => session.steps().await,
            "asks" => session.asks().await,
            "cancels" => session.cancels().await,
            "inline" => session.inline().await,
            "listens" => session.listens().await,
            _ => Box::pin(session.keyed()).await,
        };
        match done {
            Ok(()) => *shared.ended.lock().unwrap().entry(flow).or_default() += 1,
            Err(error) => {
                let error = format!("{}: {error}", session.call);
                shared.errors.lock().unwrap().push(error);
                return;
            }
        }
    }
}

/// One turn of one client.
struct Session<'a> {
    shared: &'a Shared,
    call: String,
    name: String,
}

type Done<T = ()> = Result<T, String>;

impl Session<'_> {
    /// The same caller at another gateway every time.
    fn client(&self) -> Client {
        let turn = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let url = &self.shared.urls[turn % self.shared.urls.len()];
        Client::new(url).bearer(&self.name)
    }

    async fn ask<T>(
        &self,
        what: &'static str,
        asking: impl Future<Output = harness::Result<T>>,
    ) -> Done<T> {
        let at = Instant::now();
        let answer = asking.await;
        let answered = Instant::now();
        let asked = Asked { what, at, answered };
        self.shared.asked.lock().unwrap().push(asked);
        let took = answered - at;
        answer.map_err(|error| format!("{what} after {took:?}: {error}"))
    }

    async fn start(&self, tool: &'static str, items: Value) -> Done<String> {
        let arguments = json!({"call": self.call, "items": items});
        self.ask("tools/call", self.client().start(tool, arguments))
            .await
    }

    async fn read(&self, id: &str) -> Done<Value> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.ask("tasks/get", self.client().get(id)).await
    }

    /// Reads until the task has one of these statuses.
    async fn until(&self, id: &str, statuses: &[&str]) -> Done<Value> {
        loop {
            let task = self.read(id).await?;
            let status = task["status"].as_str().unwrap_or_default();
            if statuses.contains(&status) {
                return Ok(task);
            }
            if ["completed", "failed", "cancelled"].contains(&status) {
                return Err(format!("{statuses:?} became {task}"));
            }
        }
    }

    fn is_mine(&self, result: &Value) -> Done {
        let told = told(result);
        let mine = told["call"] == self.call.as_str();
        mine.then_some(())
            .ok_or_else(|| format!("the result of something else: {result}"))
    }

    async fn steps(&self) -> Done {
        let items = json!([step("one", 100), {"pause": 50}, step("two", 100)]);
        let id = self.start("chaos_steps", items).await?;
        let task = self.until(&id, &["completed"]).await?;
        self.is_mine(&task["result"])
    }

    async fn asks(&self) -> Done {
        let items = json!([{"ask": [{"key": "q"}]}]);
        let id = self.start("chaos_ask", items).await?;
        self.until(&id, &["input_required"]).await?;
        let answers = json!({"q": accept(&self.call)});
        let update = self.client();
        self.ask("tasks/update", update.update(&id, answers))
            .await?;
        let task = self.until(&id, &["completed"]).await?;
        let told = told(&task["result"]);
        if told["answers"]["q"] != self.call.as_str() {
            return Err(format!("an acknowledged answer was lost: {task}"));
        }
        self.is_mine(&task["result"])
    }

    async fn cancels(&self) -> Done {
        let arguments = json!({"call": self.call, "end": "wait"});
        let starting = self.client();
        let starting = starting.start("chaos_steps", arguments);
        let id = self.ask("tools/call", starting).await?;
        self.read(&id).await?;
        let cancel = self.client();
        self.ask("tasks/cancel", cancel.cancel(&id)).await?;
        self.until(&id, &["cancelled"]).await.map(drop)
    }

    /// Held open until there is a result.
    async fn inline(&self) -> Done {
        let client = self.client().undeclared();
        let arguments = json!({"call": self.call, "items": [step("one", 200)]});
        let called = client.call("chaos_quick", arguments);
        let result = self.ask("tools/call inline", called).await?;
        self.is_mine(&result)
    }

    async fn listens(&self) -> Done {
        let items = json!([step("one", 100), {"pause": 200}]);
        let id = self.start("chaos_steps", items).await?;
        let client = self.client();
        let listening = client.listen(json!({"taskIds": [id]}));
        let mut stream = self.ask("subscriptions/listen", listening).await?;
        loop {
            let message = stream.next(SOON).await.map_err(|error| error.to_string())?;
            let message = message.ok_or("the stream ended")?;
            if message["params"]["status"] == "completed" {
                return self.is_mine(&message["params"]["result"]);
            }
            if message["error"].is_object() || message["params"]["status"] == "failed" {
                return Err(message.to_string());
            }
        }
    }

    /// Two calls with one key at two gateways.
    async fn keyed(&self) -> Done {
        let arguments = json!({"call": self.call, "items": [step("one", 50)]});
        let params = crate::support::keyed("chaos_steps", arguments, &self.call);
        let call = async || {
            let client = self.client();
            let sent = async { client.request("tools/call", params.clone()).send().await };
            let called = async { sent.await?.into_result() };
            self.ask("tools/call", called).await
        };
        let (one, other) = tokio::join!(call(), call());
        // The later one may meet the result.
        let id = |result: &Value| match result["taskId"].as_str() {
            Some(id) => id.to_owned(),
            None => told(result)["task"].as_str().unwrap_or_default().to_owned(),
        };
        let (one, other) = (id(&one?), id(&other?));
        if one != other || one.is_empty() {
            return Err(format!("one key, two tasks: {one} {other}"));
        }
        self.until(&one, &["completed"]).await.map(drop)
    }
}
