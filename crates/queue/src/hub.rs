//! Who in this process watches which channel.
//!
//! Pure bookkeeping under one lock: registering, refcounts, delivery. What is registered is what
//! should be subscribed; the subscriber makes it so.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::metrics::Metrics;

/// Progress messages kept for a watcher that is busy; older ones are dropped.
const PROGRESS_MAX: usize = 16;

/// First byte of a message: something changed, look.
pub(crate) const CHANGED: u8 = b'c';
/// First byte of a message: progress follows.
pub(crate) const PROGRESS: u8 = b'p';

/// What a watcher learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something about the task may have changed: read it. Several changes may come as one.
    Changed,
    /// Progress of the running tool, as the worker gave it: lossy, never state.
    Progress(Bytes),
    /// Messages may have been lost: read the task. Comes after every break of the subscription,
    /// and when one that began without Redis is in place.
    Reconnected,
}

/// Interest in one channel; ends when dropped.
pub struct Watch {
    hub: Arc<Hub>,
    channel: Arc<str>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    pending: Mutex<Pending>,
    arrived: Notify,
}

#[derive(Default)]
struct Pending {
    reconnected: bool,
    progress: VecDeque<Bytes>,
    changed: bool,
}

impl Watch {
    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.inbox.take() {
                return event;
            }
            self.inbox.arrived.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.remove(&self.channel, &self.inbox);
    }
}

impl Inbox {
    fn take(&self) -> Option<Event> {
        let mut pending = self.pending();
        if std::mem::take(&mut pending.reconnected) {
            // Whoever reads the task now sees every change up to now.
            pending.changed = false;
            return Some(Event::Reconnected);
        }
        if let Some(progress) = pending.progress.pop_front() {
            return Some(Event::Progress(progress));
        }
        std::mem::take(&mut pending.changed).then_some(Event::Changed)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.pending());
        self.arrived.notify_one();
    }
}

/// All watches of this process.
pub(crate) struct Hub {
    state: Mutex<State>,
    orders: mpsc::UnboundedSender<Order>,
    catalogue: watch::Sender<u64>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// Whether the subscriber takes orders. When it does not, the registry alone counts: the next
    /// connection starts from it.
    up: bool,
    generation: u64,
}

struct Channel {
    inboxes: Vec<Arc<Inbox>>,
    generation: u64,
    subscribed: bool,
}

/// What the subscriber is told to do. Orders are carried out as given, one after another.
pub(crate) enum Order {
    Subscribe {
        channel: Arc<str>,
        generation: u64,
        done: oneshot::Sender<()>,
    },
    Unsubscribe {
        channel: Arc<str>,
    },
}

impl Hub {
    pub(crate) fn new(metrics: Metrics) -> (Arc<Hub>, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let catalogue = watch::Sender::new(0);
        (
            Arc::new(Hub {
                state: Mutex::default(),
                orders,
                catalogue,
                metrics,
            }),
            receiver,
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalogue(&self) -> watch::Receiver<u64> {
        self.catalogue.subscribe()
    }

    /// Registers interest. If the channel is not subscribed yet, the receiver tells when it is.
    /// `Err`: nobody will tell, Redis is not reachable.
    pub(crate) fn register(
        self: &Arc<Self>,
        channel: String,
    ) -> (Watch, Result<Option<oneshot::Receiver<()>>, ()>) {
        let channel: Arc<str> = channel.into();
        let inbox = Arc::new(Inbox::default());
        let mut state = self.state();
        state.generation += 1;
        let fresh = Channel {
            inboxes: Vec::new(),
            generation: state.generation,
            subscribed: false,
        };
        let up = state.up;
        let entry = state.channels.entry(Arc::clone(&channel)).or_insert(fresh);
        entry.inboxes.push(Arc::clone(&inbox));
        let waiting = if entry.subscribed {
            Ok(None)
        } else if up {
            let (done, waiting) = oneshot::channel();
            let generation = entry.generation;
            // Subscribing twice is harmless, and each watcher wants to know when it is done.
            self.order(Order::Subscribe {
                channel: Arc::clone(&channel),
                generation,
                done,
            });
            Ok(Some(waiting))
        } else {
            Err(())
        };
        drop(state);
        self.metrics.watches.inc();
        (
            Watch {
                hub: Arc::clone(self),
                channel,
                inbox,
            },
            waiting,
        )
    }

    fn remove(&self, channel: &Arc<str>, inbox: &Arc<Inbox>) {
        self.metrics.watches.dec();
        let mut state = self.state();
        let up = state.up;
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        entry.inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
        if !entry.inboxes.is_empty() {
            return;
        }
        state.channels.remove(channel);
        if up {
            self.order(Order::Unsubscribe {
                channel: Arc::clone(channel),
            });
        }
    }

    /// Called under the lock, so that orders are in the order of the registry's changes.
    fn order(&self, order: Order) {
        // Without a subscriber the process is on its way out.
        drop(self.orders.send(order));
    }

    /// The subscriber has a new connection: forgets orders meant for the old one, takes new ones
    /// from now on, and says what to subscribe first.
    pub(crate) fn begin(&self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Vec<Arc<str>> {
        let mut state = self.state();
        while orders.try_recv().is_ok() {}
        state.up = true;
        state.channels.keys().cloned().collect()
    }

    /// The first subscriptions of a new connection are in place.
    pub(crate) fn resumed(&self, channels: &[Arc<str>]) {
        let mut state = self.state();
        for channel in channels {
            if let Some(entry) = state.channels.get_mut(channel) {
                entry.subscribed = true;
                for inbox in &entry.inboxes {
                    inbox.put(|pending| pending.reconnected = true);
                }
            }
        }
        drop(state);
        self.catalogue_changed();
    }

    /// The connection is lost.
    pub(crate) fn lost(&self) {
        let mut state = self.state();
        state.up = false;
        for channel in state.channels.values_mut() {
            channel.subscribed = false;
        }
    }

    /// An ordered subscription is in place.
    pub(crate) fn subscribed(
        &self,
        channel: &Arc<str>,
        generation: u64,
        done: oneshot::Sender<()>,
    ) {
        let mut state = self.state();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if entry.generation != generation {
            return;
        }
        entry.subscribed = true;
        if done.send(()).is_err() {
            // The watcher gave up waiting and has looked already; what came since is unknown.
            for inbox in &entry.inboxes {
                inbox.put(|pending| pending.reconnected = true);
            }
        }
    }

    /// A message of a task's channel arrived.
    pub(crate) fn deliver(&self, channel: &str, message: &[u8]) {
        let state = self.state();
        let Some(entry) = state.channels.get(channel) else {
            return;
        };
        match message.split_first() {
            Some((&PROGRESS, progress)) => {
                self.metrics.received.with_label_values(&["progress"]).inc();
                let progress = Bytes::copy_from_slice(progress);
                for inbox in &entry.inboxes {
                    inbox.put(|pending| self.keep_progress(pending, progress.clone()));
                }
            }
            // A kind from a later release is at least a reason to look.
            _ => {
                self.metrics.received.with_label_values(&["changed"]).inc();
                for inbox in &entry.inboxes {
                    inbox.put(|pending| pending.changed = true);
                }
            }
        }
    }

    fn keep_progress(&self, pending: &mut Pending, progress: Bytes) {
        if pending.progress.len() == PROGRESS_MAX {
            pending.progress.pop_front();
            self.metrics.progress_dropped.inc();
        }
        pending.progress.push_back(progress);
    }

    /// The catalogue changed, or may have.
    pub(crate) fn catalogue_changed(&self) {
        self.catalogue
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use telemetry::Registry;

    use super::*;

    fn hub() -> (Arc<Hub>, mpsc::UnboundedReceiver<Order>) {
        Hub::new(Metrics::prepared(&Registry::new()))
    }

    #[test]
    fn without_a_subscriber_a_watch_is_degraded_and_hears_of_the_connection() {
        let (hub, mut orders) = hub();
        let (mut watch, waiting) = hub.register("a".to_owned());
        assert!(waiting.is_err());
        assert!(orders.try_recv().is_err(), "nobody would carry it out");
        let channels = hub.begin(&mut orders);
        hub.resumed(&channels);
        assert_eq!(watch.next().now_or_never(), Some(Event::Reconnected));
        assert_eq!(watch.next().now_or_never(), None);
    }

    #[test]
    fn changes_are_coalesced_and_progress_is_bounded() {
        let (hub, mut orders) = hub();
        hub.begin(&mut orders);
        let (mut watch, _waiting) = hub.register("a".to_owned());
        hub.deliver("a", b"c");
        hub.deliver("a", b"c");
        hub.deliver("other", b"c");
        for number in 0..20_u8 {
            hub.deliver("a", &[PROGRESS, number]);
        }
        for number in 4..20_u8 {
            let progress = Event::Progress(Bytes::copy_from_slice(&[number]));
            assert_eq!(watch.next().now_or_never(), Some(progress));
        }
        assert_eq!(watch.next().now_or_never(), Some(Event::Changed));
        assert_eq!(watch.next().now_or_never(), None);
    }

    #[test]
    fn the_last_watch_of_a_channel_unsubscribes() {
        let (hub, mut orders) = hub();
        hub.begin(&mut orders);
        let (first, _) = hub.register("a".to_owned());
        let (second, _) = hub.register("a".to_owned());
        let mut subscribed = 0;
        while let Ok(Order::Subscribe {
            channel,
            generation,
            done,
        }) = orders.try_recv()
        {
            hub.subscribed(&channel, generation, done);
            subscribed += 1;
        }
        assert_eq!(subscribed, 2);
        let (third, waiting) = hub.register("a".to_owned());
        assert!(matches!(waiting, Ok(None)), "subscribed already");
        drop((first, third));
        assert!(orders.try_recv().is_err());
        drop(second);
        assert!(matches!(orders.try_recv(), Ok(Order::Unsubscribe { .. })));
    }

    #[test]
    fn an_old_acknowledgement_does_not_count_for_a_new_watch() {
        let (hub, mut orders) = hub();
        hub.begin(&mut orders);
        drop(hub.register("a".to_owned()));
        let (mut watch, waiting) = hub.register("a".to_owned());
        let Ok(Order::Subscribe {
            channel,
            generation,
            done,
        }) = orders.try_recv()
        else {
            panic!("the first watch ordered a subscription")
        };
        hub.subscribed(&channel, generation, done);
        assert!(waiting.unwrap().unwrap().now_or_never().is_none());
        assert_eq!(watch.next().now_or_never(), None);
    }

    #[test]
    fn a_watch_that_gave_up_waiting_is_told_to_look_again() {
        let (hub, mut orders) = hub();
        hub.begin(&mut orders);
        let (mut watch, waiting) = hub.register("a".to_owned());
        drop(waiting);
        let Ok(Order::Subscribe {
            channel,
            generation,
            done,
        }) = orders.try_recv()
        else {
            panic!("a subscription was ordered")
        };
        hub.subscribed(&channel, generation, done);
        assert_eq!(watch.next().now_or_never(), Some(Event::Reconnected));
    }
}
