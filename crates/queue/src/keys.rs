//! Every key and channel name, and which shard a task belongs to.
//!
//! All keys of one shard share the hash tag `{prefix:sN}`, so that Redis Cluster keeps them on one
//! node, where scripts may touch them together. Channels need no tag.

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
}

impl Keys {
    pub(crate) fn new(prefix: &str, shards: u16) -> Keys {
        Keys {
            prefix: prefix.into(),
            shards,
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
    pub(crate) fn changes(&self, id: TaskId) -> String {
        format!("{}:task:{id}", self.prefix)
    }

    /// Where the worker of a task is told to look whether it should stop.
    pub(crate) fn stops(&self, id: TaskId) -> String {
        format!("{}:stop:{id}", self.prefix)
    }

    /// Where changes of a resource are announced. Of the URI only a hash, which keeps names short:
    /// where two have the same, somebody looks in vain.
    pub(crate) fn resource(&self, uri: &str) -> String {
        let hash = uri.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{}:resource:{hash:016x}", self.prefix)
    }

    /// Where it is announced that somebody listens to resources nobody listened to before.
    pub(crate) fn wanted(&self) -> String {
        format!("{}:wanted", self.prefix)
    }

    /// Where a change of the tool catalogue is announced.
    pub(crate) fn catalogue(&self) -> String {
        format!("{}:catalogue", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_even_and_stable() {
        let keys = Keys::new("p", 4);
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
        let keys = Keys::new("p", 4);
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
}
