//! The process between a worker and its command: it lives as long as either of them, kills the
//! command and all that it started when the worker says so or can say nothing any more, and
//! reports the end when nothing is left.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::frames::{Frame, Frames, How, Order, Report};
use super::group::{Group, LOOK};
use super::{ASKED, monotonic_us, proc};

/// Who has no deadline has this one.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Signals that are meant for the worker: a supervisor ends when its worker says so, or is gone.
const DEAF_TO: [SignalKind; 4] = [
    SignalKind::terminate(),
    SignalKind::interrupt(),
    SignalKind::hangup(),
    SignalKind::quit(),
];

/// Whether this program's `main` has asked, and so can be started as a supervisor. A property of
/// the program, like its entry point: hence global.
static CAN_SUPERVISE: OnceLock<()> = OnceLock::new();

pub(super) fn can_supervise() -> bool {
    CAN_SUPERVISE.get().is_some()
}

/// To be called first in the `main` of a program that runs a worker, before there is a runtime:
/// the program is its own supervisor of commands. `Some` when it was started as one and has done
/// its work: return that from `main`.
///
/// ```
/// # use mcp_tasks_worker as worker;
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = worker::process::supervise_if_asked() {
///         return code;
///     }
///     // … a runtime, a worker
///     ExitCode::SUCCESS
/// }
/// ```
#[must_use = "a program that was asked to supervise must do nothing else"]
pub fn supervise_if_asked() -> Option<ExitCode> {
    // Called twice does no harm.
    let _ = CAN_SUPERVISE.set(());
    let mut arguments = std::env::args_os().skip(1);
    let asked = ASKED
        .iter()
        .all(|word| arguments.next().is_some_and(|given| given == *word));
    asked.then(|| match supervise(arguments.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Seen when it was started by hand: a worker keeps nothing of it.
            eprintln!("supervise: {error}; this is started by workers, for their commands");
            ExitCode::FAILURE
        }
    })
}

/// The worker's end of it is the standard input, and must be nobody else's.
fn supervise(command: Vec<OsString>) -> io::Result<()> {
    let pipe = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    pipe.peer_addr()?;
    pipe.set_nonblocking(true)?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (from, to) = tokio::net::UnixStream::from_std(pipe)?.into_split();
        let mut worker = Line {
            from,
            to,
            frames: Frames::default(),
        };
        let served = serve(&mut worker, command, null).await;
        let last = match served {
            Ok(last) => last,
            Err(error) => Report::Refused {
                errno: error.raw_os_error().unwrap_or_default(),
                message: error.to_string(),
            },
        };
        // A worker that is gone needs no report.
        let _ = worker.say(&last).await;
        Ok(())
    })
}

/// The pipe to the worker.
struct Line {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    frames: Frames,
}

impl Line {
    async fn say(&mut self, report: &Report) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        report.encode(&mut bytes);
        self.to.write_all(&bytes).await
    }

    async fn hear(&mut self) -> Order {
        match self.frames.next(&mut self.from).await {
            Ok(Some(order)) => order,
            Ok(None) | Err(_) => Order::Kill,
        }
    }
}

/// Out of the reach of signals for the worker's group, and in charge of all that the command
/// will start.
fn settle_in() -> io::Result<String> {
    // Refused only to who leads a group already: started by hand.
    let _ = nix::unistd::setsid();
    #[cfg(target_os = "linux")]
    {
        use nix::sys::prctl;
        prctl::set_child_subreaper(true)?;
        // A set-user-id program could not be killed any more.
        prctl::set_no_new_privs()?;
        // Who kills workers by their name must not hit their supervisors.
        prctl::set_name(c"task-supervisor")?;
    }
    let mark = proc::mark()?;
    proc::kill_orphans()?;
    Ok(mark)
}

/// From start to end; what comes out is the last word to the worker. An error says that nothing
/// was started.
async fn serve(worker: &mut Line, command: Vec<OsString>, null: File) -> io::Result<Report> {
    // Hearing them is enough: they end nothing any more.
    let _deaf = DEAF_TO
        .map(signal)
        .into_iter()
        .collect::<io::Result<Vec<_>>>()?;
    let ends = signal(SignalKind::child())?;
    let mark = settle_in()?;
    worker.say(&Report::Ready { mark: mark.clone() }).await?;
    let (input, rest) = channel();
    let mut input = Some(input);
    let lease_end = loop {
        match worker.hear().await {
            Order::Live { until_us } => break deadline(until_us)?,
            Order::Input(bytes) => feed(&mut input, Some(bytes)),
            Order::InputEnd => feed(&mut input, None),
            Order::Terminate { .. } | Order::Kill => return Ok(Report::Idle),
        }
    };
    if lease_end <= Instant::now() {
        return Ok(Report::Idle);
    }
    let mut group = Group::start(command, &mark, rest)?;
    let watch = Watch {
        input,
        ends,
        lease_end,
        grace_end: None,
    };
    // Whatever goes wrong from here on: nothing of it is left behind.
    let watched = watch.until_over(worker, &mut group, null).await;
    let status = group.kill().await.into_raw();
    let how = watched.unwrap_or(How::Stopped);
    Ok(Report::Gone { status, how })
}

/// What a running command is watched for.
struct Watch {
    input: Option<Sender<Bytes>>,
    ends: tokio::signal::unix::Signal,
    lease_end: Instant,
    grace_end: Option<Instant>,
}

impl Watch {
    /// Returns when the command has ended, or must.
    async fn until_over(
        mut self,
        worker: &mut Line,
        group: &mut Group,
        null: File,
    ) -> io::Result<How> {
        // Only the command and what it starts hold its outputs open.
        nix::unistd::dup2_stdout(&null)?;
        nix::unistd::dup2_stderr(&null)?;
        worker.say(&Report::Started).await?;
        loop {
            let kill_at = self
                .grace_end
                .map_or(self.lease_end, |end| end.min(self.lease_end));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(kill_at) => return Ok(How::Stopped),
                order = worker.hear() => match order {
                    Order::Live { until_us } => self.lease_end = deadline(until_us)?,
                    Order::Input(bytes) => feed(&mut self.input, Some(bytes)),
                    Order::InputEnd => feed(&mut self.input, None),
                    Order::Terminate { grace_ms } => {
                        let end = Instant::now() + Duration::from_millis(grace_ms);
                        self.grace_end = Some(self.grace_end.map_or(end, |earlier| earlier.min(end)));
                    }
                    Order::Kill => return Ok(How::Stopped),
                },
                _ = self.ends.recv() => {}
                // Who leaves the group while all are asked to end is asked too.
                () = tokio::time::sleep(LOOK), if self.grace_end.is_some() => {}
            }
            if self.grace_end.is_some() {
                group.terminate()?;
            }
            // What is left by a command that ended by itself has no business any more; what was
            // asked to end has its grace.
            let others = group.others()?;
            match self.grace_end {
                None if group.is_over()? => return Ok(How::ByItself),
                Some(_) if others.is_empty() && group.is_over()? => return Ok(How::Stopped),
                _ => {}
            }
        }
    }
}

/// Hands on a part of the input, or its end.
fn feed(input: &mut Option<Sender<Bytes>>, bytes: Option<Bytes>) {
    match (input.as_ref(), bytes) {
        // A command that has closed its input, or has ended, gets no more of it.
        (Some(sender), Some(bytes)) => drop(sender.send(bytes)),
        (_, None) => *input = None,
        (None, Some(_)) => {}
    }
}

/// The worker's clock is ours: this cannot be stretched by a worker that froze while it said so.
fn deadline(until_us: u64) -> io::Result<Instant> {
    let now = Instant::now();
    let left = Duration::from_micros(until_us.saturating_sub(monotonic_us()?));
    Ok(now + left.min(FOREVER))
}
