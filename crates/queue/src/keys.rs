//! Every key and channel name, and which shard a task belongs to.
//!
//! All keys of one shard share the hash tag `{prefix:sN}`, so that Redis Cluster keeps them on one
//! node, where scripts may touch them together. In a cluster the channels of a shard have it, too.

use std::sync::Arc;

use protocol::TaskId;

/// The consumer group of every job stream.
pub(crate) const GROUP: &str = "workers";

/// One kind of work: a worker reads only the lanes it serves, so nobody eats another's hints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The tool's name.
    pub tool: String,
    /// The tool's version.
    pub version: i32,
}

/// Names everything in Redis.
#[derive(Clone)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    shards: u16,
    /// Whether channels belong to shards; else one connection hears all of them, under the names
    /// that every release gave them.
    sharded: bool,
}

/// Where something is announced.
pub(crate) struct Channel {
    /// Whose server carries it.
    pub shard: u16,
    pub name: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, shards: u16, sharded: bool) -> Keys {
        Keys {
            prefix: prefix.into(),
            shards,
            sharded,
        }
    }

    pub(crate) fn shards(&self) -> std::ops::Range<u16> {
        0..self.shards
    }

    /// The shard of a task: FNV-1a over the id's bytes, the same in every process and release.
    pub(crate) fn shard(&self, id: TaskId) -> u16 {
        let hash = id
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        self.part(hash)
    }

    fn part(&self, hash: u64) -> u16 {
        // FNV mixes upwards: the low bits alone would depend on few bits of the id.
        let mixed = hash ^ (hash >> 32);
        u16::try_from(mixed % u64::from(self.shards)).expect("smaller than a u16 number of shards")
    }

    /// The job stream of a lane in a shard.
    pub(crate) fn stream(&self, shard: u16, lane: &Lane) -> String {
        format!(
            "{{{}:s{shard}}}:jobs:{}:{}",
            self.prefix, lane.tool, lane.version
        )
    }

    /// The lane of a job stream, read from its name.
    pub(crate) fn lane(stream: &str) -> Option<Lane> {
        // A tool's name may hold anything but this very separator after a hash tag.
        let (_, name) = stream.split_once("}:jobs:")?;
        let (tool, version) = name.rsplit_once(':')?;
        Some(Lane {
            tool: tool.to_owned(),
            version: version.parse().ok()?,
        })
    }

    /// Hash with the shard's epoch and the number of hints ever pushed.
    pub(crate) fn epoch(&self, shard: u16) -> String {
        format!("{{{}:s{shard}}}:epoch", self.prefix)
    }

    /// Sorted set of the shard's job streams, by when they were last used (seconds, Redis' clock).
    pub(crate) fn lanes(&self, shard: u16) -> String {
        format!("{{{}:s{shard}}}:lanes", self.prefix)
    }

    /// Where changes and progress of a task are announced.
    pub(crate) fn changes(&self, id: TaskId) -> Channel {
        self.channel(self.shard(id), format_args!("task:{id}"))
    }

    /// Where the worker of a task is told to look whether it should stop.
    pub(crate) fn stops(&self, id: TaskId) -> Channel {
        self.channel(self.shard(id), format_args!("stop:{id}"))
    }

    /// Where changes of a resource are announced. Of the URI only a hash, which keeps names short:
    /// where two have the same, somebody looks in vain.
    pub(crate) fn resource(&self, uri: &str) -> Channel {
        let hash = uri.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.channel(self.part(hash), format_args!("resource:{hash:016x}"))
    }

    /// Where it is announced that somebody listens to resources nobody listened to before.
    pub(crate) fn wanted(&self) -> Channel {
        self.channel(0, format_args!("wanted"))
    }

    /// Where a change of the tool catalogue is announced: the first shard's.
    pub(crate) fn catalogue(&self, shard: u16) -> Channel {
        self.channel(shard, format_args!("catalogue"))
    }

    fn channel(&self, shard: u16, what: std::fmt::Arguments<'_>) -> Channel {
        let prefix = &self.prefix;
        let name = if self.sharded {
            format!("{{{prefix}:s{shard}}}:{what}")
        } else {
            format!("{prefix}:{what}")
        };
        Channel { shard, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_even_and_stable() {
        let keys = Keys::new("p", 4, false);
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[usize::from(keys.shard(TaskId::new(1_764_000_000_000)))] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
        let id: TaskId = "01963d5c-7a10-7abc-8def-0123456789ab".parse().unwrap();
        assert_eq!(
            keys.shard(id),
            3,
            "another hash would strand what is queued in an upgrade"
        );
    }

    #[test]
    fn keys_of_a_shard_share_the_hash_tag() {
        let keys = Keys::new("p", 4, false);
        let lane = Lane {
            tool: "a:b{c}".to_owned(),
            version: 2,
        };
        assert_eq!(keys.stream(3, &lane), "{p:s3}:jobs:a:b{c}:2");
        assert_eq!(Keys::lane(&keys.stream(3, &lane)), Some(lane));
        assert_eq!(Keys::lane("{p:s3}:epoch"), None);
        assert!(keys.epoch(3).starts_with("{p:s3}:"));
        assert!(keys.lanes(3).starts_with("{p:s3}:"));
    }
    #[test]
    fn channels_belong_to_shards_in_a_cluster_and_keep_their_names_elsewhere() {
        let id: TaskId = "01963d5c-7a10-7abc-8def-0123456789ab".parse().unwrap();
        let (one, many) = (Keys::new("p", 4, false), Keys::new("p", 4, true));
        assert_eq!(one.changes(id).name, format!("p:task:{id}"));
        assert_eq!(one.stops(id).name, format!("p:stop:{id}"));
        assert_eq!(one.wanted().name, "p:wanted");
        assert_eq!(one.catalogue(0).name, "p:catalogue");
        assert_eq!(many.changes(id).name, format!("{{p:s3}}:task:{id}"));
        assert_eq!(many.changes(id).shard, 3);
        assert_eq!(many.catalogue(2).name, "{p:s2}:catalogue");
        let resource = many.resource("file:///a");
        assert!(
            resource
                .name
                .starts_with(&format!("{{p:s{}}}:resource:", resource.shard))
        );
    }
}
