//! One child process: started with its output in a file, signalled, watched, and never outliving
//! the process that started it.
//!
//! Linux can send a child a signal when its parent dies (`PR_SET_PDEATHSIG`). Setting that between
//! fork and exec needs unsafe code, so `setpriv --pdeathsig` of util-linux does it and then becomes
//! the program itself. "Parent" means the *thread* that forked, and runtimes end threads at will,
//! so all children are forked by one thread that lives as long as this process.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::user::Identity;

const POLL: Duration = Duration::from_millis(10);

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Short name for messages, e.g. `gateway-1`.
    pub name: String,
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set on top of the inherited environment.
    pub env: Vec<(String, String)>,
    /// Its working directory; ours if `None`.
    pub dir: Option<PathBuf>,
    /// File that standard output and standard error are appended to.
    pub log: PathBuf,
    /// Who it runs as; us if `None`.
    pub identity: Option<Identity>,
    /// The signal it gets when our process dies.
    pub death_signal: Signal,
}

impl Spec {
    /// A process that runs as us, in our directory, and is killed when we die.
    pub fn new(name: impl Into<String>, program: &Path, log: &Path) -> Spec {
        Spec {
            name: name.into(),
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            log: log.to_owned(),
            identity: None,
            death_signal: Signal::SIGKILL,
        }
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Spec {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
}

/// A running (or ended) child. Dropping it does not stop it: the owner decides how it ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts the process in a process group of its own, so that ctrl-C in a terminal reaches only
    /// us and we decide the order in which things stop.
    ///
    /// # Errors
    /// [`Error::Io`] if the log can't be opened or the program can't be started.
    pub fn spawn(spec: &Spec) -> Result<Process> {
        let open = |log: &Path| OpenOptions::new().create(true).append(true).open(log);
        let out = open(&spec.log).map_err(Error::io(format!("open {}", spec.log.display())))?;
        let err = out
            .try_clone()
            .map_err(Error::io("duplicate a log handle"))?;
        let mut command = command_that_dies_with_us(spec);
        command
            .args(&spec.args)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        command.envs(spec.env.iter().map(|(key, value)| (key, value)));
        if let Some(dir) = &spec.dir {
            command.current_dir(dir);
        }
        if let Some(identity) = &spec.identity {
            identity.apply(&mut command);
        }
        let child =
            fork(command).map_err(Error::io(format!("start {}", spec.program.display())))?;
        Ok(Process {
            name: spec.name.clone(),
            log: spec.log.clone(),
            child,
            ended: None,
        })
    }

    /// Its process id. Of an ended process: the one it had.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The name given in the [`Spec`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file its output goes to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends a signal; an ended process is left alone, since its number may belong to someone else.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // ESRCH is the only possible error for our own unreaped child, and means the same.
            let _ = kill(as_pid(self.pid()), signal);
            if signal == Signal::SIGSTOP {
                until_stopped(self.pid());
            }
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it still runs after `within`.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                let what = format!("end of {} (pid {})", self.name, self.pid());
                return Err(Error::Timeout {
                    what,
                    after: within,
                    log: Some(self.log.clone()),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits like [`Process::wait`], without a runtime: for destructors.
    pub fn wait_blocking(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.ended()
    }

    /// Kills it at once (`SIGKILL`, which a frozen process obeys too) and reaps it.
    pub fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait_blocking(Duration::from_secs(5));
    }
}

/// Finds a program on the `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

pub(crate) fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("process ids are positive i32 on every Unix"))
}

/// Waits until every thread of a process that was sent `SIGSTOP` stands still, for a second at most: one that
/// runs on another processor in that moment may still answer.
pub(crate) fn until_stopped(pid: u32) {
    for _ in 0..1_000 {
        if is_stopped(pid) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    // The state stands behind the name (proc(5)); one that is gone says nothing.
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

/// Where there is no `setpriv` (not Linux), a child can outlive a parent that is killed with
/// `SIGKILL`; the next start finds it by its folder and ends it.
fn command_that_dies_with_us(spec: &Spec) -> Command {
    let Some(setpriv) = find_program("setpriv") else {
        return Command::new(&spec.program);
    };
    let mut command = Command::new(setpriv);
    let signal = spec.death_signal.as_str().trim_start_matches("SIG");
    command
        .args(["--pdeathsig", signal, "--"])
        .arg(&spec.program);
    command
}

type Fork = (Command, Sender<std::io::Result<Child>>);

/// Hands the command to the thread that forks for the whole life of this process.
fn fork(command: Command) -> std::io::Result<Child> {
    static FORKER: OnceLock<Sender<Fork>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (jobs, queue) = channel::<Fork>();
        let name = "harness-forker".to_owned();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                for (mut command, reply) in queue {
                    // A caller that went away has no use for its child.
                    if let Err(unsent) = reply.send(command.spawn())
                        && let Ok(mut child) = unsent.0
                    {
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                }
            })
            .expect("a thread can be started while the process is young");
        jobs
    });
    let (reply, answer) = channel();
    let gone = || std::io::Error::other("the forking thread has ended");
    forker.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
