//! What servers say of themselves, for operators. Each is asked on a connection of its own, also one
//! that is not fit for hints.

use std::sync::Arc;

use redis::RedisResult;

use crate::address::Place;
use crate::error::Error;
use crate::link::{Link, within};
use crate::topology::Kept;

/// A server that keeps hints of ours.
#[derive(Debug)]
pub struct Server {
    /// Host and port, if it is one of a cluster; else it is the only one.
    pub at: Option<String>,
    /// Of a cluster: which part of the shards it keeps, and what would take its place.
    pub part: Option<Part>,
    /// Its `INFO`; with `config_save`: when it takes snapshots, or `off`; and of a cluster what
    /// `CLUSTER INFO` says.
    pub info: Result<String, Error>,
}

/// What a server of a cluster is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Shards of ours that it keeps.
    pub shards: usize,
    /// Replicas of it that the cluster knows of.
    pub replicas: usize,
}

/// All servers that keep hints of ours.
#[derive(Debug)]
pub struct Servers {
    /// One; or, of a cluster, its primaries that keep shards.
    pub servers: Vec<Server>,
    /// Shards that no server keeps.
    pub homeless: usize,
}

impl Link {
    pub(crate) async fn servers(self: &Arc<Self>) -> Result<Servers, Error> {
        if !self.config.cluster {
            let info = self.server_info(None).await?;
            let only = Server {
                at: None,
                part: None,
                info: Ok(info),
            };
            return Ok(Servers {
                servers: vec![only],
                homeless: 0,
            });
        }
        let kept = crate::topology::survey(self).await;
        let kept = kept.map_err(Error::from_redis)?;
        let homeless = kept.iter().filter(|one| one.is_none()).count();
        let mut parts: Vec<(Place, Part)> = Vec::new();
        for Kept { primary, replicas } in kept.into_iter().flatten() {
            match parts.iter_mut().find(|(place, _)| *place == primary) {
                Some((_, part)) => part.shards += 1,
                None => parts.push((
                    primary,
                    Part {
                        shards: 1,
                        replicas,
                    },
                )),
            }
        }
        let servers = parts.into_iter().map(|(place, part)| async move {
            Server {
                info: self.server_info(Some(&place)).await,
                at: Some(place.to_string()),
                part: Some(part),
            }
        });
        let servers = futures::future::join_all(servers).await;
        Ok(Servers { servers, homeless })
    }

    async fn server_info(&self, at: Option<&Place>) -> Result<String, Error> {
        let asking = async {
            let mut connection = self.connect(at).await?;
            let info = redis::cmd("INFO").query_async(&mut connection).await?;
            let mut info: String = text(info)?;
            // Some providers forbid to ask.
            let mut save = redis::cmd("CONFIG");
            save.arg("GET").arg("save");
            if let Ok(saved) = save.query_async::<Vec<String>>(&mut connection).await
                && let Some(value) = saved.get(1)
            {
                let value = if value.is_empty() { "off" } else { value };
                info.push_str(&format!("\r\nconfig_save:{value}\r\n"));
            }
            if at.is_some() {
                let mut cluster = redis::cmd("CLUSTER");
                cluster.arg("INFO");
                info.push_str(&text(cluster.query_async(&mut connection).await?)?);
            }
            Ok(info)
        };
        let limit = self.config.connect_timeout + self.config.command_timeout;
        within(limit, asking).await.map_err(Error::from_redis)
    }
}

/// A text that RESP3 may mark as such.
fn text(value: redis::Value) -> RedisResult<String> {
    match value {
        redis::Value::VerbatimString { text, .. } => Ok(text),
        other => Ok(redis::from_redis_value(other)?),
    }
}
