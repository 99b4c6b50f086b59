//! One connection that carries subscriptions, in either of two ways: `SUBSCRIBE`, or in a cluster
//! `SSUBSCRIBE`, whose messages stay with the servers of one shard, so that adding servers does not
//! multiply traffic.

use std::sync::Arc;

use futures::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Msg, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::link::{Link, within};

/// Where subscriptions are ordered.
#[derive(Clone)]
pub(crate) enum Sink {
    Plain(PubSubSink),
    Sharded(MultiplexedConnection),
}

/// Where messages come from.
pub(crate) enum Source {
    Plain(Box<PubSubStream>),
    Sharded {
        pushes: UnboundedReceiver<PushInfo>,
        /// Subscribed for as long as the server keeps the shard.
        anchor: Arc<str>,
    },
}

/// Connects to the server of a shard.
pub(crate) async fn open(
    link: &Link,
    shard: u16,
    anchor: &Arc<str>,
) -> RedisResult<(Sink, Source)> {
    if !link.config.cluster {
        let client = link.address.client(None)?;
        let connecting = client.get_async_pubsub();
        let (sink, stream) = within(link.config.connect_timeout, connecting)
            .await?
            .split();
        return Ok((Sink::Plain(sink), Source::Plain(Box::new(stream))));
    }
    let node = link.node(shard).ok_or_else(|| {
        redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected))
    })?;
    let (sender, pushes) = mpsc::unbounded_channel();
    let connection = link.connect_with(node.at.as_ref(), Some(sender)).await?;
    let anchor = Arc::clone(anchor);
    Ok((
        Sink::Sharded(connection),
        Source::Sharded { pushes, anchor },
    ))
}

impl Sink {
    pub(crate) async fn subscribe(&mut self, channels: &[&str]) -> RedisResult<()> {
        match self {
            Sink::Plain(sink) => sink.subscribe(channels).await,
            Sink::Sharded(connection) => each("SSUBSCRIBE", channels, connection).await,
        }
    }

    pub(crate) async fn unsubscribe(&mut self, channels: &[&str]) -> RedisResult<()> {
        match self {
            Sink::Plain(sink) => sink.unsubscribe(channels).await,
            Sink::Sharded(connection) => each("SUNSUBSCRIBE", channels, connection).await,
        }
    }

    /// Asks whether the connection lives and, in a cluster, whether its server still keeps the
    /// shard: one that was cut off from the others says so, and would else be silent for ever.
    pub(crate) async fn ping(&mut self, anchor: &str) -> RedisResult<()> {
        match self {
            Sink::Plain(sink) => sink.ping::<Value>().await.map(drop),
            Sink::Sharded(connection) => each("SSUBSCRIBE", &[anchor], connection).await,
        }
    }
}

/// One command a channel, all in one write: the server answers each channel by itself.
async fn each(
    command: &str,
    channels: &[&str],
    connection: &mut MultiplexedConnection,
) -> RedisResult<()> {
    if let [channel] = channels {
        // By itself, an error says what it is.
        let mut one = redis::cmd(command);
        return one
            .arg(*channel)
            .query_async::<Value>(connection)
            .await
            .map(drop);
    }
    let mut all = redis::pipe();
    for channel in channels {
        all.cmd(command).arg(*channel).ignore();
    }
    all.query_async(connection).await
}

impl Source {
    /// The next message; `None` when no more will come. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Msg> {
        match self {
            Source::Plain(stream) => stream.next().await,
            Source::Sharded { pushes, anchor } => loop {
                let push = pushes.recv().await?;
                match push.kind {
                    PushKind::Disconnection => return None,
                    // The shard went to another server.
                    PushKind::SUnsubscribe if names(&push, anchor) => return None,
                    PushKind::SMessage => return Msg::from_push_info(push),
                    _ => {}
                }
            },
        }
    }
}

fn names(push: &PushInfo, channel: &str) -> bool {
    matches!(push.data.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}
