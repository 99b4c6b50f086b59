//! Telling other processes to look: publish, best effort.
//!
//! A message says "look", nothing more; only progress of a held call carries something, and may
//! be lost. Whoever waits also looks at the database from time to time.

use std::sync::Arc;

use protocol::TaskId;
use tokio::time::timeout;

use crate::error::Error;
use crate::hub::{CHANGED, Hub, PROGRESS, Watch};
use crate::keys::Channel;
use crate::link::Link;

impl Link {
    pub(crate) async fn wake(&self, id: TaskId) {
        self.publish("changed", self.keys.changes(id), &[CHANGED])
            .await;
    }

    pub(crate) async fn stop(&self, id: TaskId) {
        self.publish("stop", self.keys.stops(id), &[CHANGED]).await;
    }

    pub(crate) async fn progress(&self, id: TaskId, json: &[u8]) {
        if json.len() > self.config.progress_bytes_max {
            self.metrics
                .published
                .with_label_values(&["progress", "too_large"])
                .inc();
            return;
        }
        let message = [&[PROGRESS], json].concat();
        self.publish("progress", self.keys.changes(id), &message)
            .await;
    }

    pub(crate) async fn catalogue_changed(&self) {
        self.publish("catalogue", self.keys.catalogue(0), &[CHANGED])
            .await;
    }

    pub(crate) async fn resource_updated(&self, uri: &str) {
        self.publish("resource", self.keys.resource(uri), &[CHANGED])
            .await;
    }

    pub(crate) async fn wanted_changed(&self) {
        self.publish("wanted", self.keys.wanted(), &[CHANGED]).await;
    }

    async fn publish(&self, kind: &str, channel: Channel, message: &[u8]) {
        // To all servers of a cluster, a plain one would go.
        let publish = if self.config.cluster {
            "SPUBLISH"
        } else {
            "PUBLISH"
        };
        let mut command = redis::cmd(publish);
        command.arg(&channel.name).arg(message);
        let result = self.command::<u64>(channel.shard, &command).await;
        let outcome = result.as_ref().map_or_else(Error::label, |_| "ok");
        self.metrics
            .published
            .with_label_values(&[kind, outcome])
            .inc();
    }

    /// Registers interest in a channel; returns when the subscription is in place, or at once when
    /// it can't be.
    pub(crate) async fn watch(&self, hub: &Arc<Hub>, channel: String) -> Watch {
        let (watch, waiting) = hub.register(channel);
        let subscribed = match waiting {
            Ok(None) => true,
            Ok(Some(waiting)) => {
                matches!(
                    timeout(self.config.command_timeout, waiting).await,
                    Ok(Ok(()))
                )
            }
            Err(()) => false,
        };
        if !subscribed {
            self.metrics.watches_degraded.inc();
        }
        watch
    }
}
