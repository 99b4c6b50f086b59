//! A client that listens: for its own tasks, or for somebody else's.

use std::time::Duration;

use harness::sse::Stream;
use serde_json::json;

use super::{Caller, gateway_name};
use crate::history::{ForeignAnswer, Kind, NoAnswer, RpcError, View};

/// How long a stranger listens for what he must not hear.
const EAVESDROP: Duration = Duration::from_millis(500);
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// An open `subscriptions/listen`.
#[derive(Debug)]
pub struct Listening {
    stream: Stream,
    gateway: usize,
}

impl Caller {
    /// `subscriptions/listen` for these tasks. `None` if there is no stream.
    pub async fn listen(&self, gateway: usize, tasks: &[String]) -> Option<Listening> {
        self.shared.figures.request("subscriptions/listen");
        let stream = self.at[gateway].listen(json!({"taskIds": tasks})).await;
        match stream {
            Ok(stream) if stream.status == 200 => Some(Listening { stream, gateway }),
            Ok(stream) => {
                let what = format!("subscriptions/listen: HTTP {}", stream.status);
                self.shared.figures.server_error(what);
                None
            }
            Err(_) => {
                self.shared.figures.lost_connection("subscriptions/listen");
                None
            }
        }
    }

    /// The next state of a task. `None` when the stream has ended, or says nothing for so long.
    pub async fn hear(&self, listening: &mut Listening, within: Duration) -> Option<View> {
        loop {
            let asking = self.shared.recorder.asking(
                &self.name,
                &self.principal,
                &gateway_name(listening.gateway),
            );
            let text = listening.stream.text(within).await.ok()??;
            if let Some(view) = View::of_notification(&text) {
                asking.answered(Kind::Notified {
                    task: view.id.clone(),
                    view: view.clone(),
                });
                return Some(view);
            }
        }
    }

    /// Listens for a task that is not ours: the acknowledgement must leave it out, and nothing of
    /// it may be told.
    pub async fn eavesdrop(&self, gateway: usize, task: &str) {
        let asking = self.asking(gateway, "subscriptions/listen");
        let stream = self.at[gateway].listen(json!({"taskIds": [task]})).await;
        let answer = match stream {
            Err(error) => ForeignAnswer::NoAnswer(NoAnswer {
                why: error.to_string(),
            }),
            Ok(mut stream) => {
                let mut answer = ForeignAnswer::NoAnswer(NoAnswer::default());
                while let Ok(Some(text)) = stream.text(EAVESDROP).await {
                    if text.contains(task) {
                        answer = ForeignAnswer::Shown { result: text };
                        break;
                    }
                    if text.contains(ACKNOWLEDGED) {
                        answer = ForeignAnswer::Refused(RpcError::default());
                    }
                }
                answer
            }
        };
        asking.answered(Kind::Foreign {
            task: task.to_owned(),
            method: "subscriptions/listen".to_owned(),
            answer,
        });
    }
}
