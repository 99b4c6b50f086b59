//! A client: asks one gateway at a time, records whatever it asked and saw, and counts.

mod listen;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harness::client::{Client, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::board::{Board, Entry};
use crate::calls::Call;
use crate::figures::Figures;
use crate::history::{
    Acknowledgement, CallAnswer, Kind, NoAnswer, Recorder, Reply, RpcError, TaskAnswer, View,
};

pub use listen::Listening;

/// Longer than a gateway makes a request wait for Postgres, and than most freezes.
const PATIENCE: Duration = Duration::from_secs(25);

/// What all clients of a run share.
#[derive(Debug)]
pub struct Shared {
    /// The gateways' endpoints.
    pub gateways: Vec<String>,
    /// Where everything is recorded.
    pub recorder: Recorder,
    /// Where everything is counted.
    pub figures: Arc<Figures>,
    /// All acknowledged tasks.
    pub board: Board,
    /// Bearer tokens of principals; whoever has none is known by its name.
    pub tokens: BTreeMap<String, String>,
}

/// A client. Clones are the same client.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// On whose behalf it asks.
    pub principal: String,
    /// What it shares with all others.
    pub shared: Arc<Shared>,
    at: Arc<Vec<Client>>,
}

/// Why a request did not get what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It was refused, and will be again.
    Refused,
    /// The server, or what is behind it, is broken or too busy: again later.
    Busy,
    /// No answer.
    Lost,
}

impl Trouble {
    /// Whether asking again is of no use.
    #[must_use]
    pub fn is_final(self) -> bool {
        self == Trouble::Refused
    }
}

/// What a call became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    /// The result.
    Inline,
    /// A task.
    Handle(String),
}

/// A task as a read showed it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The task.
    pub view: View,
    /// After how many milliseconds the server would be asked again.
    pub poll_ms: u64,
}

impl Caller {
    /// A client of this name with connections of its own.
    #[must_use]
    pub fn new(name: &str, principal: &str, shared: Arc<Shared>) -> Caller {
        let token = shared
            .tokens
            .get(principal)
            .map_or(principal, String::as_str);
        let client = Client::new("").bearer(token).timeout(PATIENCE);
        let at = shared.gateways.iter().map(|url| client.at(url)).collect();
        Caller {
            name: name.to_owned(),
            principal: principal.to_owned(),
            shared,
            at: Arc::new(at),
        }
    }

    /// Another device of the same principal.
    #[must_use]
    pub fn other_device(&self) -> Caller {
        let name = format!("{}'", self.name);
        Caller::new(&name, &self.principal, Arc::clone(&self.shared))
    }

    /// The same client without the tasks extension: its calls are held until there is a result.
    #[must_use]
    pub fn undeclared(&self) -> Caller {
        let at = self.at.iter().map(|client| client.clone().undeclared());
        Caller {
            at: Arc::new(at.collect()),
            ..self.clone()
        }
    }

    /// How many gateways there are.
    #[must_use]
    pub fn gateways(&self) -> usize {
        self.at.len()
    }

    /// `tools/call`.
    ///
    /// # Errors
    /// As [`Trouble`] says.
    pub async fn call(
        &self,
        gateway: usize,
        call: &Call,
        key: Option<&str>,
    ) -> Result<Called, Trouble> {
        let asking = self.asking(gateway, "tools/call");
        let (reply, trouble) = self.send(self.call_request(gateway, call, key)).await;
        let answer = reply.to_call();
        let called = match &answer {
            CallAnswer::Handle { task } => {
                let new = self.shared.board.add(Entry {
                    task: task.clone(),
                    principal: self.principal.clone(),
                    waits: call.waits(),
                });
                if new {
                    self.shared.figures.task();
                }
                Ok(Called::Handle(task.clone()))
            }
            CallAnswer::Inline { .. } | CallAnswer::Asked { .. } => {
                self.shared.figures.inline();
                Ok(Called::Inline)
            }
            CallAnswer::Error(_) | CallAnswer::NoAnswer(_) => Err(trouble),
        };
        asking.answered(called_event(call, key, answer));
        called
    }

    /// `tools/call` by somebody who hangs up if there is no answer in time.
    pub async fn call_and_hang_up(
        &self,
        gateway: usize,
        call: &Call,
        key: Option<&str>,
        patience: Duration,
    ) {
        let asked = tokio::time::timeout(patience, self.call(gateway, call, key));
        let asking =
            self.shared
                .recorder
                .asking(&self.name, &self.principal, &gateway_name(gateway));
        if asked.await.is_err() {
            let why = "hung up".to_owned();
            let answer = CallAnswer::NoAnswer(NoAnswer { why });
            asking.answered(called_event(call, key, answer));
        }
    }

    /// `tasks/get`.
    ///
    /// # Errors
    /// As [`Trouble`] says.
    pub async fn read(&self, gateway: usize, task: &str) -> Result<Seen, Trouble> {
        let asking = self.asking(gateway, "tasks/get");
        let request = self.at[gateway].request("tasks/get", json!({"taskId": task}));
        let (reply, trouble) = self.send(request).await;
        let poll_ms = poll_ms(&reply);
        let answer = reply.to_task();
        let seen = match &answer {
            TaskAnswer::Task(view) => Ok(Seen {
                view: view.clone(),
                poll_ms,
            }),
            TaskAnswer::Error(_) | TaskAnswer::NoAnswer(_) => Err(trouble),
        };
        let task = task.to_owned();
        asking.answered(Kind::Read { task, answer });
        seen
    }

    /// `tasks/update`.
    ///
    /// # Errors
    /// As [`Trouble`] says.
    pub async fn update(
        &self,
        gateway: usize,
        task: &str,
        answers: BTreeMap<String, Value>,
    ) -> Result<(), Trouble> {
        let asking = self.asking(gateway, "tasks/update");
        let params = json!({"taskId": task, "inputResponses": answers});
        let request = self.at[gateway].request("tasks/update", params);
        let (reply, trouble) = self.send(request).await;
        let answer = reply.to_acknowledgement();
        let done = acknowledged(&answer, trouble);
        asking.answered(Kind::Updated {
            task: task.to_owned(),
            answers,
            answer,
        });
        done
    }

    /// `tasks/cancel`.
    ///
    /// # Errors
    /// As [`Trouble`] says.
    pub async fn cancel(&self, gateway: usize, task: &str) -> Result<(), Trouble> {
        let asking = self.asking(gateway, "tasks/cancel");
        let request = self.at[gateway].request("tasks/cancel", json!({"taskId": task}));
        let (reply, trouble) = self.send(request).await;
        let answer = reply.to_acknowledgement();
        let done = acknowledged(&answer, trouble);
        let task = task.to_owned();
        asking.answered(Kind::Cancelled { task, answer });
        done
    }

    /// Any method about a task that is not ours.
    pub async fn probe(&self, gateway: usize, method: &str, task: &str) {
        let asking = self.asking(gateway, method);
        let mut params = json!({"taskId": task});
        if method == "tasks/update" {
            params["inputResponses"] = json!({"only": {"action": "cancel"}});
        }
        let request = self.at[gateway].request(method, params);
        let answer = self.send(request).await.0.to_foreign();
        asking.answered(Kind::Foreign {
            task: task.to_owned(),
            method: method.to_owned(),
            answer,
        });
    }

    fn call_request(&self, gateway: usize, call: &Call, key: Option<&str>) -> Request<'_> {
        let params = json!({"name": call.tool, "arguments": call.arguments()});
        let request = self.at[gateway].request("tools/call", params);
        match key {
            Some(key) => request.idempotency_key(key),
            None => request,
        }
    }

    fn asking(&self, gateway: usize, method: &str) -> crate::history::Asking {
        self.shared.figures.request(method);
        let gateway = gateway_name(gateway);
        self.shared
            .recorder
            .asking(&self.name, &self.principal, &gateway)
    }

    /// The answer, and what it would mean if it is not what was asked for.
    async fn send(&self, request: Request<'_>) -> (Reply, Trouble) {
        let answer = request.send().await;
        let http = answer.as_ref().map_or(0, |answer| answer.status);
        let reply = Reply::read(&answer);
        let trouble = match &reply {
            Reply::Nothing(_) if http < 400 => {
                self.shared.figures.lost_connection(&cause(&answer));
                Trouble::Lost
            }
            Reply::Nothing(why) => self.broken(http, &why.why),
            Reply::Error(error) if is_servers(http, error) => {
                let what = format!("{} {} {}", error.code, error.message(), error.reason());
                self.broken(http, what.trim_end())
            }
            Reply::Error(_) | Reply::Result(_) => Trouble::Refused,
        };
        (reply, trouble)
    }

    fn broken(&self, http: u16, what: &str) -> Trouble {
        let what: String = format!("HTTP {http}: {what}").chars().take(200).collect();
        self.shared.figures.server_error(what);
        Trouble::Busy
    }
}

/// The name that the history knows a gateway by.
fn gateway_name(index: usize) -> String {
    format!("gateway-{}", index + 1)
}

fn called_event(call: &Call, key: Option<&str>, answer: CallAnswer) -> Kind {
    Kind::Called {
        tool: call.tool.to_owned(),
        arguments: call.arguments(),
        key: key.map(str::to_owned),
        answer,
    }
}

fn acknowledged(answer: &Acknowledgement, trouble: Trouble) -> Result<(), Trouble> {
    match answer {
        Acknowledgement::Done => Ok(()),
        Acknowledgement::Error(_) | Acknowledgement::NoAnswer(_) => Err(trouble),
    }
}

/// Whether the server, or what is behind it, is broken or too busy; not the request. An error that
/// tells how a task ended is an answer.
fn is_servers(http: u16, error: &RpcError) -> bool {
    const BROKEN: [&str; 3] = ["unavailable", "internal", ""];
    let internal = error.code == -32603 && BROKEN.contains(&error.reason().as_str());
    http >= 500 || http == 429 || internal
}

/// The kind of a lost connection, for counting: the last part of the message names it.
fn cause(answer: &harness::Result<harness::client::Answer>) -> String {
    match answer {
        Ok(_) => "the answer broke off".to_owned(),
        Err(harness::Error::Timeout { .. }) => "no answer in time".to_owned(),
        Err(error) => {
            let text = error.to_string();
            let last = text.rsplit(": ").next().unwrap_or_default();
            last.chars().take(80).collect()
        }
    }
}

fn poll_ms(reply: &Reply) -> u64 {
    #[derive(Deserialize)]
    struct Interval {
        #[serde(rename = "pollIntervalMs", default)]
        poll_ms: u64,
    }
    let Reply::Result(text) = reply else {
        return 0;
    };
    serde_json::from_str(text).map_or(0, |interval: Interval| interval.poll_ms)
}
