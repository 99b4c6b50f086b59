//! A system that somebody else runs: where it is, on whose behalf it is asked, and how its parts are
//! broken, by signals to the processes of a `processes.json`, or by `kubectl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use harness::dev::Processes;
use harness::{Error, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, sleep_until};

use super::pods::Kubectl;
use super::scenario::{Break, How};

/// Whoever restarts processes may take so long.
pub(super) const BACK: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// Before the label in a break's target.
const PODS: &str = "pods:";

/// Where it is and how it is reached.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// MCP endpoints.
    pub urls: Vec<String>,
    /// Bearer tokens (or API keys), a principal each; none: every principal's name is its token, which
    /// development authentication believes.
    pub tokens: Vec<String>,
    /// The file that names its processes and what becomes of them.
    pub processes: Option<PathBuf>,
    /// The file that the acts of the chaos tools are appended to, where it can be read from here.
    pub ledger: Option<PathBuf>,
    /// How its pods are reached.
    pub kubectl: Kubectl,
}

/// What came of a break.
#[derive(Debug)]
pub struct Broken {
    /// What was broken.
    pub planned: Break,
    /// Microseconds at which it began and was over.
    pub span: (u64, u64),
    /// Why it could not be done, or not mended.
    pub trouble: Option<String>,
}

impl Outside {
    /// Takes the endpoints from the processes file where none are named.
    ///
    /// # Errors
    /// If there is no endpoint, one is no URL that can be asked, or the file can't be read.
    pub fn complete(mut self) -> Result<Outside> {
        if let (true, Some(file)) = (self.urls.is_empty(), &self.processes) {
            let gateways = read(file)?.gateways;
            self.urls = gateways.into_iter().map(|gateway| gateway.url).collect();
        }
        if self.urls.is_empty() {
            return Err(Error::Other("no endpoint: name one with --url".to_owned()));
        }
        if let Some(odd) = self.urls.iter().find(|url| !url.starts_with("http://")) {
            return Err(Error::Other(format!(
                "--url {odd}: http://HOST[:PORT]/PATH is needed"
            )));
        }
        Ok(self)
    }

    /// Checks that all of it can be broken.
    ///
    /// # Errors
    /// With what can't.
    pub fn check(&self, breaks: &[Break]) -> Result<()> {
        let processes = self.processes.as_deref().map(read).transpose()?;
        for planned in breaks {
            let broken = match planned.target.strip_prefix(PODS) {
                Some("") => Err("after `pods:` a label is needed".to_owned()),
                Some(_) if planned.how == How::Frozen => {
                    Err("pods can be killed or drained, not frozen".to_owned())
                }
                Some(_) => Ok(()),
                None => match &processes {
                    Some(processes) => pid(processes, &planned.target).map(drop),
                    None => Err("without --processes only `pods:LABEL` can be broken".to_owned()),
                },
            };
            broken.map_err(|why| Error::Other(planned.told(&why)))?;
        }
        Ok(())
    }

    /// A name for each endpoint: that of the gateway in the processes file, or else its URL.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let processes = self.processes.as_deref().and_then(|file| read(file).ok());
        let gateways = processes.map(|processes| processes.gateways);
        let gateways = gateways.unwrap_or_default();
        let name = |url: &String| {
            let at = gateways.iter().position(|gateway| gateway.url == *url);
            at.map_or_else(|| url.clone(), |at| format!("gateway-{}", at + 1))
        };
        self.urls.iter().map(name).collect()
    }

    /// Names and process ids, as they are now.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        let processes = self.processes.as_deref().and_then(|file| read(file).ok());
        processes
            .map(|processes| all(&processes))
            .unwrap_or_default()
    }

    /// Breaks everything when it is due, from now on, whatever became of the others; `note` learns of each
    /// when it is over.
    pub async fn break_all(&self, breaks: &[Break], note: impl Fn(Broken)) {
        let (start, note) = (Instant::now(), &note);
        let all = breaks.iter().map(|planned| async move {
            sleep_until(start + planned.at).await;
            let began = crate::clock::now_us();
            let done = match planned.target.strip_prefix(PODS) {
                Some(label) => self.kubectl.break_one(label, planned).await,
                None => self.process(planned).await,
            };
            note(Broken {
                span: (began, crate::clock::now_us()),
                trouble: done.err().map(|error| error.to_string()),
                planned: planned.clone(),
            });
        });
        join_all(all).await;
    }

    async fn process(&self, planned: &Break) -> Result<()> {
        let file = self.processes.as_deref();
        let file = file.ok_or_else(|| Error::Other("there is no processes file".to_owned()))?;
        let before = pid(&read(file)?, &planned.target).map_err(Error::Other)?;
        match planned.how {
            How::Frozen => {
                signal(before, Signal::SIGSTOP)?;
                sleep(planned.lasts).await;
                return signal(before, Signal::SIGCONT);
            }
            How::Killed => signal(before, Signal::SIGKILL)?,
            How::Drained => signal(before, Signal::SIGTERM)?,
        }
        sleep(planned.lasts).await;
        let deadline = Instant::now() + BACK;
        // A file that is being written, or does not name it for a moment, is looked at again.
        let back = || {
            read(file)
                .ok()
                .and_then(|all| pid(&all, &planned.target).ok())
        };
        while back().is_none_or(|pid| pid == before) {
            if Instant::now() > deadline {
                let what = format!("{} started again by whoever runs it", planned.target);
                return Err(Error::Timeout {
                    what,
                    after: BACK,
                    log: None,
                });
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Processes> {
    let failed = || format!("read {}", file.display());
    let text = std::fs::read_to_string(file).map_err(Error::io(failed()))?;
    serde_json::from_str(&text).map_err(|error| Error::Other(format!("{}: {error}", failed())))
}

fn all(processes: &Processes) -> Vec<(String, u32)> {
    let named = |role: &str, pids: Vec<u32>| {
        let named = pids.into_iter().enumerate();
        named
            .map(|(at, pid)| (format!("{role}-{}", at + 1), pid))
            .collect::<Vec<_>>()
    };
    let mut all = named(
        "gateway",
        processes.gateways.iter().map(|one| one.pid).collect(),
    );
    all.extend(named(
        "worker",
        processes.workers.iter().map(|one| one.pid).collect(),
    ));
    all.extend(named(
        "cron",
        processes.cron.iter().map(|one| one.pid).collect(),
    ));
    all.push(("postgres".to_owned(), processes.postgres.pid));
    all.push(("redis".to_owned(), processes.redis.pid));
    all
}

fn pid(processes: &Processes, target: &str) -> std::result::Result<u32, String> {
    let all = all(processes);
    let found = all.iter().find(|(name, _)| name == target);
    found.map(|(_, pid)| *pid).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let number = i32::try_from(pid).ok().filter(|pid| *pid > 1);
    let number = number.ok_or_else(|| Error::Other(format!("{pid} is no process of it")))?;
    kill(Pid::from_raw(number), signal)
        .map_err(|error| Error::Other(format!("{signal} to process {pid}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(target: &str, how: How) -> Break {
        Break {
            at: Duration::ZERO,
            target: target.to_owned(),
            how,
            lasts: Duration::ZERO,
            line: None,
        }
    }

    fn processes(dir: &Path, pid: u32) -> PathBuf {
        let file = dir.join("processes.json");
        let text = format!(
            "{{\"postgres\":{{\"pid\":{pid},\"url\":\"\"}},\"redis\":{{\"pid\":{pid},\"url\":\"\"}},\
             \"gateways\":[{{\"pid\":{pid},\"url\":\"http://127.0.0.1:1/mcp\",\"admin\":\"\"}}],\
             \"workers\":[],\"cron\":[]}}"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn mistakes_are_told_before_anything_is_broken() {
        let temp = harness::temp::Temp::new().unwrap();
        let outside = Outside {
            processes: Some(processes(temp.path(), 999_999)),
            ..Outside::default()
        };
        let outside = outside.complete().unwrap();
        assert_eq!(outside.urls, ["http://127.0.0.1:1/mcp"]);
        assert!(outside.check(&[planned("gateway-1", How::Killed)]).is_ok());
        assert!(outside.check(&[planned("pods:a=b", How::Drained)]).is_ok());
        for (target, how) in [
            ("gateway-2", How::Killed),
            ("pods:", How::Killed),
            ("pods:a=b", How::Frozen),
        ] {
            assert!(outside.check(&[planned(target, how)]).is_err(), "{target}");
        }
        assert!(Outside::default().complete().is_err());
        let odd = Outside {
            urls: vec!["ftp://x".to_owned()],
            ..Outside::default()
        };
        assert!(odd.complete().is_err());
    }

    /// Whoever restarts it writes another process id; the signal goes to the one that was there.
    #[tokio::test]
    async fn a_named_process_is_killed_and_waited_for() {
        let temp = harness::temp::Temp::new().unwrap();
        let log = temp.path().join("log");
        let sleep = harness::process::find_program("sleep").unwrap();
        let spec = harness::process::Spec::new("sleep", &sleep, &log).args(["60".to_owned()]);
        let mut victim = harness::process::Process::spawn(&spec).unwrap();
        let outside = Outside {
            processes: Some(processes(temp.path(), victim.pid())),
            ..Outside::default()
        };
        let broken = std::cell::RefCell::new(Vec::new());
        let breaks = [planned("gateway-1", How::Killed)];
        let breaking = outside.break_all(&breaks, |done| broken.borrow_mut().push(done));
        let restarting = async {
            let ended = victim.wait(Duration::from_secs(30)).await.unwrap();
            assert!(!ended.success());
            processes(temp.path(), 999_999);
        };
        tokio::join!(breaking, restarting);
        let broken = broken.into_inner();
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].trouble, None);
    }
}
