//! The task that keeps subscriptions on one connection: all of this process, or those of one shard
//! of a cluster.
//!
//! A new connection first subscribes to everything registered, then tells every watcher that
//! messages may have been lost. Orders that come while some are under way are sent together in one
//! command of each kind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redis::RedisResult;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::{is_elsewhere, refusal};
use crate::hub::{Hub, Order};
use crate::line::{self, Sink, Source};
use crate::link::{Link, within};

/// Orders carried out at once, and channels in one command.
const BATCH: usize = 256;
/// How often a silent connection is asked whether it still lives.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps subscriptions until `shutdown`.
pub(crate) struct Subscriber {
    pub link: Arc<Link>,
    pub hub: Arc<Hub>,
    pub orders: UnboundedReceiver<Order>,
    /// Whose channels these are; without a cluster, all are the first's.
    pub shard: u16,
    /// Where the catalogue's changes are announced; always subscribed.
    pub anchor: Arc<str>,
}

impl Subscriber {
    pub(crate) async fn keep(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::default();
        loop {
            let error = tokio::select! {
                () = shutdown.cancelled() => return,
                error = self.connect_and_serve(&mut backoff) => error,
            };
            self.hub.lost();
            let moved = self.link.config.cluster && is_elsewhere(&error);
            let refused = if moved { None } else { refusal(&error) };
            self.link.tell_subscriber(self.shard.into(), false, refused);
            self.link.look_around();
            tracing::debug!(error = %error, "lost the subscriptions");
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(backoff.failed()) => {}
            }
        }
    }

    /// Returns when the connection no longer works.
    async fn connect_and_serve(&mut self, backoff: &mut Backoff) -> redis::RedisError {
        match self.connect().await {
            Ok((sink, source)) => {
                backoff.worked();
                self.link
                    .metrics
                    .connects
                    .with_label_values(&["subscriber"])
                    .inc();
                self.link.tell_subscriber(self.shard.into(), true, None);
                self.serve(sink, source).await
            }
            Err(error) => error,
        }
    }

    async fn connect(&mut self) -> RedisResult<(Sink, Source)> {
        let (mut sink, source) = line::open(&self.link, self.shard, &self.anchor).await?;
        let channels = self.hub.begin(&mut self.orders);
        let limit = self.link.config.command_timeout;
        within(limit, sink.subscribe(&[&*self.anchor])).await?;
        for some in channels.chunks(BATCH) {
            within(limit, sink.subscribe(&names(some))).await?;
        }
        self.hub.resumed(&channels);
        Ok((sink, source))
    }

    async fn serve(&mut self, sink: Sink, mut source: Source) -> redis::RedisError {
        let mut under_way: Option<BoxFuture<'static, RedisResult<Vec<Order>>>> = None;
        let mut orders = Vec::with_capacity(BATCH);
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.reset();
        loop {
            let idle = under_way.is_none();
            tokio::select! {
                message = source.next() => match message {
                    Some(message) => self.deliver(&message),
                    None => return closed(),
                },
                result = async { under_way.as_mut().expect("guarded").await }, if !idle => {
                    under_way = None;
                    match result {
                        Ok(done) => self.confirm(done),
                        Err(error) => return error,
                    }
                }
                _ = self.orders.recv_many(&mut orders, BATCH), if idle => {
                    let batch = std::mem::take(&mut orders);
                    under_way = Some(Box::pin(self.carry_out(sink.clone(), batch)));
                }
                _ = ping.tick(), if idle => {
                    let mut sink = sink.clone();
                    let limit = self.link.config.command_timeout;
                    let anchor = Arc::clone(&self.anchor);
                    under_way = Some(Box::pin(async move {
                        within(limit, sink.ping(&anchor)).await?;
                        Ok(Vec::new())
                    }));
                }
            }
        }
    }

    /// Carries out orders, in one command of each kind. Channels have nothing to do with each other, and of several
    /// orders for one the last counts.
    fn carry_out(
        &self,
        mut sink: Sink,
        orders: Vec<Order>,
    ) -> impl Future<Output = RedisResult<Vec<Order>>> + 'static {
        let limit = self.link.config.command_timeout;
        async move {
            let (subscribe, unsubscribe) = last_of_each(&orders);
            let mut other = sink.clone();
            let subscribing = async {
                match &*subscribe {
                    [] => Ok(()),
                    channels => within(limit, sink.subscribe(channels)).await,
                }
            };
            let unsubscribing = async {
                match &*unsubscribe {
                    [] => Ok(()),
                    channels => within(limit, other.unsubscribe(channels)).await,
                }
            };
            tokio::try_join!(subscribing, unsubscribing)?;
            Ok(orders)
        }
    }

    fn confirm(&self, orders: Vec<Order>) {
        for order in orders {
            if let Order::Subscribe {
                channel,
                generation,
                done,
            } = order
            {
                self.hub.subscribed(&channel, generation, done);
            }
        }
    }

    fn deliver(&self, message: &redis::Msg) {
        let channel = message.get_channel_name();
        if channel == &*self.anchor {
            self.hub.catalogue_changed();
        } else {
            self.hub.deliver(channel, message.get_payload_bytes());
        }
    }
}

impl Order {
    fn subscribes(&self) -> bool {
        matches!(self, Order::Subscribe { .. })
    }

    fn channel(&self) -> &str {
        match self {
            Order::Subscribe { channel, .. } | Order::Unsubscribe { channel } => channel,
        }
    }
}

/// The channels to subscribe to, and those to leave.
fn last_of_each(orders: &[Order]) -> (Vec<&str>, Vec<&str>) {
    let mut known = HashSet::with_capacity(orders.len());
    let (mut subscribe, mut unsubscribe) = (Vec::new(), Vec::new());
    for order in orders.iter().rev() {
        if known.insert(order.channel()) {
            let of = if order.subscribes() {
                &mut subscribe
            } else {
                &mut unsubscribe
            };
            of.push(order.channel());
        }
    }
    (subscribe, unsubscribe)
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

fn closed() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn of_several_orders_for_a_channel_the_last_counts() {
        let order = |text: &str| {
            let channel = Arc::from(&text[1..]);
            match &text[..1] {
                "+" => Order::Subscribe {
                    channel,
                    generation: 1,
                    done: oneshot::channel().0,
                },
                _ => Order::Unsubscribe { channel },
            }
        };
        for (orders, subscribe, unsubscribe) in [
            ("+a", "a", ""),
            ("-a", "", "a"),
            ("+a -b +c -d", "c a", "d b"),
            ("+a -a", "", "a"),
            ("-a +a", "a", ""),
            ("+a +a -b -b", "a", "b"),
            ("-a +b +a -b", "a", "b"),
        ] {
            let orders: Vec<Order> = orders.split(' ').map(order).collect();
            let (to, from) = last_of_each(&orders);
            assert_eq!(
                (to.join(" "), from.join(" ")),
                (subscribe.to_owned(), unsubscribe.to_owned())
            );
        }
    }
}
