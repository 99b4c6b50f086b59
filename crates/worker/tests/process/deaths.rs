//! Who dies or freezes, and what becomes of the command. A worker here is this program, started
//! once more.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{getpgid, getsid};
use worker::process::{Command, Error};

use crate::world::{Held, Traced, alone};

/// Some in the group, some in a session of their own, one of those without an environment.
const FAMILY: &str = "trap '' TERM; {sleep} & setsid {sleep} & \
    (env -i setsid sh -c 'cd /; exec >/dev/null 2>&1; {sleep} & exit' &) ; {sleep}";
const MEMBERS: usize = 4;
/// The same without the last kind.
const MARKED: &str = "trap '' TERM; {sleep} & setsid {sleep} & {sleep}";

pub async fn a_killed_worker_takes_its_commands_along() {
    let traced = Traced::new();
    let worker = Held::start(&traced.script(FAMILY), None);
    traced.wait_sleeping(MEMBERS).await;
    worker.signal(Signal::SIGKILL);
    let took = traced.wait_gone().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

pub async fn a_worker_that_ends_takes_its_commands_along() {
    let traced = Traced::new();
    let worker = Held::start(&traced.script(FAMILY), None);
    traced.wait_sleeping(MEMBERS).await;
    worker.signal(Signal::SIGTERM);
    let took = traced.wait_gone().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

pub async fn a_frozen_worker_loses_its_commands_before_its_lease() {
    let traced = Traced::new();
    let lease = Duration::from_millis(1500);
    let worker = Held::start(&traced.script(FAMILY), Some(lease));
    traced.wait_sleeping(MEMBERS).await;
    let frozen = Instant::now();
    worker.signal(Signal::SIGSTOP);
    tokio::time::sleep(lease / 3).await;
    assert_eq!(traced.sleeping(), MEMBERS, "a hiccup ends nothing");
    traced.wait_gone().await;
    // So much before the lease's end does a worker let go: enough for killing and looking.
    assert!(
        frozen.elapsed() < lease + lease / 4,
        "{:?}",
        frozen.elapsed()
    );
    worker.signal(Signal::SIGCONT);
}

pub async fn a_lease_that_is_renewed_keeps_the_command() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let lease = Duration::from_millis(500);
    commands.leased(move || Instant::now() + lease, lease);
    let output = traced
        .shell("sleep 1.5; echo done")
        .run(&commands)
        .await
        .unwrap();
    assert_eq!(output.stdout.text(), "done\n");
}

pub async fn a_lease_that_is_not_renewed_ends_the_command() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let began = Instant::now();
    let lease = Duration::from_millis(700);
    commands.leased(move || began + lease, lease);
    let ran = traced
        .shell(&format!("{FAMILY}; exit 0"))
        .run(&commands)
        .await;
    // Not as if it had ended by itself.
    assert!(matches!(ran, Err(Error::Stopped { .. })), "{ran:?}");
    traced.assert_gone();
    assert!(began.elapsed() >= lease && began.elapsed() < lease * 2);
    let ran = traced.shell("{sleep}").run(&commands).await;
    assert!(matches!(ran, Err(Error::NotStarted)), "{ran:?}");
}

pub async fn a_killed_supervisor_is_avenged_by_the_worker() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let running = traced.shell(MARKED).run(&commands);
    let killing = async {
        traced.wait_sleeping(3).await;
        kill(traced.supervisor().unwrap(), Signal::SIGKILL).unwrap();
        Instant::now()
    };
    let (ran, killed) = tokio::join!(running, killing);
    traced.assert_gone();
    assert!(
        killed.elapsed() < Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    assert!(matches!(ran, Err(Error::Lost { .. })), "{ran:?}");
}

pub async fn a_command_that_kills_its_supervisor_ends_itself() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let script = "{sleep} & setsid {sleep} & sleep 0.2; kill -KILL $PPID; {sleep}";
    let ran = traced.shell(script).run(&commands).await;
    traced.assert_gone();
    assert!(matches!(ran, Err(Error::Lost { .. })), "{ran:?}");
}

pub async fn a_frozen_supervisor_protects_nobody() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let running = traced.shell(MARKED).run(&commands);
    tokio::select! {
        ran = running => panic!("it ended: {ran:?}"),
        _ = traced.wait_sleeping(3) => {}
    }
    // Too late for the order to kill, which came with the drop: freeze it in a second one.
    traced.wait_gone().await;
    let running = traced.shell(MARKED).run(&commands);
    let freezing = async {
        traced.wait_sleeping(3).await;
        kill(traced.supervisor().unwrap(), Signal::SIGSTOP).unwrap();
        commands.end().await;
        traced.assert_gone();
    };
    let (ran, ()) = tokio::join!(running, freezing);
    assert!(matches!(ran, Err(Error::Lost { .. })), "{ran:?}");
}

pub async fn worker_and_supervisor_killed_are_cleaned_up_by_the_next() {
    let traced = Traced::new();
    let worker = Held::start(&traced.script(MARKED), None);
    traced.wait_sleeping(3).await;
    // Frozen first, so that none of the two sees the other die.
    let supervisor = traced.supervisor().unwrap();
    kill(supervisor, Signal::SIGSTOP).unwrap();
    worker.signal(Signal::SIGKILL);
    kill(supervisor, Signal::SIGKILL).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(traced.sleeping(), 3, "nobody is there to end them");
    let (_, commands) = alone();
    Command::new("true").run(&commands).await.unwrap();
    let took = traced.wait_gone().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

pub async fn signals_for_the_worker_do_not_reach_commands() {
    let traced = Traced::new();
    let worker = Held::start(&traced.script("{sleep} & {sleep}"), None);
    traced.wait_sleeping(2).await;
    let supervisor = traced.supervisor().unwrap();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        kill(supervisor, signal).unwrap();
    }
    // A terminal tells the whole group and session; a supervisor has its own.
    assert_eq!(getpgid(Some(supervisor)).unwrap(), supervisor);
    assert_eq!(getsid(Some(supervisor)).unwrap(), supervisor);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(traced.supervisor(), Some(supervisor), "it has ended");
    assert_eq!(traced.sleeping(), 2);
    drop(worker);
}

pub async fn a_program_that_does_not_supervise_is_found_out() {
    let (_, commands) = alone();
    let ran = Command::new("true")
        .supervisor("/bin/true")
        .run(&commands)
        .await;
    assert!(
        matches!(&ran, Err(Error::Supervisor(why)) if why.contains("supervise_if_asked")),
        "{ran:?}"
    );
    let ran = Command::new("true")
        .supervisor("/no/such")
        .run(&commands)
        .await;
    assert!(matches!(&ran, Err(Error::Supervisor(_))), "{ran:?}");
}

pub async fn started_by_hand_it_says_what_it_is() {
    for stdin in [Stdio::null(), Stdio::piped()] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command
            .args(["supervise", "--pipe=2", "touch", "/no/where"])
            .stdin(stdin)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("started by workers"), "{said}");
    }
}
