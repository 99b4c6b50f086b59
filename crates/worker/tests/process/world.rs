//! Commands that can be found again in `/proc`, and a worker to kill.

use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_util::sync::CancellationToken;
use worker::process::{Command, Commands};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(30);
/// What the supervisor of a command is called.
const SUPERVISOR: &str = "task-supervisor";

/// Everything that a test starts; found by a number in its command line, whatever group, session,
/// parent or environment it has. Dropped, it leaves nothing.
pub struct Traced {
    number: String,
}

impl Traced {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        Self {
            number: format!("1000.{}{count:03}", std::process::id()),
        }
    }

    /// A word for scripts: a sleep that lasts longer than any test.
    pub fn sleep(&self) -> String {
        format!("sleep {}", self.number)
    }

    /// Runs a script whose processes can be found: `{sleep}` is the sleep.
    pub fn shell(&self, script: &str) -> Command {
        Command::new("sh").arg("-c").arg(self.script(script))
    }

    pub fn script(&self, script: &str) -> String {
        // Said once at least, or the shell could not be found.
        format!(
            ": {}; {}",
            self.number,
            script.replace("{sleep}", &self.sleep())
        )
    }

    fn all(&self) -> Vec<(Pid, String)> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(|pid| {
            let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            let mine = String::from_utf8_lossy(&cmdline).contains(&self.number);
            mine.then(|| (Pid::from_raw(pid), name.trim_end().to_owned()))
        })
        .collect()
    }

    /// Those that do the command's work: neither the supervisor nor a worker.
    pub fn alive(&self) -> Vec<Pid> {
        let all = self.all().into_iter();
        all.filter(|(_, name)| name == "sh" || name == "sleep" || name == "yes")
            .map(|(pid, _)| pid)
            .collect()
    }

    /// How many of them sleep.
    pub fn sleeping(&self) -> usize {
        self.all()
            .iter()
            .filter(|(_, name)| name == "sleep")
            .count()
    }

    pub fn supervisor(&self) -> Option<Pid> {
        let all = self.all();
        let supervisor = all.iter().find(|(_, name)| name == SUPERVISOR);
        supervisor.map(|(pid, _)| *pid)
    }

    /// Waits until so many sleep, and says who lives then.
    pub async fn wait_sleeping(&self, count: usize) -> Vec<Pid> {
        let what = format!("{count} asleep");
        harness::wait::for_state(&what, SOON, async || self.sleeping(), |seen| *seen == count)
            .await
            .unwrap();
        self.alive()
    }

    /// Waits until nobody is left, and says how long that took.
    pub async fn wait_gone(&self) -> Duration {
        let began = Instant::now();
        harness::wait::for_state("nobody is left", SOON, async || self.alive(), Vec::is_empty)
            .await
            .unwrap();
        began.elapsed()
    }

    #[track_caller]
    pub fn assert_gone(&self) {
        let all = self.all();
        assert!(all.is_empty(), "still alive: {all:?}");
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        for (pid, _) in self.all() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

pub fn alone() -> (CancellationToken, Commands) {
    let stop = CancellationToken::new();
    (stop.clone(), Commands::alone(stop))
}

/// A worker that runs one script and waits for it: this program, started once more.
pub struct Held {
    script: String,
    lease: Option<Duration>,
}

const HOLD: &str = "--hold";

impl Held {
    pub fn asked(arguments: &[String]) -> Option<Self> {
        let [hold, lease_ms, script] = arguments else {
            return None;
        };
        let lease_ms: u64 = lease_ms.parse().ok()?;
        (hold == HOLD).then(|| Self {
            script: script.clone(),
            lease: (lease_ms > 0).then(|| Duration::from_millis(lease_ms)),
        })
    }

    /// What the worker does.
    pub fn hold(self) -> ExitCode {
        crate::runner::block_on(async {
            let (_, commands) = alone();
            if let Some(lease) = self.lease {
                // Renewed as long as it is asked.
                commands.leased(move || Instant::now() + lease, Duration::from_secs(1));
            }
            let ran = Command::new("sh")
                .args(["-c", &self.script])
                .run(&commands)
                .await;
            eprintln!("{ran:?}");
        });
        ExitCode::SUCCESS
    }

    /// Starts it, in a process group of its own.
    pub fn start(script: &str, lease: Option<Duration>) -> Worker {
        let lease_ms = lease.map_or(0, |lease| lease.as_millis());
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([HOLD, &lease_ms.to_string(), script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Worker(child)
    }
}

pub struct Worker(Child);

impl Worker {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
