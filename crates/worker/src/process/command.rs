//! What to run, by which limits, and what came of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::capture::Captured;
use super::commands::Commands;
use super::keeper::Keeper;
use super::supervisor;
use super::talk::{Ends, Talk};
use crate::error::ToolError;

/// Without another word: how much of each output is kept (bytes).
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// What a command gets of the worker's environment: what programs need to find their way. The
/// worker's settings, with the password of its database, are not among it.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// An external command: a program with its arguments, never a line for a shell.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing before it is run"]
pub struct Command {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) dir: Option<PathBuf>,
    pub(super) stdin: Bytes,
    pub(super) stdout_bytes_max: usize,
    pub(super) stderr_bytes_max: usize,
    pub(super) grace: Option<Duration>,
    pub(super) supervisor: Option<PathBuf>,
    pub(super) interruptible: bool,
    pub(super) talk: Option<Ends>,
    /// The conversation is not on standard output.
    pub(super) fd3: bool,
    pub(super) stop_on: CancellationToken,
    pub(super) stop_when_full: bool,
    pub(super) memory_bytes_max: Option<u64>,
}

/// What a command that ended left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// The first part of its standard output, up to the limit.
    pub stdout: Captured,
    /// The last part of its standard error, up to the limit.
    pub stderr: Captured,
}

/// Why there is no output of a command that ended by itself. Whatever it is: the command and all
/// that it started are gone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be started.
    #[error("{program} cannot be started: {reason}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        reason: String,
        /// What kind of trouble it is.
        kind: io::ErrorKind,
    },
    /// The work was to stop before the command began: it did not run.
    #[error("stopped before the command began")]
    NotStarted,
    /// The command was stopped half way.
    #[error("the command was stopped half way")]
    Stopped {
        /// What it left behind.
        output: Box<Output>,
        /// What [`Command::interruptible`] said.
        interruptible: bool,
    },
    /// The supervisor could not be started or does not answer: the command did not run.
    #[error("the command's supervisor is not at work: {0}")]
    Supervisor(String),
    /// The supervisor died before its command, which was killed then.
    #[error("the command's supervisor died, and its command was killed half way")]
    Lost {
        /// What [`Command::interruptible`] said.
        interruptible: bool,
    },
}

/// For a step: a command that was stopped half way may have acted, unless it is interruptible.
impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Start {
                kind: io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied,
                ..
            } => Self::failed(protocol::code::INTERNAL_ERROR, message),
            Error::Start { .. }
            | Error::Supervisor(_)
            | Error::Lost {
                interruptible: true,
            } => Self::retryable(message),
            Error::NotStarted
            | Error::Stopped {
                interruptible: true,
                ..
            } => Self::stopped(),
            Error::Stopped { .. } | Error::Lost { .. } => Self::outcome_unknown(message),
        }
    }
}

impl Command {
    /// A program, by its path or by its name on the `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let inherited = std::env::vars_os().filter(|(name, _)| {
            INHERITED.iter().any(|known| name == known)
                || name.as_encoded_bytes().starts_with(b"LC_")
        });
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: inherited.collect(),
            dir: None,
            stdin: Bytes::new(),
            stdout_bytes_max: OUTPUT_BYTES_MAX,
            stderr_bytes_max: OUTPUT_BYTES_MAX,
            grace: None,
            supervisor: None,
            interruptible: false,
            talk: None,
            fd3: false,
            stop_on: CancellationToken::new(),
            stop_when_full: false,
            memory_bytes_max: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.args.extend(args);
        self
    }

    /// Sets a variable. Of the worker's environment a command gets only `PATH`, `HOME`, `USER`,
    /// `LOGNAME`, `SHELL`, `TZ`, `TMPDIR`, the language (`LANG`, `LC_…`), the search path of
    /// libraries and the place of certificates: the worker's settings hold secrets.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let name = name.as_ref().to_owned();
        self.env.retain(|(known, _)| *known != name);
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Runs in this folder; without it in the worker's.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// What it reads from its standard input; nothing if never said. A command that does not read
    /// it is none the worse for it.
    pub fn stdin(mut self, bytes: impl Into<Bytes>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// To talk with it while it runs: its standard input is what is sent, and its standard output is
    /// heard as it is written, with nothing of it left for [`Output::stdout`]. A command whose
    /// output is not taken waits. A clone shares the conversation, which the first one to run has.
    pub fn talk(mut self) -> (Self, Talk) {
        let (to, input) = mpsc::channel(1);
        let (output, from) = mpsc::channel(1);
        self.talk = Some(Ends::new(input, output));
        (self, Talk { to, from })
    }

    /// The same, but heard is what it writes to its file descriptor 3: its standard output is kept
    /// as ever.
    pub fn talk_on_fd3(mut self) -> (Self, Talk) {
        self.fd3 = true;
        self.talk()
    }

    /// Stops it, as a stop of its task would, when this is cancelled.
    pub fn stop_on(mut self, stop: CancellationToken) -> Self {
        self.stop_on = stop;
        self
    }

    /// Kills it when it writes more to its standard output than is kept ([`Command::limits`]):
    /// [`Error::Stopped`].
    pub fn stop_when_full(mut self) -> Self {
        self.stop_when_full = true;
        self
    }

    /// Limits the address space of each of its processes (bytes; `RLIMIT_AS`).
    pub fn memory(mut self, bytes_max: u64) -> Self {
        self.memory_bytes_max = Some(bytes_max);
        self
    }

    /// How much is kept of what it writes (bytes); 1 MiB each if never said. More is read, so that
    /// the command goes on, but lost: the end of its standard output, the beginning of its
    /// standard error.
    pub fn limits(mut self, stdout_bytes_max: usize, stderr_bytes_max: usize) -> Self {
        self.stdout_bytes_max = stdout_bytes_max;
        self.stderr_bytes_max = stderr_bytes_max;
        self
    }

    /// How long it may take to end after SIGTERM; if never said, three quarters of the worker's
    /// `stop_grace`. A longer one than that is cut short: the tool is dropped then.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Stopping it half way leaves nothing that matters or that a repeat would double: a build, a
    /// test, a look. A stopped run then counts as not having happened, so that a cancelled task is
    /// `cancelled` and one that is handed back runs it again. Without this word, a step that was
    /// stopped half way is in doubt.
    pub fn interruptible(mut self) -> Self {
        self.interruptible = true;
        self
    }

    /// The program that supervises it: one whose `main` calls
    /// [`super::supervise_if_asked`]. Without this word it is the worker's own.
    pub fn supervisor(mut self, program: impl Into<PathBuf>) -> Self {
        self.supervisor = Some(program.into());
        self
    }

    /// With the trace that it belongs to (OpenTelemetry, Environment Variables as Context
    /// Propagation Carriers), unless the tool has said one.
    fn traced(mut self, commands: &Commands) -> Self {
        let trace = commands.trace();
        for (name, value) in [
            ("TRACEPARENT", trace.traceparent),
            ("TRACESTATE", trace.tracestate),
            ("BAGGAGE", trace.baggage),
        ] {
            let said = self.env.iter().any(|(known, _)| known == name);
            if let Some(value) = value.filter(|_| !said) {
                self.env.push((name.into(), value.into()));
            }
        }
        self
    }

    /// Runs it to its end. An exit code other than 0 is no error here.
    ///
    /// Returns only when the command and all that it started are gone. Dropped, it kills them,
    /// and the attempt's end is not written before they are gone.
    ///
    /// # Errors
    /// [`Error`]; `?` makes a [`ToolError`] of it.
    pub async fn run(self, commands: &Commands) -> Result<Output, Error> {
        if commands.stop().is_cancelled() {
            return Err(Error::NotStarted);
        }
        let supervisor = match &self.supervisor {
            Some(program) => program.clone(),
            None if supervisor::can_supervise() => own_program()?,
            None => {
                let missing = "main must call worker::process::supervise_if_asked first";
                return Err(Error::Supervisor(missing.to_owned()));
            }
        };
        let (told, outcome) = oneshot::channel();
        let dropped = CancellationToken::new();
        // Whatever becomes of this future.
        let _dropped = dropped.clone().drop_guard();
        let keeper = Keeper {
            command: self.traced(commands),
            supervisor,
            commands: commands.clone(),
            dropped,
        };
        let kept = async move {
            // Nobody may wait for it any more.
            let _ = told.send(keeper.keep().await);
        };
        if !commands.attend(kept) {
            return Err(Error::NotStarted);
        }
        match outcome.await {
            Ok(outcome) => outcome,
            // The worker's runtime ends, and this process with it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// This program, also when its file has been replaced.
fn own_program() -> Result<PathBuf, Error> {
    let link = PathBuf::from("/proc/self/exe");
    if link.is_symlink() {
        return Ok(link);
    }
    std::env::current_exe().map_err(|error| Error::Supervisor(error.to_string()))
}
