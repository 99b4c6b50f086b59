//! The data folder: one run at a time, and what earlier runs left in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::Uid;

use crate::error::{Error, Result};
use crate::user::Identity;
use crate::{leftovers, postgres};

const PROCESSES: &str = "processes.json";

/// A data folder that this process holds.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The system gives the lock back however we end.
    _lock: File,
}

impl Folder {
    /// Takes the folder, ends what a killed run left running in it, and empties it if asked.
    pub(super) async fn open(path: &Path, fresh: bool) -> Result<Folder> {
        fs::create_dir_all(path).map_err(Error::io(format!("make {}", path.display())))?;
        let path = path
            .canonicalize()
            .map_err(Error::io(format!("find {}", path.display())))?;
        refuse_foreign(&path.join("postgres"))?;
        let lock = lock(&path)?;
        let folder = Folder { path, _lock: lock };
        folder.forget_processes();
        leftovers::end(&folder.run(), Signal::SIGKILL).await?;
        remove(&folder.run())?;
        if fresh {
            leftovers::end(&folder.path.join("redis"), Signal::SIGKILL).await?;
            remove(&folder.path.join("redis"))?;
            postgres::end_and_remove(&folder.path).await?;
        }
        for log in ["postgres.log", "redis.log"] {
            // Each run begins its logs anew; there may be none yet.
            let _ = fs::remove_file(folder.path.join(log));
        }
        Ok(folder)
    }

    /// The folder itself, absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where our processes have their configuration and logs; nothing in it outlives a run.
    pub(super) fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The file that describes the running stack.
    pub(super) fn processes_file(&self) -> PathBuf {
        self.path.join(PROCESSES)
    }

    /// A description of processes that don't run would mislead whoever waits for it.
    pub(super) fn forget_processes(&self) {
        let _ = fs::remove_file(self.processes_file());
    }
}

/// Data of another user's run is left alone: neither of the two could use it afterwards.
fn refuse_foreign(data: &Path) -> Result<()> {
    let Ok(found) = data.metadata() else {
        return Ok(());
    };
    let ours = [
        Some(Uid::effective()),
        Identity::unprivileged()?.map(|user| user.uid()),
    ];
    let owner = Uid::from_raw(found.uid());
    if ours.contains(&Some(owner)) {
        return Ok(());
    }
    let what = format!(
        "{} belongs to another user (uid {owner}): run as that user, or choose another --data-dir",
        data.display()
    );
    Err(Error::Failed { what, log: None })
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("dev.lock");
    let file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path);
    let mut file = file.map_err(Error::io(format!("open {}", path.display())))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let what = format!("{} is in use by process {}", dir.display(), pid.trim());
            return Err(Error::Failed { what, log: None });
        }
        Err(TryLockError::Error(source)) => {
            return Err(Error::Io {
                what: format!("lock {}", path.display()),
                source,
            });
        }
    }
    // Only for the message above.
    let _ = file.set_len(0).and_then(|()| file.rewind());
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Io {
            what: format!("remove {}", path.display()),
            source: error,
        }),
        _ => Ok(()),
    }
}
