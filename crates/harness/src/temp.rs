//! Private folders for tests, removed by their owner or, if that was killed, by the next run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::leftovers;

const PREFIX: &str = "mcp-tasks-test.";

/// A folder `mcp-tasks-test.<pid>.<random>` under the system's temporary folder, which any user may
/// enter but only we may list. Removed on drop.
#[derive(Debug)]
pub struct Temp {
    dir: TempDir,
}

impl Temp {
    /// Makes a new folder, after removing those whose owner is dead.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can't be made.
    pub fn new() -> Result<Temp> {
        sweep();
        let prefix = format!("{PREFIX}{}.", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir()
            .map_err(Error::io("make a temporary folder"))?;
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711))
            .map_err(Error::io("open a temporary folder for other users"))?;
        Ok(Temp { dir })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the folders of test processes that no longer live, and whatever still runs in them.
/// (Where a dead owner's number was given to a new process, the folder waits for another run.)
fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if owner(&path).is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            leftovers::signal(&path, Signal::SIGKILL);
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}
