//! What finished steps did is undone when a task ends without a result, as a worker would.

use bytes::Bytes;
use protocol::TaskId;
use store::{JournalEntry, JournalKind};
use tokio_util::sync::CancellationToken;

use super::backend::KitBackend;
use super::life::pause_before;
use super::{Declared, Kit, caller};
use crate::compensate::{Verdict, verdict};
use crate::drive::Work;
use crate::process::Commands;
use crate::tool::Arguments;
use crate::undo::Undoing;

impl Kit {
    /// Undoes the finished steps that declared how, the last one first.
    pub(super) async fn undo(&self, id: TaskId, backend: &KitBackend, whole: bool) {
        let (mut finished, undos) = {
            let world = backend.lock();
            let finished = world.journal.iter().filter(|entry| entry.done);
            (finished.cloned().collect::<Vec<_>>(), world.undos.clone())
        };
        finished.sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        for entry in finished {
            let declared = undos.get(&entry.key);
            let Some(declared) = declared.filter(|_| entry.kind == JournalKind::Step) else {
                continue;
            };
            let undone = self.undo_step(id, &entry, declared, whole).await;
            let mut world = backend.lock();
            match undone {
                Ok(()) => world.undone.push(entry.key),
                Err(why) => world.not_undone.push((entry.key, why)),
            }
        }
    }

    async fn undo_step(
        &self,
        id: TaskId,
        entry: &JournalEntry,
        declared: &Declared,
        whole: bool,
    ) -> Result<(), String> {
        let policy = self.tool.spec().policy;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut undoing = Undoing {
                task_id: id,
                principal: caller(),
                arguments: Arguments::new(Bytes::from(self.arguments.to_string())),
                step: entry.key.clone(),
                how: declared.how.clone(),
                output: entry.value.clone().unwrap_or_default(),
                tries,
                stop: CancellationToken::new(),
                commands: Commands::alone(CancellationToken::new()),
            };
            let ended = Work::Ended(self.tool.undo(&mut undoing).await);
            match verdict(ended, &policy, declared.idempotent) {
                Verdict::Undone => return Ok(()),
                Verdict::GiveUp(why) => return Err(why),
                Verdict::Again(why) if tries >= i32::from(policy.undo_tries_max) => {
                    return Err(why);
                }
                Verdict::Again(_) if whole => {
                    tokio::time::sleep(pause_before(policy.backoff, tries)).await;
                }
                Verdict::Again(_) => {}
            }
        }
    }
}
