//! What the figures were reached on.

use std::path::Path;
use std::process::Command;

use harness::Result;
use harness::postgres::rows;
use serde::Serialize;

use super::system::System;

/// Facts without which no figure means anything.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Their model.
    pub cpu: String,
    /// Memory, GiB.
    pub memory_gib: u64,
    /// Linux' release.
    pub kernel: String,
    /// Of the folder with Postgres' data.
    pub file_system: String,
    /// Its version, and how commits wait.
    pub postgres: String,
    /// Its version.
    pub redis: String,
    /// What is measured: the commit, with a `+` if the tree differs from it.
    pub commit: String,
    /// Whether it was built with optimisation.
    pub optimised: bool,
    /// Processes that wanted a core in the minute before: more than a little, and others use the machine.
    pub load_before: f64,
}

impl Machine {
    /// Looks. `load_before` was read before anything was started.
    ///
    /// # Errors
    /// If Postgres or Redis does not answer.
    pub async fn look(system: &System, load_before: f64) -> Result<Machine> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map_or_else(String::new, |rest| {
                rest.trim_start_matches([' ', '\t', ':']).trim().to_owned()
            })
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal:");
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        let version = rows(
            &system.database_url,
            "SELECT current_setting('server_version'), current_setting('synchronous_commit'), \
             current_setting('fsync')",
        )
        .await?;
        let text = |at: usize| {
            let first = version.first().and_then(|row| row.get(at)).cloned();
            first.flatten().unwrap_or_default()
        };
        let redis = system.redis_info("server").await?;
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: after(&read("/proc/cpuinfo"), "model name"),
            memory_gib: kib / 1_048_576,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&system.data(), &read("/proc/mounts")),
            postgres: format!(
                "{}, synchronous_commit {}, fsync {}",
                text(0),
                text(1),
                text(2)
            ),
            redis: after(&redis, "redis_version"),
            commit: commit(),
            optimised: !cfg!(debug_assertions),
            load_before,
        })
    }

    /// For people.
    #[must_use]
    pub fn told(&self) -> String {
        let optimised = if self.optimised {
            ""
        } else {
            " NOT OPTIMISED: a smoke, no figures"
        };
        let shared = if self.load_before > 0.3 {
            " (others use it: only ratios count)"
        } else {
            ""
        };
        format!(
            "{} cores ({}), {} GiB, Linux {}, {}\nPostgres {}; Redis {}; clients on the same cores\n\
             commit {}{optimised}; load before: {:.2}{shared}\n",
            self.cores,
            self.cpu,
            self.memory_gib,
            self.kernel,
            self.file_system,
            self.postgres,
            self.redis,
            self.commit,
            self.load_before
        )
    }
}

/// Processes that want a core, averaged over a minute.
#[must_use]
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or_default()
}

/// Bytes that are free where this path lies.
///
/// # Errors
/// If the system does not tell.
pub fn free(path: &Path) -> Result<u64> {
    let told = nix::sys::statvfs::statvfs(path).map_err(|error| {
        harness::Error::Other(format!("free space of {}: {error}", path.display()))
    })?;
    Ok(told.blocks_available() * told.fragment_size())
}

/// Lets this process and its children open many files: a connection each.
///
/// # Errors
/// If so many are not allowed; the message says how many are.
pub fn allow_files(wanted: u64) -> std::result::Result<(), String> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    if soft >= wanted {
        return Ok(());
    }
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted));
    raised.map_err(|error| {
        format!("{wanted} open files are needed and {hard} allowed (ulimit -n): {error}")
    })
}

/// The file system that the longest mount point above the path has.
fn file_system(path: &Path, mounts: &str) -> String {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = fields.filter(|(point, _)| path.starts_with(point));
    let longest = above.max_by_key(|(point, _)| point.len());
    longest.map_or_else(String::new, |(_, kind)| kind.to_owned())
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_none_or(|changed| changed.is_empty()) {
        ""
    } else {
        "+"
    };
    format!("{commit}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(file_system(Path::new("/tmp/x"), mounts), "tmpfs");
        assert_eq!(file_system(Path::new("/home"), mounts), "ext4");
    }
}
