//! The configuration files our processes are started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use toml::{Table, Value};

use crate::error::{Error, Result};

/// Which of the binary's three processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Serves MCP.
    Gateway,
    /// Runs tools.
    Worker,
    /// Sweeps.
    Cron,
}

impl Role {
    /// The binary's subcommand.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Role::Gateway => "gateway",
            Role::Worker => "worker",
            Role::Cron => "cron",
        }
    }
}

/// What every process of one stack shares.
#[derive(Debug, Clone, Default)]
pub struct Common {
    /// URL of the migrated database.
    pub postgres_url: String,
    /// URL of the Redis server.
    pub redis_url: String,
    /// Settings on top of ours, section by section; they win.
    pub settings: Table,
}

/// The configuration of one process: development authentication, loopback only. `port` is that of
/// the MCP endpoint and only a gateway's.
#[must_use]
pub fn table(common: &Common, port: Option<u16>, admin_port: u16) -> Table {
    let mut all = Table::new();
    put(&mut all, "postgres", "url", &common.postgres_url);
    put(&mut all, "redis", "url", &common.redis_url);
    put(&mut all, "auth", "mode", "dev");
    put(&mut all, "admin", "listen", &local(admin_port));
    if let Some(port) = port {
        put(&mut all, "gateway", "bind", &local(port));
    }
    merge(&mut all, &common.settings);
    all
}

/// Writes a configuration file.
///
/// # Errors
/// [`Error::Io`] if it can't be written.
pub fn write(file: &Path, table: &Table) -> Result<()> {
    std::fs::write(file, table.to_string()).map_err(Error::io(format!("write {}", file.display())))
}

/// Lays `over` on top of `base`: tables are merged, anything else is replaced.
pub fn merge(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

fn local(port: u16) -> String {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string()
}

fn put(all: &mut Table, section: &str, key: &str, value: &str) {
    let section = all
        .entry(section)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}
