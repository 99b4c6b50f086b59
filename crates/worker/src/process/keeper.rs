//! The worker's side of one running command: its supervisor, its outputs, and its end.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, Keep};
use super::command::{Command, Error, Output};
use super::commands::Commands;
use super::frames::{Frame, Frames, How, Order, Report};
use super::talk::{Ends, hand_on};
use super::{ASKED, ASKED_FD3, monotonic_us, proc};

/// How often the supervisor is told until when its command may live.
const BEAT: Duration = Duration::from_millis(200);
/// A supervisor that has not said a word by then is none.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A supervisor that was told to kill and has not done it by then does not work.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// Outputs that are open for longer than this after the end are held by somebody out of reach.
const OUTPUT_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at what a dead supervisor left.
const LOOK: Duration = Duration::from_millis(10);
/// Input is sent in pieces, so that orders can come in between.
const PIECE_BYTES: usize = 64 * 1024;

/// Keeps one command, whether or not anybody waits for its outcome.
pub(super) struct Keeper {
    pub(super) command: Command,
    pub(super) supervisor: PathBuf,
    pub(super) commands: Commands,
    /// Nobody waits any more.
    pub(super) dropped: CancellationToken,
}

/// How the supervisor's words ended.
enum End {
    /// It reported that all is gone.
    Gone(ExitStatus, How),
    /// It has started nothing.
    Idle,
    /// It would not, or could not, start the command.
    Refused(Error),
    /// It fell silent.
    Silent,
}

/// What the supervisor has said and was told.
#[derive(Default)]
struct Course {
    mark: Option<String>,
    /// Until when the command may live: once this was said, it may run.
    told_until: Option<u64>,
    started: bool,
    asked_to_end: bool,
    told_to_kill: Option<Instant>,
}

impl Course {
    /// Whether the command was told to end, in whatever way.
    fn is_told(&self) -> bool {
        self.asked_to_end || self.told_to_kill.is_some()
    }
}

impl Keeper {
    /// From start to the end of all that was started.
    pub(super) async fn keep(self) -> Result<Output, Error> {
        let trouble = |error: io::Error| Error::Supervisor(error.to_string());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(trouble)?;
        ours.set_nonblocking(true).map_err(trouble)?;
        let (from, to) = UnixStream::from_std(ours).map_err(trouble)?.into_split();
        if let Some(dir) = self.command.dir.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(Error::Start {
                program: self.command.program.to_string_lossy().into_owned(),
                reason: format!("{} is no folder", dir.display()),
                kind: io::ErrorKind::NotFound,
            });
        }
        let mut supervisor = self.start(theirs).map_err(trouble)?;
        let stdout = Capture::new(self.command.stdout_bytes_max, Keep::First);
        let stderr = Capture::new(self.command.stderr_bytes_max, Keep::Last);
        let (out, err) = (supervisor.stdout.take(), supervisor.stderr.take());
        let (said, output) = self.command.talk.as_ref().and_then(Ends::take).unzip();
        let input = Input::new(self.command.stdin.clone(), said);
        let reading_out = async {
            match output {
                Some(output) => hand_on(out, output).await,
                None => stdout.read(out).await,
            }
        };
        let reading = async { tokio::join!(reading_out, stderr.read(err)) };
        tokio::pin!(reading);
        let mut course = Course::default();
        let (mut read, end) = {
            let talking = self.talk((from, to), (input, &stdout), &mut course);
            tokio::pin!(talking);
            tokio::select! {
                biased;
                _ = &mut reading => (true, talking.await),
                end = &mut talking => (false, end),
            }
        };
        if !matches!(end, End::Gone(..)) {
            self.end_without(&mut supervisor, course.mark.as_deref())
                .await;
        }
        if !read {
            read = tokio::time::timeout(OUTPUT_WITHIN, &mut reading)
                .await
                .is_ok();
        }
        if !read {
            tracing::warn!(program = ?self.command.program, "somebody out of reach holds the outputs of a command that is gone");
        }
        reap(supervisor).await;
        let output = |status| Output {
            status,
            stdout: stdout.taken(),
            stderr: stderr.taken(),
        };
        let interruptible = self.command.interruptible;
        let may_run = course.told_until.is_some();
        match end {
            End::Gone(status, How::ByItself) if !course.is_told() => Ok(output(status)),
            End::Gone(status, _) => Err(Error::Stopped {
                output: Box::new(output(status)),
                interruptible,
            }),
            End::Idle => Err(Error::NotStarted),
            End::Refused(error) => Err(error),
            End::Silent if may_run => Err(Error::Lost { interruptible }),
            End::Silent => {
                let missing = "it says nothing; its main must call \
                               worker::process::supervise_if_asked first";
                Err(Error::Supervisor(missing.to_owned()))
            }
        }
    }

    fn start(&self, pipe: std::os::unix::net::UnixStream) -> io::Result<Child> {
        let mut command = std::process::Command::new(&self.supervisor);
        command
            .args(if self.command.fd3 { ASKED_FD3 } else { ASKED })
            .arg(&self.command.program)
            .args(&self.command.args)
            .env_clear()
            .envs(self.command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(pipe)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(dir) = &self.command.dir {
            command.current_dir(dir);
        }
        command.arg0("mcp-tasks-supervisor");
        tokio::process::Command::from(command).spawn()
    }

    /// Tells the supervisor what it needs to know until it has no more to say.
    async fn talk(
        &self,
        (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
        (mut input, stdout): (Input, &Capture),
        course: &mut Course,
    ) -> End {
        let mut frames = Frames::default();
        let mut outgoing = BytesMut::new();
        let began = Instant::now();
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                report = frames.next::<Report>(&mut from) => match report {
                    Ok(Some(Report::Ready { mark })) => {
                        course.mark = Some(mark);
                        beat.reset_immediately();
                        if let Some(bytes) = self.command.memory_bytes_max {
                            Order::Memory { bytes }.encode(&mut outgoing);
                        }
                    }
                    Ok(Some(Report::Started)) => course.started = true,
                    Ok(Some(Report::Refused { errno, message })) => {
                        return End::Refused(self.refused(errno, message));
                    }
                    Ok(Some(Report::Idle)) => return End::Idle,
                    Ok(Some(Report::Output(bytes))) => stdout.take(&bytes),
                    Ok(Some(Report::Gone { status, how })) => {
                        return End::Gone(ExitStatus::from_raw(status), how);
                    }
                    Ok(None) | Err(_) => return End::Silent,
                },
                () = self.must_be_gone(stdout), if course.told_to_kill.is_none() => {
                    course.told_to_kill = Some(Instant::now());
                    Order::Kill.encode(&mut outgoing);
                }
                () = self.must_stop(), if !course.is_told() => {
                    course.asked_to_end = true;
                    let grace = self.command.grace.unwrap_or_else(|| self.commands.grace());
                    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                    Order::Terminate { grace_ms }.encode(&mut outgoing);
                }
                written = to.write_buf(&mut outgoing), if !outgoing.is_empty() => {
                    if written.is_err() {
                        return End::Silent;
                    }
                }
                _ = beat.tick() => {
                    let late = course.told_to_kill.is_some_and(|at| at.elapsed() > KILLED_WITHIN);
                    if late || (course.mark.is_none() && began.elapsed() > READY_WITHIN) {
                        return End::Silent;
                    }
                    let until = self.until_us();
                    if course.mark.is_some() && course.told_until != Some(until) {
                        course.told_until = Some(until);
                        Order::Live { until_us: until }.encode(&mut outgoing);
                    }
                }
                piece = input.next(), if course.started && outgoing.is_empty() && !input.is_over => {
                    piece.encode(&mut outgoing);
                }
            }
        }
    }

    /// The task is stopped, or the tool has enough of it.
    async fn must_stop(&self) {
        tokio::select! {
            () = self.commands.stop().cancelled() => {}
            () = self.command.stop_on.cancelled() => {}
        }
    }

    /// The attempt is over, or nobody waits for the outcome, or there is too much of it.
    async fn must_be_gone(&self, stdout: &Capture) {
        tokio::select! {
            () = stdout.full(), if self.command.stop_when_full => {}
            () = self.dropped.cancelled() => {}
            () = self.commands.over().cancelled() => {}
        }
    }

    /// Until when the command may live, never too late: the clock is read before the lease is.
    fn until_us(&self) -> u64 {
        let Ok(now_us) = monotonic_us() else {
            return 0;
        };
        let Some(until) = self.commands.until() else {
            return u64::MAX;
        };
        let left = until.saturating_duration_since(Instant::now());
        now_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
    }

    fn refused(&self, errno: i32, message: String) -> Error {
        if errno == 0 {
            return Error::Supervisor(message);
        }
        Error::Start {
            program: self.command.program.to_string_lossy().into_owned(),
            reason: message,
            kind: io::Error::from_raw_os_error(errno).kind(),
        }
    }

    /// A supervisor that fell silent is ended, and then all that it left. It is not waited for
    /// before that: its number is the number of its command's session.
    async fn end_without(&self, supervisor: &mut Child, mark: Option<&str>) {
        let Some(pid) = supervisor.id().and_then(|id| i32::try_from(id).ok()) else {
            return;
        };
        let pid = Pid::from_raw(pid);
        // ESRCH cannot be: it has not been waited for.
        let _ = kill(pid, Signal::SIGKILL);
        let mut warned = false;
        loop {
            match proc::left_by(pid, mark) {
                Ok(left) if left.is_empty() => return,
                Ok(left) => {
                    if !warned {
                        tracing::warn!(program = ?self.command.program, left = left.len(), "a command has lost its supervisor and is killed");
                        warned = true;
                    }
                    for seen in left {
                        let _ = kill(seen.pid, Signal::SIGKILL);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = ?error, "what a command has left cannot be looked for")
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A supervisor that has said its last word ends at once; one that does not is killed.
async fn reap(mut supervisor: Child) {
    if tokio::time::timeout(KILLED_WITHIN, supervisor.wait())
        .await
        .is_err()
    {
        let _ = supervisor.kill().await;
    }
}

/// What a command reads.
struct Input {
    rest: Bytes,
    /// More of it is said while the command runs.
    said: Option<mpsc::Receiver<Bytes>>,
    is_over: bool,
}

impl Input {
    fn new(known: Bytes, said: Option<mpsc::Receiver<Bytes>>) -> Self {
        Self {
            rest: known,
            said,
            is_over: false,
        }
    }

    /// The next part of the input, or its end. Dropped before it is ready, it has lost nothing.
    async fn next(&mut self) -> Order {
        while self.rest.is_empty() {
            let more = match &mut self.said {
                Some(said) => said.recv().await,
                None => None,
            };
            let Some(more) = more else {
                self.is_over = true;
                return Order::InputEnd;
            };
            self.rest = more;
        }
        Order::Input(self.rest.split_to(self.rest.len().min(PIECE_BYTES)))
    }
}
