//! Waiting for the end of a task that goes on whether anybody waits or not.

use protocol::TaskId;
use queue::{Event, Watch};
use store::{Lookup, Principal, Task};
use tokio::time::Instant;

use crate::Shared;
use crate::error::Error;
use crate::large;

/// A task that is watched.
pub(super) struct Watched {
    pub(super) task: Task,
    /// None of one that is over.
    watch: Option<Watch>,
}

/// What a watched task has to say.
pub(super) enum News {
    /// It may have changed, and was read.
    Read,
    /// Progress, as the worker reports it.
    Progress(bytes::Bytes),
}

impl Watched {
    /// Reads the task: only whose it is watches it, since the time of that tells whether anybody else
    /// does. Then reads it again, so that no change in between is missed.
    ///
    /// # Errors
    /// If the principal has no such task, or Postgres is away.
    pub(super) async fn open(
        shared: &Shared,
        principal: &Principal,
        id: TaskId,
    ) -> Result<Self, Error> {
        let task = read(shared, principal, id).await?;
        if task.status.is_terminal() {
            return Ok(Self { task, watch: None });
        }
        let watch = Some(shared.queue.watch(id).await);
        let task = read(shared, principal, id).await?;
        Ok(Self { task, watch })
    }

    /// The next news, at the latest after a look that nothing asked for. Postgres may be away
    /// meanwhile: whoever waits here goes on waiting.
    ///
    /// # Errors
    /// If the task is gone.
    pub(super) async fn news(
        &mut self,
        shared: &Shared,
        principal: &Principal,
    ) -> Result<News, Error> {
        let look = Instant::now() + shared.config.recheck;
        let event = async {
            match &mut self.watch {
                Some(watch) => watch.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = event => {
                if let Event::Progress(json) = event {
                    return Ok(News::Progress(json));
                }
            }
            () = tokio::time::sleep_until(look) => {}
        }
        self.read(shared, principal).await?;
        Ok(News::Read)
    }

    /// Reads the task again.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) async fn read(
        &mut self,
        shared: &Shared,
        principal: &Principal,
    ) -> Result<(), Error> {
        match read(shared, principal, self.task.id).await {
            Ok(task) => {
                self.task = task;
                Ok(())
            }
            Err(Error::Store(store::Error::Unavailable(_) | store::Error::Timeout(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn read(shared: &Shared, principal: &Principal, id: TaskId) -> Result<Task, Error> {
    match large::read(shared, principal, id).await? {
        Lookup::Found(task) => Ok(*task),
        gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Err(Error::gone(Some(gone))),
    }
}
