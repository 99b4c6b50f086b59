//! What attempts do, on a real Postgres.

use std::collections::VecDeque;
use std::sync::Arc;

use store::{Begin, ClaimRequest, Parked, ParkedFor, StepSpec, StopReason, Store, UndoSpec, Write};

use super::super::action::{Action, Ask};
use super::super::state::{Key, Model, WORKED, or_none};
use super::{Held, Real, minutes, over, questions, token, wrote};
use crate::support::YES;

impl Real {
    pub(super) async fn of_attempts(
        &self,
        store: &Store,
        model: &Model,
        action: &Action,
    ) -> String {
        if let Action::Claim { slot, token } = action {
            return self.take(store, *slot, *token).await;
        }
        let mine = action.claim().unwrap();
        let claim = &*self.claim(mine);
        let worked = minutes(WORKED);
        match action {
            Action::Heartbeat(_) => {
                let beats = store.heartbeat([claim]).await.unwrap();
                match beats.first() {
                    Some(beat) => format!("beat {}", or_none(beat.stop.map(StopReason::as_str))),
                    None => wrote(Write::Lost),
                }
            }
            Action::Begin(_, key) => self.begin(store, mine, *key, model.seq(mine, *key)).await,
            Action::Finish(_) => {
                let permit = self.with_held(mine, |held| held.permits.pop_front().unwrap());
                wrote(store.finish_step(claim, permit, b"\"out\"").await.unwrap())
            }
            Action::AbandonStep(_) => {
                let permit = self.with_held(mine, |held| held.permits.pop_front().unwrap());
                wrote(store.abandon_step(claim, permit).await.unwrap())
            }
            Action::Progress(_, message) => wrote(store.progress(claim, message).await.unwrap()),
            Action::Park(_, asks) => {
                let questions = questions(asks, model.asked(mine), model.next_seq(mine));
                let parked = store.park(claim, ParkedFor::Task, &questions, worked);
                match parked.await.unwrap() {
                    Parked::Parked => "Parked".to_owned(),
                    Parked::Stop => "Stop".to_owned(),
                }
            }
            Action::RecordAnswer(_) => {
                let (asked, seq) = (model.asked(mine), model.next_seq(mine));
                let ask = Ask {
                    has_default: false,
                    wait: 0,
                };
                let question = questions(&[ask], asked, seq).remove(0);
                let recorded = store.record_answer(claim, &question, YES.as_bytes(), "call");
                wrote(recorded.await.unwrap())
            }
            Action::StopOwn(_) => {
                let told = store.stop_own(claim, StopReason::WorkLimit, None);
                wrote(told.await.unwrap())
            }
            Action::ConfirmStopped(_) => over(store.confirm_stopped(claim).await.unwrap()),
            Action::Complete(_) => {
                let result = format!("\"result of {}\"", claim.attempt());
                let completed = store.complete(claim, result.as_bytes(), worked);
                wrote(completed.await.unwrap())
            }
            Action::Fail(_) => {
                let said = format!("broke {}", claim.attempt());
                let error = serde_json::json!({
                    "code": -32000, "message": said, "data": {"reason": said},
                });
                let error = error.to_string();
                over(
                    store
                        .fail(claim, error.as_bytes(), &said, worked)
                        .await
                        .unwrap(),
                )
            }
            Action::Retry(_, backoff) => {
                let retried = store.retry(claim, "try again", minutes(*backoff), worked);
                wrote(retried.await.unwrap())
            }
            Action::Release(_) => wrote(store.release(claim, None, worked).await.unwrap()),
            other => unreachable!("{other:?}"),
        }
    }

    pub(super) async fn take(&self, store: &Store, slot: usize, named: u32) -> String {
        let request = ClaimRequest {
            id: self.id(slot),
            tool: "report",
            version: 1,
            resumes: &[1],
            token: token(named),
            worker: "worker-1",
        };
        let Some(claim) = store.claim(&request).await.unwrap() else {
            return "-".to_owned();
        };
        let said = format!(
            "attempt {} tries {} open {} undoing {} journaled {}",
            claim.attempt(),
            claim.tries,
            or_none(claim.open_step.as_ref()),
            claim.undoing,
            claim.journaled,
        );
        let mut known = self.known.lock().unwrap();
        let same = |held: &&mut Held| held.claim.attempt() == claim.attempt();
        if known.held.get_mut(&named).filter(same).is_none() {
            let held = Held {
                claim: Arc::new(claim),
                permits: VecDeque::new(),
                undo: None,
            };
            known.held.insert(named, held);
        }
        said
    }

    pub(super) async fn begin(&self, store: &Store, mine: u32, key: Key, seq: i32) -> String {
        let claim = self.claim(mine);
        let spec = StepSpec {
            key: key.name(),
            seq,
            idempotent: key.idempotent(),
            undo: key.undoable().then_some(UndoSpec {
                how: b"{\"how\": 1}",
                idempotent: key.idempotent(),
            }),
        };
        match store.begin_step(&claim, spec).await.unwrap() {
            Begin::Act(permit) => {
                self.with_held(mine, |held| held.permits.push_back(permit));
                "Act"
            }
            Begin::InDoubt => "InDoubt",
            Begin::Stop => "Stop",
        }
        .to_owned()
    }

    pub(super) async fn of_undoing(&self, store: &Store, action: &Action) -> String {
        let mine = action.claim().unwrap();
        let claim = &*self.claim(mine);
        if let Action::NextUndo(_) = action {
            let next = store.next_undo(claim).await.unwrap();
            let said = next
                .as_ref()
                .map(|step| format!("{} started {} tries {}", step.key, step.started, step.tries));
            self.with_held(mine, |held| held.undo = next);
            return or_none(said);
        }
        if let Action::Undone(_) = action {
            return wrote(store.undone(claim).await.unwrap());
        }
        let step = self.with_held(mine, |held| held.undo.clone()).unwrap();
        let write = match action {
            Action::BeginUndo(_) => store.begin_undo(claim, &step).await,
            Action::FinishUndo(_) => store.finish_undo(claim, &step.key).await,
            Action::RetryUndo(_, backoff) => {
                let backoff = minutes(*backoff);
                store.retry_undo(claim, &step.key, "not yet", backoff).await
            }
            Action::FailUndo(_) => store.fail_undo(claim, &step.key, "never").await,
            other => unreachable!("{other:?}"),
        };
        wrote(write.unwrap())
    }
}
