//! Who servers run as: Postgres refuses root, so as root we borrow an unprivileged user.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, User, chown};

use crate::error::{Error, Result};

/// A user and its primary group.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name, for messages.
    pub name: String,
    uid: Uid,
    gid: Gid,
}

impl Identity {
    /// The user that Postgres runs as: `None` (ourselves) unless we are root; then `postgres`,
    /// else `nobody`.
    ///
    /// # Errors
    /// [`Error::Missing`] if we are root and neither user exists.
    pub fn unprivileged() -> Result<Option<Identity>> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let Ok(Some(user)) = User::from_name(name) {
                return Ok(Some(Identity {
                    name: user.name,
                    uid: user.uid,
                    gid: user.gid,
                }));
            }
        }
        Err(Error::Missing {
            program: "user postgres or nobody".into(),
            hint: "Postgres refuses to run as root; create one of the two users",
        })
    }

    /// Its number.
    #[must_use]
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// Makes a command run as this user. The standard library also drops root's supplementary
    /// groups when it changes the user.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
    }

    /// Gives a file or folder to this user.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses.
    pub fn own(&self, path: &Path) -> Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(std::io::Error::from)
            .map_err(Error::io(format!(
                "give {} to user {}",
                path.display(),
                self.name
            )))
    }

    /// Whether this user can enter the folder and write in it: asked of the system itself, since
    /// every folder above it counts.
    #[must_use]
    pub fn can_write(&self, dir: &Path) -> bool {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "cd -- \"$1\" && test -w .", "sh"])
            .arg(dir)
            .current_dir("/");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.apply(&mut command);
        command.status().is_ok_and(|status| status.success())
    }
}
