//! `subscriptions/listen`: tells of changes for as long as the client listens (MCP 2026-07-28
//! §Subscriptions; SEP-2663 §Task Status Notifications).
//!
//! A first read says which tasks are the caller's: only those are watched, so that nobody learns by
//! the time of an answer who else watches a task. Then interest, then another read of those that go
//! on: so the first message of a task is its full current state, and no change after it is missed. A
//! wake-up carries no facts; each one is a read. Where wake-ups may be missing (Redis is away or
//! was), the tasks are read every two seconds, else now and then all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use protocol::jsonrpc::InvalidParams;
use protocol::subscriptions::{self, Filter, ListenParams};
use protocol::{RequestId, TaskId};
use queue::{Event, Watch};
use store::{Lookup, Principal, Task};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::listened_lists::{List, Lists};
use super::listened_resources::{Displaced, Resources};
use crate::Shared;
use crate::admission::Place;
use crate::auth::Lasting;
use crate::endpoint::Call;
use crate::error::Error;
use crate::memory::Load;
use crate::metrics::{Level, Meter};
use crate::reply::{Answer, one_line};
use crate::stream::{EventStream, Message, WAITING_MAX};
use crate::{door, large, view};

/// Between two reads while wake-ups may be missing.
const URGENT: Duration = Duration::from_secs(2);
/// After Redis came back: how long the watches of one stream take to hear of it.
const GATHER: Duration = Duration::from_millis(200);

/// Tasks that one look reads: each may be large.
const AT_ONCE: usize = 10;
/// What a stream keeps of its tasks between the first read and the moment in which they are told of.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Opens the stream.
pub(crate) async fn listen(shared: &Arc<Shared>, call: Call) -> Answer {
    let listener = match shared.in_time(open(shared, &call)).await {
        Ok(listener) => listener,
        Err(error) => return call.answer(shared, Err(error)),
    };
    let (sender, messages) = mpsc::channel(WAITING_MAX);
    let running = Box::pin(listener.run(sender, call.meter).in_current_span());
    Answer::Stream(EventStream::new(
        messages,
        running,
        shared.config.keep_alive,
    ))
}

async fn open(shared: &Arc<Shared>, call: &Call) -> Result<Listener, Error> {
    if !door::accepts(&call.headers).anything {
        return Err(Error::NotAcceptable);
    }
    let asked = ListenParams::parse(call.params())?.notifications;
    if asked.task_ids.is_some() {
        call.caller.must_declare_tasks()?;
    }
    let ids = asked
        .task_ids
        .as_deref()
        .map(|ids| read_ids(ids, shared))
        .transpose()?;
    let place = shared.admission.listen(&call.caller.principal)?;
    let permit = Arc::clone(&shared.listens).try_acquire_owned();
    let permit = permit.map_err(|_| Error::Overloaded {
        what: "subscriptions",
    })?;
    let lists = Lists::open(shared, &asked).await?;
    let resources = Resources::open(shared, call, asked.resource_subscriptions).await?;

    let mut listener = Listener {
        shared: Arc::clone(shared),
        id: call.id.clone(),
        principal: call.caller.principal.clone(),
        proof: Some(Lasting::new(&call.caller, &call.headers)),
        agreed: Filter {
            resource_subscriptions: resources.as_ref().map(Resources::agreed),
            ..lists.agreed()
        },
        tasks: BTreeMap::new(),
        woken: FuturesUnordered::new(),
        first: BTreeMap::new(),
        load: {
            let key = shared.admission.key(&call.caller.principal);
            shared.memory.load(Some(key))
        },
        lists,
        resources,
        urgency: Urgency::None,
        _places: (place, permit),
        _levels: Vec::new(),
    };
    if let Some(ids) = ids {
        listener.begin(&ids).await?;
    }
    Ok(listener)
}

/// What is no id is like an unknown one: left out. How many were sent is limited all the same.
fn read_ids(texts: &[String], shared: &Shared) -> Result<BTreeSet<TaskId>, InvalidParams> {
    let max = shared.config.limits.listen_ids_max;
    if texts.len() > max {
        return Err(InvalidParams::new(format!(
            "`notifications.taskIds` has {} ids; one stream takes at most {max}",
            texts.len()
        )));
    }
    Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
}

struct Listener {
    shared: Arc<Shared>,
    id: RequestId,
    principal: Principal,
    /// Until the stream runs.
    proof: Option<Lasting>,
    agreed: Filter,
    /// When each task last changed, as told; a task that is over is told once more and left out.
    tasks: BTreeMap<TaskId, SystemTime>,
    woken: FuturesUnordered<Woken>,
    /// The tasks as they were at the first read; of large ones their ids.
    first: BTreeMap<TaskId, First>,
    /// What is sent is counted here.
    load: Load,
    lists: Lists,
    resources: Option<Resources>,
    urgency: Urgency,
    /// Of its principal, and of all.
    _places: (Place, OwnedSemaphorePermit),
    _levels: Vec<Level>,
}

/// How soon all tasks must be read, although nothing says that one changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    None,
    /// Wake-ups were lost, up to now.
    Reconnected,
    /// And the last read failed.
    Failed,
}

/// What is told first of a task.
enum First {
    Known(Box<Task>),
    /// It is read again when its turn comes: many large ones together take too much memory.
    Large(TaskId),
}

/// The client reads no more.
struct Gone;

impl Listener {
    /// Agrees to the tasks of this caller, and watches those that go on.
    async fn begin(&mut self, ids: &BTreeSet<TaskId>) -> Result<(), Error> {
        let (mut kept, mut live) = (0, Vec::new());
        let ids: Vec<TaskId> = ids.iter().copied().collect();
        for some in ids.chunks(AT_ONCE) {
            for task in own(&self.shared, &self.principal, some).await? {
                match task.status.is_terminal() {
                    true => self.keep(task, &mut kept),
                    false => live.push(task.id),
                }
            }
        }
        let queue = &self.shared.queue;
        let watching = live.iter().map(async |id| (*id, queue.watch(*id).await));
        let mut watches: BTreeMap<_, _> = join_all(watching).await.into_iter().collect();
        for some in live.chunks(AT_ONCE) {
            for task in own(&self.shared, &self.principal, some).await? {
                let watch = watches.remove(&task.id);
                let watch = watch.filter(|_| !task.status.is_terminal());
                self.woken
                    .extend(watch.map(|watch| Woken::wait(task.id, watch)));
                self.keep(task, &mut kept);
            }
        }
        let agreed: Vec<String> = self.tasks.keys().map(TaskId::to_string).collect();
        self.agreed.task_ids = Some(agreed);
        Ok(())
    }

    /// Keeps a task until it is told of first; beside `kept` bytes of others.
    fn keep(&mut self, task: Box<Task>, kept: &mut usize) {
        let id = task.id;
        self.tasks.insert(id, task.last_updated_at);
        *kept += length(&task);
        let first = match task.withheld == 0 && *kept <= KEPT_BYTES_MAX {
            true => First::Known(task),
            false => First::Large(id),
        };
        self.first.insert(id, first);
    }

    async fn run(mut self, sender: mpsc::Sender<Message>, mut meter: Meter) -> Message {
        self._levels = vec![
            Level::raise(&self.shared.metrics.listens, 1),
            Level::raise(&self.shared.metrics.listened_tasks, self.tasks.len()),
            Level::raise(
                &self.shared.metrics.listened_resources,
                self.agreed
                    .resource_subscriptions
                    .as_ref()
                    .map_or(0, Vec::len),
            ),
        ];
        let (shared, proof) = (Arc::clone(&self.shared), self.proof.take());
        let ended = async {
            match proof {
                Some(proof) => {
                    let every = shared.config.listen_recheck;
                    let refused = shared.door.auth.ended(proof, every).await;
                    tracing::debug!(?refused, "a subscription ends with its token");
                }
                None => std::future::pending().await,
            }
        };
        let told = tokio::select! {
            // The acknowledgement comes first even on a stream that opens as the process ends.
            biased;
            told = self.tell(&sender) => told,
            // Whatever it waits for: Postgres, or a client that reads slowly.
            () = shared.closing.cancelled() => Ok(()),
            // Whoever may not ask again is told no more.
            () = ended => Ok(()),
        };
        if told.is_err() {
            // The stream was dropped, and this with it.
            std::future::pending::<()>().await;
        }
        meter.outcome("ok");
        Message {
            json: subscriptions::write_final(&self.id, &self.shared.meta),
            mark: None,
        }
    }

    /// For ever, or until what was agreed to holds no longer. What reads is boxed: most streams wait nearly all of
    /// the time, and shall not keep room for it meanwhile.
    async fn tell(&mut self, sender: &mpsc::Sender<Message>) -> Result<(), Gone> {
        send(
            sender,
            subscriptions::write_acknowledged(&self.id, &self.agreed),
        )
        .await?;
        for first in std::mem::take(&mut self.first).into_values() {
            match first {
                First::Known(task) => Box::pin(self.show(&task, sender)).await?,
                First::Large(id) => {
                    // As if it had never been told of.
                    self.tasks.insert(id, SystemTime::UNIX_EPOCH);
                    Box::pin(self.read(vec![id], sender)).await?;
                }
            }
        }
        let mut connected = self.shared.queue.connected();
        let mut read_at = Instant::now();
        loop {
            let due = read_at + self.pause(*connected.borrow_and_update());
            tokio::select! {
                Some((id, event, watch)) = self.woken.next() => {
                    Box::pin(self.woken(id, &event, sender)).await?;
                    if self.tasks.contains_key(&id) {
                        self.woken.push(Woken::wait(id, watch));
                    }
                }
                list = self.lists.changed() => {
                    let write = match list {
                        List::Tools => subscriptions::write_tools_list_changed,
                        List::Prompts => subscriptions::write_prompts_list_changed,
                        List::Resources => subscriptions::write_resources_list_changed,
                    };
                    send(sender, write(&self.id)).await?;
                }
                changed = changed_resources(&mut self.resources) => {
                    // The client listens again, and is acknowledged what it can hear of now.
                    let Ok(uris) = changed else { return Ok(()) };
                    for uri in uris {
                        send(sender, subscriptions::write_resource_updated(&self.id, &uri)).await?;
                    }
                }
                // Only to look at the pause again.
                Ok(()) = connected.changed() => {}
                () = tokio::time::sleep_until(due), if !self.tasks.is_empty() => {
                    read_at = Instant::now();
                    let all = self.tasks.keys().copied().collect();
                    Box::pin(self.read(all, sender)).await?;
                }
            }
        }
    }

    fn pause(&self, connected: bool) -> Duration {
        match self.urgency {
            Urgency::Reconnected => GATHER,
            Urgency::Failed => URGENT,
            Urgency::None if connected => self.shared.config.listen_recheck,
            Urgency::None => URGENT,
        }
    }

    async fn woken(
        &mut self,
        id: TaskId,
        event: &Event,
        sender: &mpsc::Sender<Message>,
    ) -> Result<(), Gone> {
        match event {
            Event::Changed => self.read(vec![id], sender).await,
            // All watches hear of it at about the same time: one read for all.
            Event::Reconnected => {
                self.urgency = self.urgency.max(Urgency::Reconnected);
                Ok(())
            }
            // Held calls get it; tasks have their status message.
            Event::Progress(_) => Ok(()),
        }
    }

    /// Reads these tasks and tells of those that changed.
    async fn read(&mut self, ids: Vec<TaskId>, sender: &mpsc::Sender<Message>) -> Result<(), Gone> {
        let ids = ids.into_iter().filter(|id| self.tasks.contains_key(id));
        let wanted: Vec<_> = ids.map(|id| (self.principal.clone(), id)).collect();
        let all = wanted.len() == self.tasks.len();
        for some in wanted.chunks(AT_ONCE) {
            // Whoever reads slowly has no more read for it.
            self.load.room().await;
            let Ok(read) = self.shared.store.get_many(some).await else {
                // Postgres is away: what changes meanwhile is found when it is back.
                self.urgency = Urgency::Failed;
                return Ok(());
            };
            for ((_, id), lookup) in some.iter().zip(read) {
                match lookup {
                    Ok(Lookup::Found(task))
                        if self.tasks.get(id) != Some(&task.last_updated_at) =>
                    {
                        if !self.show_whole(task, sender).await? {
                            self.urgency = Urgency::Failed;
                            return Ok(());
                        }
                    }
                    Ok(Lookup::Found(_)) => {}
                    // One that cannot be read now tells whoever asks for it why.
                    Ok(Lookup::Expired { .. } | Lookup::Unknown) | Err(_) => {
                        self.tasks.remove(id);
                    }
                }
            }
        }
        if all {
            self.urgency = Urgency::None;
        }
        Ok(())
    }

    /// Tells of a task, however long its result is. Whether it could be read.
    async fn show_whole(
        &mut self,
        task: Box<Task>,
        sender: &mpsc::Sender<Message>,
    ) -> Result<bool, Gone> {
        let id = task.id;
        match large::whole(&self.shared, &self.principal, Lookup::Found(task)).await {
            Ok(Lookup::Found(task)) => self.show(&task, sender).await.map(|()| true),
            Err(Error::Store(store::Error::Unavailable(_) | store::Error::Timeout(_))) => Ok(false),
            Ok(Lookup::Expired { .. } | Lookup::Unknown) | Err(_) => {
                self.tasks.remove(&id);
                Ok(true)
            }
        }
    }

    async fn show(&mut self, task: &Task, sender: &mpsc::Sender<Message>) -> Result<(), Gone> {
        if task.status.is_terminal() {
            // Terminal never changes again.
            self.tasks.remove(&task.id);
        } else {
            self.tasks.insert(task.id, task.last_updated_at);
        }
        let Ok(shown) = view::task(&self.shared, task) else {
            tracing::error!(task.id = %task.id, "task lacks what its status promises");
            return Ok(());
        };
        let json = one_line(subscriptions::write_task(&self.id, &shown));
        let message = Message {
            json: self.load.weigh(json),
            mark: view::fetched(task),
        };
        sender.send(message).await.map_err(|_| Gone)
    }
}

/// The principal's tasks among these. One that cannot be read is not agreed to.
async fn own(
    shared: &Shared,
    principal: &Principal,
    ids: &[TaskId],
) -> Result<Vec<Box<Task>>, Error> {
    let wanted: Vec<_> = ids.iter().map(|id| (principal.clone(), *id)).collect();
    let lookups = shared.store.get_many(&wanted).await?;
    let own = lookups.into_iter().filter_map(|lookup| match lookup {
        Ok(Lookup::Found(task)) => Some(task),
        Ok(Lookup::Expired { .. } | Lookup::Unknown) | Err(_) => None,
    });
    Ok(own.collect())
}

/// Of what a task carries.
fn length(task: &Task) -> usize {
    let parts = [&task.result, &task.error, &task.input_requests];
    parts.into_iter().flatten().map(Bytes::len).sum()
}

async fn send(sender: &mpsc::Sender<Message>, json: Bytes) -> Result<(), Gone> {
    sender
        .send(Message { json, mark: None })
        .await
        .map_err(|_| Gone)
}

/// For ever where no resources were asked for.
async fn changed_resources(resources: &mut Option<Resources>) -> Result<Vec<String>, Displaced> {
    match resources {
        Some(resources) => resources.changed().await,
        None => std::future::pending().await,
    }
}

/// The next event of one task's watch, and the watch back.
struct Woken(Pin<Box<dyn Future<Output = (TaskId, Event, Watch)> + Send>>);

impl Woken {
    fn wait(id: TaskId, mut watch: Watch) -> Self {
        Self(Box::pin(async move {
            let event = watch.next().await;
            (id, event, watch)
        }))
    }
}

impl Future for Woken {
    type Output = (TaskId, Event, Watch);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}
