//! What clients do, one operation after the other or beside it. A request that got no answer is sent
//! again to another gateway, under the same idempotency key; its latency counts on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::balance::Balance;
use super::scenario::Kind;
use super::series::Series;
use crate::caller::{Called, Caller, Seen, Trouble};
use crate::calls::Call;
use crate::history::View;
use crate::plan::{End, Item, Plan, Question, Step};
use crate::rng::Rng;

const AGAIN: Duration = Duration::from_millis(50);
/// What is not answered by then is given up; what became of its task is looked at in the end.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_MAX_MS: u64 = 1_000;
const HEAR: Duration = Duration::from_secs(5);

/// What is sent again until it is answered.
#[derive(Debug, Clone, Copy)]
enum Request<'a> {
    Call(&'a Call, &'a str),
    Read(&'a str),
    Update(&'a str, &'a BTreeMap<String, Value>),
    Cancel(&'a str),
}

enum Answer {
    Called(Called),
    Seen(Seen),
    Done,
}

/// One client for one operation.
#[derive(Debug)]
pub struct Client {
    /// The principal's clients share connections.
    pub caller: Caller,
    /// Where it sends its requests.
    pub balance: Arc<Balance>,
    /// Where its latencies go.
    pub series: Arc<Series>,
    /// Its choices.
    pub rng: Rng,
    /// No other operation of the run has it.
    pub name: String,
}

impl Client {
    /// Does it. The first request was due then.
    pub async fn play(mut self, kind: Kind, due: Instant) {
        match kind {
            Kind::Inline => self.inline(due).await,
            Kind::Task => self.task(due).await,
            Kind::Question => self.question(due).await,
            Kind::Cancel => self.cancel(due).await,
            Kind::Listen => self.listen(due).await,
            Kind::Read => self.read_any(due).await,
        }
    }

    async fn inline(&mut self, due: Instant) {
        let call = self.a_call("chaos_quick", Vec::new(), End::Result);
        if let Some(Called::Handle(task)) = self.call("call", &call, due).await {
            self.end(&task).await;
        }
    }

    async fn task(&mut self, due: Instant) {
        let items = vec![self.step("first"), self.step("second")];
        let call = self.a_call("chaos_steps", items, End::Result);
        if let Some(task) = self.handle(&call, due).await
            && self.end(&task).await.is_some()
        {
            self.series.answered("life", due);
        }
    }

    async fn question(&mut self, due: Instant) {
        let question = Question {
            key: "go".to_owned(),
            ..Question::default()
        };
        let items = vec![
            self.step("before"),
            Item::Ask(vec![question]),
            self.step("after"),
        ];
        let call = self.a_call("chaos_ask", items, End::Result);
        let Some(task) = self.handle(&call, due).await else {
            return;
        };
        let asks = |seen: &View| seen.is_terminal() || seen.status == "input_required";
        let seen = self.follow(&task, asks).await;
        if seen.is_none_or(|seen| seen.is_terminal()) {
            return;
        }
        let response = Plan::response(&format!("yes, {}", self.name));
        let answers = BTreeMap::from([("go".to_owned(), response)]);
        let request = Request::Update(&task, &answers);
        self.ask("update", Instant::now(), request).await;
        self.end(&task).await;
    }

    async fn cancel(&mut self, due: Instant) {
        let items = vec![self.step("only")];
        let call = self.a_call("chaos_steps", items, End::Wait);
        let Some(task) = self.handle(&call, due).await else {
            return;
        };
        sleep(Duration::from_millis(self.rng.between(0, 1_000))).await;
        self.ask("cancel", Instant::now(), Request::Cancel(&task))
            .await;
        self.end(&task).await;
    }

    async fn listen(&mut self, due: Instant) {
        let items = vec![self.step("first"), self.step("second")];
        let call = self.a_call("chaos_steps", items, End::Result);
        let Some(task) = self.handle(&call, due).await else {
            return;
        };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let at = self.balance.pick(&mut self.rng);
            let tasks = [task.clone()];
            let Some(mut listening) = self.caller.listen(at, &tasks).await else {
                self.balance.failed(at);
                self.series.fault("listen", at, true);
                sleep(AGAIN).await;
                continue;
            };
            while let Some(view) = self.caller.hear(&mut listening, HEAR).await {
                if view.is_terminal() {
                    self.series.answered("heard", due);
                    return;
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn read_any(&mut self, due: Instant) {
        let entry = self
            .caller
            .shared
            .board
            .own(&self.caller.principal, &mut self.rng);
        if let Some(entry) = entry {
            self.read(&entry.task, due).await;
        }
    }

    fn a_call(&self, tool: &'static str, items: Vec<Item>, end: End) -> Call {
        let call = self.name.clone();
        let plan = Plan { call, items, end };
        Call { tool, plan }
    }

    /// A step that may be repeated: a lost worker costs it time and nothing else.
    fn step(&mut self, key: &str) -> Item {
        Item::Step(Step {
            key: key.to_owned(),
            idempotent: true,
            before_ms: self.rng.between(0, 50),
            after_ms: self.rng.between(0, 50),
            ..Step::default()
        })
    }

    async fn handle(&mut self, call: &Call, due: Instant) -> Option<String> {
        match self.call("create", call, due).await? {
            Called::Handle(task) => Some(task),
            Called::Inline => None,
        }
    }

    async fn call(&mut self, what: &'static str, call: &Call, due: Instant) -> Option<Called> {
        let key = format!("key-{}", self.name);
        match self.ask(what, due, Request::Call(call, &key)).await? {
            Answer::Called(called) => Some(called),
            Answer::Seen(_) | Answer::Done => None,
        }
    }

    async fn read(&mut self, task: &str, due: Instant) -> Option<Seen> {
        match self.ask("read", due, Request::Read(task)).await? {
            Answer::Seen(seen) => Some(seen),
            Answer::Called(_) | Answer::Done => None,
        }
    }

    async fn end(&mut self, task: &str) -> Option<View> {
        self.follow(task, View::is_terminal).await
    }

    /// Reads the task as often as the server wishes, until `good`.
    async fn follow(&mut self, task: &str, good: impl Fn(&View) -> bool) -> Option<View> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let seen = self.read(task, Instant::now()).await?;
            if good(&seen.view) {
                return Some(seen.view);
            }
            sleep(Duration::from_millis(seen.poll_ms.clamp(100, POLL_MAX_MS))).await;
        }
        None
    }

    /// Sends a request until it is answered; `None` if it is refused, or nobody answers in time.
    async fn ask(
        &mut self,
        what: &'static str,
        due: Instant,
        request: Request<'_>,
    ) -> Option<Answer> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let at = self.balance.pick(&mut self.rng);
            let trouble = match self.send(at, request).await {
                Ok(answer) => {
                    self.series.answered(what, due);
                    return Some(answer);
                }
                Err(trouble) => trouble,
            };
            self.series.fault(what, at, trouble == Trouble::Lost);
            if trouble.is_final() || Instant::now() >= deadline {
                return None;
            }
            if trouble == Trouble::Lost {
                self.balance.failed(at);
            }
            sleep(AGAIN).await;
        }
    }

    async fn send(&self, at: usize, request: Request<'_>) -> Result<Answer, Trouble> {
        let caller = &self.caller;
        Ok(match request {
            Request::Call(call, key) => Answer::Called(caller.call(at, call, Some(key)).await?),
            Request::Read(task) => Answer::Seen(caller.read(at, task).await?),
            Request::Update(task, answers) => {
                caller.update(at, task, answers.clone()).await?;
                Answer::Done
            }
            Request::Cancel(task) => {
                caller.cancel(at, task).await?;
                Answer::Done
            }
        })
    }
}
