//! `processes.json`: what runs where, for people and test drivers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::config::Role;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::postgres::Postgres;
use crate::redis::Redis;

/// All processes of the stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// The Postgres server; its URL names the database.
    pub postgres: Server,
    /// The Redis server.
    pub redis: Server,
    /// The gateways.
    pub gateways: Vec<Gateway>,
    /// The workers.
    pub workers: Vec<Process>,
    /// The crons.
    pub cron: Vec<Process>,
}

/// A server that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Process id.
    pub pid: u32,
    /// How to connect, for any local user.
    pub url: String,
}

/// A gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Process id.
    pub pid: u32,
    /// Its MCP endpoint.
    pub url: String,
    /// Base URL of its admin listener.
    pub admin: String,
}

/// A worker or a cron.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Base URL of its admin listener.
    pub admin: String,
}

/// Which entry a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Postgres,
    Redis,
    Node(Role, usize),
}

impl Processes {
    pub(super) fn of(postgres: &Postgres, url: &str, redis: &Redis, nodes: &[Node]) -> Processes {
        let plain = |role| {
            let nodes = nodes.iter().filter(move |node| node.role() == role);
            nodes.map(|node| Process {
                pid: pid(node.pid()),
                admin: node.admin(),
            })
        };
        let gateways = nodes.iter().filter(|node| node.role() == Role::Gateway);
        let gateways = gateways.map(|node| Gateway {
            pid: pid(node.pid()),
            url: node.url(),
            admin: node.admin(),
        });
        Processes {
            postgres: Server {
                pid: pid(postgres.pid()),
                url: url.to_owned(),
            },
            redis: Server {
                pid: pid(redis.pid()),
                url: redis.url(),
            },
            gateways: gateways.collect(),
            workers: plain(Role::Worker).collect(),
            cron: plain(Role::Cron).collect(),
        }
    }

    fn pid_mut(&mut self, slot: Slot) -> Option<&mut u32> {
        match slot {
            Slot::Postgres => Some(&mut self.postgres.pid),
            Slot::Redis => Some(&mut self.redis.pid),
            Slot::Node(Role::Gateway, index) => self.gateways.get_mut(index).map(|it| &mut it.pid),
            Slot::Node(Role::Worker, index) => self.workers.get_mut(index).map(|it| &mut it.pid),
            Slot::Node(Role::Cron, index) => self.cron.get_mut(index).map(|it| &mut it.pid),
        }
    }
}

fn pid(pid: Option<u32>) -> u32 {
    pid.expect("asked for right after the process became ready")
}

/// The current description and its file, shared by the keepers of all processes.
#[derive(Debug, Clone)]
pub(super) struct Board {
    state: Arc<Mutex<State>>,
    file: PathBuf,
}

#[derive(Debug)]
struct State {
    processes: Processes,
    /// The file appears when the whole stack is ready, and is kept up to date from then on.
    announced: bool,
}

impl Board {
    pub(super) fn new(file: PathBuf, processes: Processes) -> Board {
        Board {
            state: Arc::new(Mutex::new(State {
                processes,
                announced: false,
            })),
            file,
        }
    }

    /// Writes the file for the first time.
    pub(super) fn announce(&self) -> Result<Processes> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.announced = true;
        self.write(&state.processes)?;
        Ok(state.processes.clone())
    }

    /// Notes that a process runs under another number.
    pub(super) fn restarted(&self, slot: Slot, pid: u32) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.processes.pid_mut(slot) {
            *entry = pid;
        }
        if state.announced {
            self.write(&state.processes)
        } else {
            Ok(())
        }
    }

    /// By renaming, so that nobody reads half a file. Called with the lock held: two writers would
    /// share the temporary name.
    fn write(&self, processes: &Processes) -> Result<()> {
        let text = serde_json::to_string_pretty(processes)
            .map_err(|error| Error::Other(format!("processes.json: {error}")))?;
        let half = self.file.with_extension("json.new");
        let failed = || format!("write {}", self.file.display());
        std::fs::write(&half, text + "\n").map_err(Error::io(failed()))?;
        std::fs::rename(&half, &self.file).map_err(Error::io(failed()))
    }
}
