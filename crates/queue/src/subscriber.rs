//! The task that keeps this process's subscriptions on one connection.
//!
//! A new connection first subscribes to everything registered, then tells every watcher that
//! messages may have been lost. Orders that come while one is under way are sent together in one
//! command.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use redis::RedisResult;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::refusal;
use crate::hub::{Hub, Order};
use crate::link::{Link, Part, within};

/// Orders carried out at once, and channels in one command.
const BATCH: usize = 256;
/// How often a silent connection is asked whether it still lives.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps subscriptions until `shutdown`.
pub(crate) struct Subscriber {
    pub link: Arc<Link>,
    pub hub: Arc<Hub>,
    pub orders: UnboundedReceiver<Order>,
    pub catalogue: Arc<str>,
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
            self.link.mark(Part::Subscriber, false);
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
            Ok((sink, stream)) => {
                backoff.worked();
                self.link
                    .metrics
                    .connects
                    .with_label_values(&["subscriber"])
                    .inc();
                self.link.set_refused(Part::Subscriber, None);
                self.link.mark(Part::Subscriber, true);
                self.serve(sink, stream).await
            }
            Err(error) => {
                self.link.set_refused(Part::Subscriber, refusal(&error));
                error
            }
        }
    }

    async fn connect(&mut self) -> RedisResult<(PubSubSink, PubSubStream)> {
        let client = self.link.client()?;
        let connecting = client.get_async_pubsub();
        let pubsub = within(self.link.config.connect_timeout, connecting).await?;
        let (mut sink, stream) = pubsub.split();
        let channels = self.hub.begin(&mut self.orders);
        let limit = self.link.config.command_timeout;
        within(limit, sink.subscribe(&*self.catalogue)).await?;
        for some in channels.chunks(BATCH) {
            within(limit, sink.subscribe(names(some))).await?;
        }
        self.hub.resumed(&channels);
        Ok((sink, stream))
    }

    async fn serve(&mut self, sink: PubSubSink, mut stream: PubSubStream) -> redis::RedisError {
        let mut under_way: Option<BoxFuture<'static, RedisResult<Vec<Order>>>> = None;
        let mut orders = Vec::with_capacity(BATCH);
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.reset();
        loop {
            let idle = under_way.is_none();
            tokio::select! {
                message = stream.next() => match message {
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
                    under_way = Some(Box::pin(async move {
                        within(limit, sink.ping::<redis::Value>()).await?;
                        Ok(Vec::new())
                    }));
                }
            }
        }
    }

    /// Carries out orders as given, neighbours of one kind in one command.
    fn carry_out(
        &self,
        mut sink: PubSubSink,
        orders: Vec<Order>,
    ) -> impl Future<Output = RedisResult<Vec<Order>>> + 'static {
        let limit = self.link.config.command_timeout;
        async move {
            for run in orders.chunk_by(|a, b| a.subscribes() == b.subscribes()) {
                let channels: Vec<&str> = run.iter().map(Order::channel).collect();
                if run[0].subscribes() {
                    within(limit, sink.subscribe(channels)).await?;
                } else {
                    within(limit, sink.unsubscribe(channels)).await?;
                }
            }
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
        if channel == &*self.catalogue {
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

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

fn closed() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}
