//! Where a cluster's data lies, and how it comes to be.
//!
//! As root the server runs as another user, who may be unable to enter the folder the caller chose
//! (somebody's home, say). Then the data lies in a private folder elsewhere and a file records where.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use super::binaries;
use crate::error::{Error, Result};
use crate::leftovers;
use crate::process::{Process, Spec, as_pid};
use crate::user::Identity;

/// Names the folder that holds the data, where that isn't `DIR/postgres`.
const RECORD: &str = "postgres.location";
/// Folders made elsewhere begin with this; nothing else is ever removed there.
const PREFIX: &str = "mcp-tasks-postgres.";
const VARIABLE_DATA: &str = "/var/lib";
const INIT: Duration = Duration::from_secs(120);

/// The folder that holds `data/`, owned by the user the server runs as.
pub(super) fn prepare(dir: &Path, identity: Option<&Identity>) -> Result<PathBuf> {
    fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let dir = dir
        .canonicalize()
        .map_err(Error::io(format!("find {}", dir.display())))?;
    let near = dir.join("postgres");
    let Some(identity) = identity else {
        make_private(&near)?;
        return Ok(near);
    };
    if let Some(elsewhere) = recorded(&dir).filter(|path| path.is_dir()) {
        return Ok(elsewhere);
    }
    make_private(&near)?;
    identity.own(&near)?;
    if identity.can_write(&near) {
        return Ok(near);
    }
    let elsewhere = make_elsewhere(identity)?;
    let record = dir.join(RECORD);
    fs::write(&record, format!("{}\n", elsewhere.display()))
        .map_err(Error::io(format!("write {}", record.display())))?;
    // Left empty, it would only mislead whoever looks for the data.
    let _ = fs::remove_dir(&near);
    Ok(elsewhere)
}

/// Removes the cluster that [`super::Postgres::start`] made for `dir`, wherever it lies, and ends
/// the server that a killed run left in it.
///
/// # Errors
/// [`Error::Io`] if something can't be removed.
pub async fn end_and_remove(dir: &Path) -> Result<()> {
    leftovers::end(&dir.join("postgres"), Signal::SIGQUIT).await?;
    if let Some(elsewhere) = recorded(dir) {
        leftovers::end(&elsewhere, Signal::SIGQUIT).await?;
        remove_tree(&elsewhere)?;
        let record = dir.join(RECORD);
        fs::remove_file(&record).map_err(Error::io(format!("remove {}", record.display())))?;
    }
    remove_tree(&dir.join("postgres"))
}

/// Makes the cluster: beside its final place first, so that a run killed half way leaves nothing
/// that looks finished.
pub(super) async fn init(home: &Path, log: &Path, identity: Option<&Identity>) -> Result<()> {
    let (half, data) = (home.join("data.new"), home.join("data"));
    remove_tree(&half)?;
    remove_tree(&data)?;
    let mut spec = Spec::new("initdb", &binaries::find("initdb", None)?, log)
        .args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ])
        .args([
            "--no-sync".to_owned(),
            format!("--pgdata={}", half.display()),
        ]);
    spec.identity = identity.cloned();
    spec.dir = Some(home.to_owned());
    let mut process = Process::spawn(&spec)?;
    let status = process.wait(INIT).await?;
    if !status.success() {
        let what = format!("initdb for {}: {status}", half.display());
        return Err(Error::Failed {
            what,
            log: Some(log.to_owned()),
        });
    }
    fs::rename(&half, &data).map_err(Error::io(format!("rename {}", half.display())))
}

/// Postgres refuses to start when the number in its pid file belongs to a living process; after a
/// kill that number may have gone to a stranger. The caller has made sure that no server works here.
pub(super) fn forget_stale_pid(data: &Path) {
    let file = data.join("postmaster.pid");
    let pid = fs::read_to_string(&file).ok().and_then(|text| {
        text.lines()
            .next()
            .and_then(|line| line.trim().parse::<u32>().ok())
    });
    if let Some(pid) = pid.filter(|pid| kill(as_pid(*pid), None).is_ok()) {
        tracing::info!(
            pid,
            "removing a pid file whose number belongs to another process now"
        );
        let _ = fs::remove_file(file);
    }
}

fn make_private(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io(format!("make {}", path.display())))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(Error::io(format!("make {} private", path.display())))
}

/// A new folder that the user can enter: under /var/lib, where data survives a reboot, else under
/// the system's temporary folder.
fn make_elsewhere(identity: &Identity) -> Result<PathBuf> {
    for parent in [PathBuf::from(VARIABLE_DATA), std::env::temp_dir()] {
        let Ok(made) = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent) else {
            continue;
        };
        identity.own(made.path())?;
        if identity.can_write(made.path()) {
            return Ok(made.keep());
        }
    }
    let what = format!(
        "user {} can enter neither {VARIABLE_DATA} nor TMPDIR",
        identity.name
    );
    Err(Error::Failed { what, log: None })
}

/// The folder named by the record, if it is one that we would have made: the record is a file that
/// others may have edited, and what it names is removed by `--fresh`.
fn recorded(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(RECORD)).ok()?;
    let path = PathBuf::from(text.trim());
    let parent = path.parent()?;
    let ours = path.file_name()?.to_str()?.starts_with(PREFIX)
        && (parent == Path::new(VARIABLE_DATA) || parent == std::env::temp_dir());
    ours.then_some(path)
}

fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Io {
            what: format!("remove {}", path.display()),
            source: error,
        }),
        _ => Ok(()),
    }
}
