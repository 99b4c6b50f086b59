//! Clients that do all there is to do, one thing after another, and take no error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::front::Front;
use crate::support::{SOON, keyed};

const POLL: Duration = Duration::from_millis(100);

/// A problem, in words.
type Outcome = Result<(), String>;

/// What all clients saw.
#[derive(Default)]
struct Seen {
    done: Mutex<BTreeMap<&'static str, u64>>,
    problems: Mutex<Vec<String>>,
}

impl Seen {
    fn note(&self, what: &'static str, outcome: Outcome) {
        match outcome {
            Ok(()) => *self.done.lock().unwrap().entry(what).or_default() += 1,
            Err(problem) => self
                .problems
                .lock()
                .unwrap()
                .push(format!("{what}: {problem}")),
        }
    }

    fn count(&self) -> u64 {
        self.done.lock().unwrap().values().sum()
    }

    fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap().clone()
    }
}

/// A task that waits for a person.
pub struct Parked {
    id: String,
    tool: &'static str,
}

/// Clients at work.
pub struct Load {
    person: Person,
    seen: Arc<Seen>,
    end: CancellationToken,
    clients: JoinSet<()>,
    resumed: Mutex<JoinSet<()>>,
}

impl Load {
    /// So many clients, each a principal of its own.
    pub fn start(front: &Arc<Front>, clients: usize) -> Load {
        let seen = Arc::new(Seen::default());
        let end = CancellationToken::new();
        let mut running = JoinSet::new();
        for number in 0..clients {
            let (seen, end) = (Arc::clone(&seen), end.clone());
            let person = Person::new(front, format!("client-{number}"));
            running.spawn(async move {
                let mut turn = number;
                while !end.is_cancelled() {
                    let (what, outcome) = person.act(turn).await;
                    seen.note(what, outcome);
                    turn += 1;
                }
            });
        }
        Load {
            person: Person::new(front, "owner-of-parked-tasks".to_owned()),
            seen,
            end,
            clients: running,
            resumed: Mutex::default(),
        }
    }

    /// Until so many more things went well.
    pub async fn warm(&self, more: u64) {
        let wanted = self.seen.count() + more;
        let enough = async || {
            let bad = !self.seen.problems().is_empty();
            (bad || self.seen.count() >= wanted).then_some(())
        };
        harness::wait::until("things go well", SOON, enough)
            .await
            .unwrap();
    }

    /// Starts tasks, every other one with a journal, and waits until they ask.
    pub async fn park(&self, tasks: usize) -> Vec<Parked> {
        let tools = ["confirm_delete", "run_suite"].into_iter().cycle();
        let parked = join_all(tools.take(tasks).map(|tool| self.person.park(tool))).await;
        let parked: Result<Vec<_>, _> = parked.into_iter().collect();
        parked.unwrap_or_else(|problem| {
            self.seen.note("park", Err(problem));
            Vec::new()
        })
    }

    /// Answers them; that they end well is seen by the end.
    pub async fn resume(&self, parked: Vec<Parked>) {
        for task in parked {
            let (person, seen) = (self.person.clone(), Arc::clone(&self.seen));
            let resumed = async move { seen.note("resume", person.resume(&task).await) };
            self.resumed.lock().unwrap().spawn(resumed);
        }
        tokio::task::yield_now().await;
    }

    /// Lets everything end, and says how much there was.
    ///
    /// # Panics
    /// If anything was not as it should be.
    pub async fn end(self) -> String {
        self.end.cancel();
        self.clients.join_all().await;
        let resumed = std::mem::take(&mut *self.resumed.lock().unwrap());
        resumed.join_all().await;
        let problems = self.seen.problems();
        let all = problems.len();
        assert!(
            problems.is_empty(),
            "{all} problems, the first of them:\n  {}",
            problems[..all.min(10)].join("\n  ")
        );
        format!("{:?}, no problem", self.seen.done.lock().unwrap())
    }
}

/// Somebody with several devices: every request goes wherever the balancer says.
#[derive(Clone)]
struct Person {
    front: Arc<Front>,
    name: String,
}

impl Person {
    fn new(front: &Arc<Front>, name: String) -> Person {
        Person {
            front: Arc::clone(front),
            name,
        }
    }

    async fn act(&self, turn: usize) -> (&'static str, Outcome) {
        match turn % 7 {
            0 => ("work", self.work(turn).await),
            1 => ("ask", self.ask().await),
            2 => ("cancel", self.cancel(turn).await),
            3 => ("repeat", self.repeat(turn).await),
            4 => ("inline", self.inline(turn).await),
            5 => ("two devices", self.two_devices().await),
            _ => ("listen", self.listen().await),
        }
    }

    async fn start(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let started = self.front.client(&self.name).start(tool, arguments).await;
        started.map_err(|error| format!("{tool}: {error}"))
    }

    /// Reads the task until it has this status; another end is a problem.
    async fn status(&self, id: &str, wanted: &str) -> Result<Value, String> {
        let begun = Instant::now();
        loop {
            let task = self.front.client(&self.name).get(id).await;
            let task = task.map_err(|error| format!("tasks/get {id}: {error}"))?;
            if task["status"] == wanted {
                return Ok(task);
            }
            let over = ["completed", "failed", "cancelled"];
            if over.iter().any(|status| task["status"] == *status) {
                return Err(format!("not {wanted}: {task}"));
            }
            if begun.elapsed() > SOON {
                return Err(format!("not {wanted} in time: {task}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn said(&self, id: &str) -> Result<String, String> {
        let task = self.status(id, "completed").await?;
        Ok(task["result"]["content"][0]["text"].to_string())
    }

    async fn answer(&self, id: &str, answers: Value) -> Outcome {
        let updated = self.front.client(&self.name).update(id, answers).await;
        updated
            .map(drop)
            .map_err(|error| format!("tasks/update {id}: {error}"))
    }

    async fn work(&self, turn: usize) -> Outcome {
        let label = format!("{}-{turn}", self.name);
        let arguments = json!({"seconds": 0.5, "label": label});
        let id = self.start("slow_compute", arguments).await?;
        is(
            &self.said(&id).await?,
            &format!("Computed {label} for 0.5 s."),
        )
    }

    async fn ask(&self) -> Outcome {
        let parked = self.park("confirm_delete").await?;
        self.resume(&parked).await
    }

    async fn cancel(&self, turn: usize) -> Outcome {
        let id = self.start("slow_compute", json!({"seconds": 60})).await?;
        tokio::time::sleep(Duration::from_millis(turn as u64 % 5 * 50)).await;
        let cancelled = self.front.client(&self.name).cancel(&id).await;
        cancelled.map_err(|error| format!("tasks/cancel {id}: {error}"))?;
        self.status(&id, "cancelled").await.map(drop)
    }

    /// The same call twice at once, by key, over two gateways.
    async fn repeat(&self, turn: usize) -> Outcome {
        let params = keyed(
            "reindex_corpus",
            json!({"collection": "small"}),
            &format!("key {turn}"),
        );
        let call = async || {
            let client = self.front.client(&self.name);
            let answer = client.request("tools/call", params.clone()).send().await;
            let result = answer.and_then(harness::client::Answer::into_result);
            let mut result = result.map_err(|error| format!("reindex_corpus: {error}"))?;
            // On a busy machine the call may have become a task.
            if let Some(id) = result["taskId"].as_str() {
                result = self.status(id, "completed").await?["result"].clone();
            }
            Ok::<_, String>(result["structuredContent"].clone())
        };
        let (first, second) = tokio::join!(call(), call());
        let (first, second) = (first?, second?);
        is(&first.to_string(), &second.to_string())?;
        is(&first.to_string(), "\"documents\":50")
    }

    /// A client that knows nothing of tasks, and a call that is held open.
    async fn inline(&self, turn: usize) -> Outcome {
        let client = self.front.client(&self.name).undeclared();
        let seconds = if turn.is_multiple_of(2) { 0.1 } else { 1.0 };
        let result = client
            .call("slow_compute", json!({"seconds": seconds}))
            .await
            .map_err(|error| format!("held call: {error}"))?;
        is(&result.to_string(), "Computed the work for")
    }

    async fn two_devices(&self) -> Outcome {
        let id = self.start("multi_input", json!({})).await?;
        self.status(&id, "input_required").await?;
        let name = json!({"name": {"action": "accept", "content": {"name": "x"}}});
        let sure = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
        let (first, second) = tokio::join!(self.answer(&id, name), self.answer(&id, sure));
        first.and(second)?;
        let said = self.said(&id).await?;
        is(&said, "name: ").and(is(&said, "confirm: "))
    }

    /// Follows a task by its notifications; a stream that ends says so, and another one is opened.
    async fn listen(&self) -> Outcome {
        let id = self.start("slow_compute", json!({"seconds": 1})).await?;
        for _ in 0..5 {
            let client = self.front.client(&self.name);
            let listening = client.listen(json!({"taskIds": [id]})).await;
            let mut stream = listening.map_err(|error| format!("listen: {error}"))?;
            let mut last = Value::Null;
            while let Some(message) = stream
                .next(SOON)
                .await
                .map_err(|error| format!("listen: {error}, after {last}"))?
            {
                if message["params"]["status"] == "completed" {
                    return is(&message.to_string(), "for 1 s.");
                }
                last = message;
            }
            is(&last.to_string(), "\"resultType\":\"complete\"")?;
        }
        Err("the stream ended five times".to_owned())
    }

    async fn park(&self, tool: &'static str) -> Result<Parked, String> {
        let arguments = match tool {
            "run_suite" => json!({"suite": "flaky"}),
            _ => json!({"filename": "a.txt"}),
        };
        let id = self.start(tool, arguments).await?;
        self.status(&id, "input_required").await?;
        Ok(Parked { id, tool })
    }

    async fn resume(&self, parked: &Parked) -> Outcome {
        let (key, content, expected) = match parked.tool {
            "run_suite" => ("deploy", json!({"deploy": true}), "3 flaky: deployed."),
            _ => ("confirm", json!({"confirm": true}), "Deleted a.txt."),
        };
        let answers = json!({key: {"action": "accept", "content": content}});
        self.answer(&parked.id, answers).await?;
        is(&self.said(&parked.id).await?, expected)
    }
}

fn is(said: &str, expected: &str) -> Outcome {
    if said.contains(expected) {
        Ok(())
    } else {
        Err(format!("{said} does not contain {expected}"))
    }
}
