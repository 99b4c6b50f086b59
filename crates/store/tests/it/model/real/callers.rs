//! What callers and cron do, on a real Postgres.

use std::time::Duration;

use store::{AlertRules, Answer, Cancel, Lookup, Store, UnhintedFilter, Write};

use super::super::action::{Action, Who, question};
use super::super::look::keys;
use super::super::state::{GONE, HOLD, TOMBSTONE, UNREAD, or_none};
use super::{ALL, Real, gone, minutes, reply, settled, wrote};
use crate::support::{self};

impl Real {
    pub(super) async fn of_callers(&self, store: &Store, action: &Action) -> String {
        let principal = |who| match who {
            Who::Owner => &self.world.alice,
            Who::Foreign => &self.world.mallory,
        };
        match action {
            Action::Create {
                slot,
                key,
                arguments,
                handed_out,
                kind,
            } => {
                let call = (*key, *arguments);
                self.create(store, *slot, call, (*handed_out, *kind)).await
            }
            Action::CreateTwice {
                slot,
                key,
                arguments,
                kind,
            } => {
                let call = (Some(*key), *arguments);
                let (one, two) = tokio::join!(
                    self.create(&self.store, *slot, call, (true, *kind)),
                    self.create(&self.other, *slot, call, (true, *kind)),
                );
                let mut said = [one, two];
                said.sort();
                said.join(" ")
            }
            Action::HandOut(slot) => {
                let handed = store.hand_out(self.id(*slot)).await.unwrap();
                wrote(if handed.is_some() {
                    Write::Done
                } else {
                    Write::Lost
                })
            }
            Action::Hold(slot) => {
                store.hold(&[self.id(*slot)], minutes(HOLD)).await.unwrap();
                wrote(Write::Done)
            }
            Action::Abandon(slot) => {
                let told = store.abandon(&[self.id(*slot)], minutes(HOLD)).await;
                self.slots(told.unwrap())
            }
            Action::Answer(slot, who, replies) => {
                let replies: Vec<_> = replies
                    .iter()
                    .map(|(n, answer)| (question(*n), reply(*answer)))
                    .collect();
                let pairs: Vec<_> = replies.iter().map(|(key, json)| (&**key, *json)).collect();
                let answers = support::answers(&pairs);
                let id = self.id(*slot);
                match store
                    .answer(principal(*who), id, &answers, None)
                    .await
                    .unwrap()
                {
                    Answer::Resumed { .. } => "Resumed".to_owned(),
                    Answer::Waiting => "Waiting".to_owned(),
                    Answer::Ignored => "Ignored".to_owned(),
                    Answer::Malformed { key, .. } => format!("Malformed({key})"),
                    Answer::Gone(lookup) => gone(lookup.as_ref()),
                }
            }
            Action::Cancel(slot, who) => {
                match store.cancel(principal(*who), self.id(*slot)).await.unwrap() {
                    Cancel::Undoing { .. } => "Undoing".to_owned(),
                    Cancel::Gone(lookup) => gone(lookup.as_ref()),
                    other => format!("{other:?}"),
                }
            }
            Action::MarkFetched(slot) => {
                store.mark_fetched(&[self.id(*slot)]).await.unwrap();
                wrote(Write::Done)
            }
            Action::DeliveredInline(slot) => {
                store.delivered_inline(&[self.id(*slot)]).await.unwrap();
                wrote(Write::Done)
            }
            Action::Get(slot, who) => {
                match store.get(principal(*who), self.id(*slot)).await.unwrap() {
                    Lookup::Found(task) => {
                        let asks = task
                            .input_requests
                            .as_deref()
                            .map(keys)
                            .map(|keys| keys.len());
                        let failed = task.error.is_some();
                        format!(
                            "Found({}) asks {} failed {failed}",
                            task.status,
                            or_none(asks)
                        )
                    }
                    other => gone(Some(&other)),
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    pub(super) async fn of_cron(&self, store: &Store, action: &Action) -> String {
        match action {
            Action::SettleStopped(slot) => {
                let done = store.settle_stopped(&[self.id(*slot)]).await.unwrap();
                or_none(done.first().map(settled))
            }
            Action::Stoppable => self.slots(store.stoppable(ALL).await.unwrap()),
            Action::Expire => {
                let expired = store.expire(ALL).await.unwrap();
                self.slots(expired.iter().map(|task| task.id))
            }
            Action::EndHolds => self.slots(store.end_holds(ALL).await.unwrap()),
            Action::FailUnanswered => {
                let (mut after, mut all) = (None, Vec::new());
                while let Some(id) = store.fail_unanswered(after).await.unwrap() {
                    after = Some(id);
                    all.push(id);
                }
                self.slots(all)
            }
            Action::VersionGone => {
                let gone = store.version_gone(minutes(GONE), ALL).await.unwrap();
                let ended = gone.ended.iter().map(|task| task.id);
                self.slots(gone.stopped.iter().copied().chain(ended))
            }
            Action::Unhinted => {
                let filter = UnhintedFilter {
                    epochs: &[],
                    age: Duration::ZERO,
                    tools: None,
                    limit: ALL,
                };
                let unhinted = store.unhinted(&filter).await.unwrap();
                self.slots(unhinted.into_iter().map(|job| job.id))
            }
            Action::RaiseUnfetched => {
                let rules = AlertRules {
                    receivers: &[],
                    question_receivers: &[],
                    unfetched_after: minutes(UNREAD),
                    question_after: minutes(UNREAD),
                    limit: ALL,
                };
                let (judged, raised) = store.raise_unfetched(&rules).await.unwrap();
                format!("{judged} judged {raised} raised")
            }
            Action::Purge => {
                let purged = store.purge(ALL, minutes(TOMBSTONE)).await;
                purged.unwrap().to_string()
            }
            Action::PurgeTombstones => store.purge_tombstones(ALL).await.unwrap().to_string(),
            Action::Advance(by) => {
                let sql = self.pass_time.replace("$1", &by.to_string());
                self.client.batch_execute(&sql).await.unwrap();
                wrote(Write::Done)
            }
            other => unreachable!("{other:?}"),
        }
    }
}
