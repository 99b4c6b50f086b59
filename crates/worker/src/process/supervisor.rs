//! The process between a worker and its command: it lives as long as either of them, kills the
//! command and all that it started when the worker says so or can say nothing any more, and
//! reports the end when nothing is left.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::frames::{Frame, Frames, How, Order, Report};
use super::group::{Group, LOOK};
use super::{ASKED, ASKED_FD3, monotonic_us, proc};

/// The file descriptor of conversations.
const FD3: i32 = 3;
/// Output is reported in pieces, so that orders can come in between.
const PIECE_BYTES: usize = 64 * 1024;
/// For so long a worker is told what a command that is gone has left.
const REST_WITHIN: Duration = Duration::from_secs(3);
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
    let given: Vec<OsString> = arguments.by_ref().take(ASKED.len()).collect();
    let fd3 = given == ASKED_FD3;
    let asked = fd3 || given == ASKED;
    asked.then(|| match supervise(arguments.collect(), fd3) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Seen when it was started by hand: a worker keeps nothing of it.
            eprintln!("supervise: {error}; this is started by workers, for their commands");
            ExitCode::FAILURE
        }
    })
}

/// The worker's end of it is the standard input, and must be nobody else's.
fn supervise(command: Vec<OsString>, fd3: bool) -> io::Result<()> {
    let output = if fd3 { Some(Redirected::new()?) } else { None };
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
        let served = serve(&mut worker, (command, output), null).await;
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
        hear(&mut self.frames, &mut self.from).await
    }
}

async fn hear(frames: &mut Frames, from: &mut OwnedReadHalf) -> Order {
    match frames.next(from).await {
        Ok(Some(order)) => order,
        Ok(None) | Err(_) => Order::Kill,
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
async fn serve(
    worker: &mut Line,
    (command, redirected): (Vec<OsString>, Option<Redirected>),
    null: File,
) -> io::Result<Report> {
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
    let mut memory_bytes_max = None;
    let lease_end = loop {
        match worker.hear().await {
            Order::Live { until_us } => break deadline(until_us)?,
            Order::Memory { bytes } => memory_bytes_max = Some(bytes),
            Order::Input(bytes) => feed(&mut input, Some(bytes)),
            Order::InputEnd => feed(&mut input, None),
            Order::Terminate { .. } | Order::Kill => return Ok(Report::Idle),
        }
    };
    if lease_end <= Instant::now() {
        return Ok(Report::Idle);
    }
    let (output, theirs, fd3) = match redirected {
        Some(Redirected { ours, theirs, fd3 }) => {
            let ours = pipe::Receiver::from_owned_fd(ours.into())?;
            (Some(ours), Some(theirs), Some(fd3))
        }
        None => (None, None, None),
    };
    let mut group = Group::start(command, &mark, (rest, theirs), memory_bytes_max)?;
    // The command has its own now.
    drop(fd3);
    let watch = Watch {
        input,
        output,
        said: BytesMut::new(),
        ends,
        lease_end,
        grace_end: None,
    };
    // Whatever goes wrong from here on: nothing of it is left behind.
    let mut watch = watch;
    let watched = watch.until_over(worker, &mut group, null).await;
    let status = group.kill().await.into_raw();
    let how = watched.unwrap_or(How::Stopped);
    watch.rest(worker).await;
    Ok(Report::Gone { status, how })
}

/// What a running command is watched for.
struct Watch {
    input: Option<Sender<Bytes>>,
    /// Its standard output, where it is to be reported.
    output: Option<pipe::Receiver>,
    /// What is to be told of it. The worker may be slow to hear it, and must be obeyed meanwhile.
    said: BytesMut,
    ends: tokio::signal::unix::Signal,
    lease_end: Instant,
    grace_end: Option<Instant>,
}

impl Watch {
    /// Returns when the command has ended, or must.
    async fn until_over(
        &mut self,
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
                order = hear(&mut worker.frames, &mut worker.from) => match order {
                    Order::Live { until_us } => self.lease_end = deadline(until_us)?,
                    Order::Input(bytes) => feed(&mut self.input, Some(bytes)),
                    Order::InputEnd => feed(&mut self.input, None),
                    // Too late: it runs.
                    Order::Memory { .. } => {}
                    Order::Terminate { grace_ms } => {
                        let end = Instant::now() + Duration::from_millis(grace_ms);
                        self.grace_end = Some(self.grace_end.map_or(end, |earlier| earlier.min(end)));
                    }
                    Order::Kill => return Ok(How::Stopped),
                },
                _ = self.ends.recv() => {}
                told = worker.to.write_buf(&mut self.said), if !self.said.is_empty() => {
                    told?;
                }
                read = read(&mut self.output), if self.output.is_some() && self.said.is_empty() => {
                    self.hear(read);
                }
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

impl Watch {
    /// A part of the output, or its end.
    fn hear(&mut self, read: Option<Bytes>) {
        match read {
            Some(bytes) => Report::Output(bytes).encode(&mut self.said),
            None => self.output = None,
        }
    }

    /// What is still in the pipe of a command that is gone.
    async fn rest(&mut self, worker: &mut Line) {
        let telling = async {
            loop {
                while !self.said.is_empty() {
                    worker.to.write_buf(&mut self.said).await?;
                }
                if self.output.is_none() {
                    return io::Result::Ok(());
                }
                let read = read(&mut self.output).await;
                self.hear(read);
            }
        };
        // A worker that is gone, or does not listen, needs none of it.
        let _ = tokio::time::timeout(REST_WITHIN, telling).await;
    }
}

/// The next part of what a command writes; `None` at its end. Dropped before, it has lost nothing.
async fn read(output: &mut Option<pipe::Receiver>) -> Option<Bytes> {
    let mut bytes = BytesMut::with_capacity(PIECE_BYTES);
    let read = output.as_mut()?.read_buf(&mut bytes).await;
    read.is_ok_and(|read| read > 0).then(|| bytes.freeze())
}

/// Where a command's outputs go when the conversation is on its file descriptor 3.
struct Redirected {
    /// Its standard output, to be reported.
    ours: PipeReader,
    theirs: PipeWriter,
    /// What this process has as its standard output, which leads to the worker: under the number
    /// that the command inherits.
    fd3: OwnedFd,
}

impl Redirected {
    /// Before anything else is opened.
    fn new() -> io::Result<Self> {
        // Somebody may have left his own there; nothing of ours is there yet.
        let _ = nix::unistd::close(FD3);
        let mut fd3 = OwnedFd::from(File::open("/dev/null")?);
        if fd3.as_raw_fd() != FD3 {
            return Err(io::Error::other("file descriptor 3 is not to be had"));
        }
        nix::unistd::dup2(io::stdout(), &mut fd3)?;
        let (ours, theirs) = io::pipe()?;
        Ok(Self { ours, theirs, fd3 })
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
