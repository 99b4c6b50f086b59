//! A system that somebody else runs: where it is, on whose behalf it is asked, and how its parts are
//! broken, by signals to the processes of a `processes.json`, or by `kubectl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::dev::Processes;
use harness::{Error, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until};

use super::scenario::{Break, How};

/// Whoever restarts processes may take so long.
const BACK: Duration = Duration::from_secs(60);
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
    /// Arguments of every `kubectl`, such as `--namespace mcp`.
    pub kubectl: Vec<String>,
    /// The program; `kubectl` of the path if none is named.
    pub kubectl_program: Option<PathBuf>,
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
            let target = &planned.target;
            if target
                .strip_prefix(PODS)
                .is_some_and(|label| !label.is_empty())
            {
                if planned.how == How::Frozen {
                    let told = "pods can be killed or drained, not frozen";
                    return Err(Error::Other(format!("break of {target}: {told}")));
                }
                continue;
            }
            let Some(processes) = &processes else {
                let told = "without --processes only `pods:LABEL` can be broken";
                return Err(Error::Other(format!("break of {target}: {told}")));
            };
            pid(processes, target)?;
        }
        Ok(())
    }

    /// Names and process ids, as they are now.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        let processes = self.processes.as_deref().and_then(|file| read(file).ok());
        processes
            .map(|processes| all(&processes))
            .unwrap_or_default()
    }

    /// Breaks everything when it is due, from now on, one after the other; `note` learns of each.
    pub async fn break_all(&self, breaks: &[Break], note: impl Fn(Broken)) {
        let start = Instant::now();
        let mut breaks = breaks.to_vec();
        breaks.sort_by_key(|planned| planned.at);
        for planned in breaks {
            sleep_until(start + planned.at).await;
            let began = crate::clock::now_us();
            let done = match planned.target.strip_prefix(PODS) {
                Some(label) => self.pod(label, &planned).await,
                None => self.process(&planned).await,
            };
            note(Broken {
                span: (began, crate::clock::now_us()),
                trouble: done.err().map(|error| error.to_string()),
                planned,
            });
        }
    }

    async fn process(&self, planned: &Break) -> Result<()> {
        let file = self.processes.as_deref();
        let file = file.ok_or_else(|| Error::Other("there is no processes file".to_owned()))?;
        let before = pid(&read(file)?, &planned.target)?;
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
        while pid(&read(file)?, &planned.target)? == before {
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

    /// One pod with this label is deleted; whatever made it makes another.
    async fn pod(&self, label: &str, planned: &Break) -> Result<()> {
        let running = ["get", "pods", "--selector", label];
        let running = [
            &running[..],
            &[
                "--field-selector",
                "status.phase=Running",
                "--output",
                "name",
            ],
        ]
        .concat();
        let names = self.kubectl(&running).await?;
        let name = names.lines().map(str::trim).find(|name| !name.is_empty());
        let name = name.ok_or_else(|| Error::Other(format!("no pod runs with {label}")))?;
        let mut delete = vec!["delete", name, "--wait=false"];
        if planned.how == How::Killed {
            delete.extend(["--grace-period=0", "--force"]);
        }
        self.kubectl(&delete).await?;
        sleep(planned.lasts).await;
        let timeout = format!("--timeout={}s", BACK.as_secs());
        let wait = [
            "wait",
            "--for=condition=Ready",
            "pods",
            "--selector",
            label,
            &timeout,
        ];
        self.kubectl(&wait).await.map(drop)
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let program = self.kubectl_program.as_deref();
        let mut command = Command::new(program.unwrap_or(Path::new("kubectl")));
        command.args(&self.kubectl).args(args).kill_on_drop(true);
        let output = command.output().await.map_err(Error::io("run kubectl"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Err(Error::Other(format!(
            "kubectl {}: {}",
            args.join(" "),
            told.trim()
        )))
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

fn pid(processes: &Processes, target: &str) -> Result<u32> {
    let all = all(processes);
    let found = all.iter().find(|(name, _)| name == target);
    found.map(|(_, pid)| *pid).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        Error::Other(format!("break of {target}: there are {}", names.join(", ")))
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

    /// A `kubectl` that notes what it is told, and knows of one pod.
    fn noting_kubectl(dir: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let (file, log) = (dir.join("kubectl"), dir.join("told"));
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{}'\ncase \"$*\" in *absent*) ;; *' get pods '*) echo pod/gateway-a ;; \
             *stuck*) echo 'timed out' >&2; exit 1 ;; esac\n",
            log.display()
        );
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[tokio::test]
    async fn pods_are_deleted_and_waited_for() {
        let temp = harness::temp::Temp::new().unwrap();
        let outside = Outside {
            kubectl: vec!["--namespace=mcp".to_owned()],
            kubectl_program: Some(noting_kubectl(temp.path())),
            ..Outside::default()
        };
        let breaks = [
            planned("pods:part=gateway", How::Killed),
            planned("pods:part=gateway", How::Drained),
            planned("pods:part=absent", How::Killed),
            planned("pods:part=stuck", How::Drained),
        ];
        outside.check(&breaks).unwrap();
        let broken = std::cell::RefCell::new(Vec::new());
        outside
            .break_all(&breaks, |done| broken.borrow_mut().push(done.trouble))
            .await;
        let broken = broken.into_inner();
        assert_eq!(broken[..2], [None, None]);
        let told = |at: usize| broken[at].as_deref().unwrap_or_default();
        assert!(
            told(2).contains("no pod runs with part=absent"),
            "{broken:?}"
        );
        assert!(told(3).contains("timed out"), "{broken:?}");
        let log = std::fs::read_to_string(temp.path().join("told")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "--namespace=mcp get pods --selector part=gateway --field-selector status.phase=Running --output name",
                "--namespace=mcp delete pod/gateway-a --wait=false --grace-period=0 --force",
                "--namespace=mcp wait --for=condition=Ready pods --selector part=gateway --timeout=60s",
                "--namespace=mcp get pods --selector part=gateway --field-selector status.phase=Running --output name",
                "--namespace=mcp delete pod/gateway-a --wait=false",
                "--namespace=mcp wait --for=condition=Ready pods --selector part=gateway --timeout=60s",
            ]
        );
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
