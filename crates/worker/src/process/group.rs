//! A command and everything that descends from it, for the supervisor that is to end them all.
//!
//! The supervisor is the reaper of its descendants: whoever loses a parent becomes its child. So
//! all of them are its children sooner or later, and when it has no child left, nothing is left.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::{MARK, proc};

/// Between two looks at what is left.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// So many looks for new ones find none before everybody is looked at.
const QUIET: u32 = 5;

/// The command and everything that descends from it.
pub(super) struct Group {
    /// The command itself, and the number of its process group. It is not waited for before all
    /// others are gone, so that nobody else can get the number.
    leader: Pid,
    /// Who was asked to end and has left the group.
    asked: Vec<Pid>,
}

impl Group {
    pub(super) fn start(
        command: Vec<OsString>,
        mark: &str,
        (input, output): (Receiver<Bytes>, Option<PipeWriter>),
        memory_bytes_max: Option<u64>,
    ) -> io::Result<Self> {
        let mut words = command.into_iter();
        let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
        let (stdin, writer) = io::pipe()?;
        // Not joined: it ends with this process, which has nothing else to do then.
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || write(writer, &input))?;
        let mut command = std::process::Command::new(program);
        command
            .args(words)
            .env(MARK, mark)
            .stdin(stdin)
            .process_group(0);
        if let Some(output) = output {
            command.stdout(output);
        }
        let mut child = command.spawn()?;
        let number = i32::try_from(child.id()).expect("numbers of processes are i32");
        if let Some(bytes) = memory_bytes_max
            && let Err(error) = limit_all(number, bytes)
        {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Self {
            leader: Pid::from_raw(number),
            asked: Vec::new(),
        })
    }

    /// Everybody else that lives. All descendants are children, sooner or later. Who is in the
    /// answer is not waited for, so that the number stays his own.
    pub(super) fn others(&self) -> io::Result<Vec<proc::Seen>> {
        let mut children = proc::children()?;
        children.retain(|child| {
            if child.zombie && child.pid != self.leader {
                // It cannot fail: it has ended, and nobody else waits for it.
                let _ = waitpid(child.pid, Some(WaitPidFlag::WNOHANG));
            }
            !child.zombie && child.pid != self.leader
        });
        Ok(children)
    }

    /// Whether the command itself has ended.
    pub(super) fn is_over(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.leader), flags)? != WaitStatus::StillAlive)
    }

    /// Asks everybody to end, and each only once.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        if self.asked.is_empty() {
            self.asked.push(self.leader);
            // Who is stopped cannot hear it.
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                let _ = killpg(self.leader, signal);
            }
        }
        for other in self.others()? {
            if other.group != self.leader && !self.asked.contains(&other.pid) {
                self.asked.push(other.pid);
                other.signal(Signal::SIGTERM);
                other.signal(Signal::SIGCONT);
            }
        }
        Ok(())
    }

    /// Kills until nobody is left, and says how the command itself ended.
    pub(super) async fn kill(self) -> ExitStatus {
        loop {
            let _ = killpg(self.leader, Signal::SIGKILL);
            // Until none is new. Who can be seen only by a look at everybody is left for that.
            let mut hunt = proc::Hunt::begin();
            let mut quiet = 0;
            while quiet < QUIET {
                quiet = if hunt.go_on() { 0 } else { quiet + 1 };
            }
            // Who cannot be seen may be there: looked for again.
            if let Ok(others) = self.others() {
                for other in &others {
                    other.signal(Signal::SIGKILL);
                }
                if others.is_empty()
                    && self.is_over().unwrap_or_default()
                    && let Some(status) = waitpid(self.leader, None).ok().and_then(raw)
                {
                    return status;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Limits the command and whatever it has started meanwhile, until there is nobody new: what comes
/// later inherits the limit. Set from outside, at once after the start: within this process the
/// limit would be its own as well.
fn limit_all(leader: i32, bytes_max: u64) -> io::Result<()> {
    let mut is_new = limit_memory(leader, bytes_max)?;
    while is_new {
        is_new = false;
        for seen in proc::descendants()? {
            is_new |= limit_memory(seen.pid.as_raw(), bytes_max)?;
        }
    }
    Ok(())
}

/// Whether it had another limit before.
fn limit_memory(pid: i32, bytes_max: u64) -> io::Result<bool> {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let limit = || Rlimit {
        current: Some(bytes_max),
        maximum: Some(bytes_max),
    };
    match prlimit(Pid::from_raw(pid), Resource::As, limit()) {
        Ok(before) => Ok(before != limit()),
        // It has ended already.
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// As `wait(2)` gives it, if it is an end.
fn raw(status: WaitStatus) -> Option<ExitStatus> {
    match status {
        WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw(code << 8)),
        WaitStatus::Signaled(_, signal, _) => Some(ExitStatus::from_raw(signal as i32)),
        _ => None,
    }
}

/// Writes until the command does not read any more.
fn write(mut stdin: PipeWriter, input: &Receiver<Bytes>) {
    for bytes in input {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}
