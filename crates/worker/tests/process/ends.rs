//! How commands are ended: asked, killed, dropped; and that nothing is left of them.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use worker::process::{Command, Error, Output};

use crate::world::{SOON, Traced, alone};

fn stopped(ran: Result<Output, Error>) -> Output {
    match ran {
        Err(Error::Stopped { output, .. }) => *output,
        other => panic!("not stopped: {other:?}"),
    }
}

pub async fn a_polite_command_is_asked_and_ends() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let command = traced.shell("trap 'echo tidied up; exit 5' TERM; {sleep} & wait");
    let running = command.grace(SOON).run(&commands);
    let stopping = async {
        traced.wait_sleeping(1).await;
        stop.cancel();
        Instant::now()
    };
    let (ran, asked) = tokio::join!(running, stopping);
    traced.assert_gone();
    assert!(asked.elapsed() < SOON / 10, "{:?}", asked.elapsed());
    let output = stopped(ran);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(output.stdout.text(), "tidied up\n");
}

pub async fn a_deaf_command_is_killed_after_its_grace() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let grace = Duration::from_millis(600);
    let command = traced.shell("trap '' TERM; {sleep} & {sleep}");
    let running = command.grace(grace).run(&commands);
    let stopping = async {
        traced.wait_sleeping(2).await;
        stop.cancel();
        let asked = Instant::now();
        tokio::time::sleep(grace / 2).await;
        assert_eq!(traced.sleeping(), 2, "it has its grace");
        asked
    };
    let (ran, asked) = tokio::join!(running, stopping);
    traced.assert_gone();
    assert!(asked.elapsed() >= grace);
    assert_eq!(stopped(ran).status.signal(), Some(9));
}

pub async fn children_have_the_grace_too() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    // The shell ends at once; its child takes its time, and is in another session.
    let child = "trap 'sleep 0.4; echo tidied up; exit' TERM; {sleep} & wait";
    let script = format!(
        "setsid sh -c '{}' & wait",
        traced.script(child).replace('\'', "'\\''")
    );
    let running = traced.shell(&script).grace(SOON).run(&commands);
    let stopping = async {
        traced.wait_sleeping(1).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(running, stopping);
    traced.assert_gone();
    assert_eq!(stopped(ran).stdout.text(), "tidied up\n");
}

pub async fn a_sleeping_beauty_is_woken_to_end() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let running = traced
        .shell("echo; kill -STOP $$; {sleep}")
        .grace(SOON)
        .run(&commands);
    let stopping = async {
        harness::wait::until("it stopped itself", SOON, async || {
            let pid = traced.alive().first().copied()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.contains(") T ").then_some(())
        })
        .await
        .unwrap();
        stop.cancel();
        Instant::now()
    };
    let (ran, asked) = tokio::join!(running, stopping);
    traced.assert_gone();
    assert!(asked.elapsed() < SOON / 10);
    assert_eq!(stopped(ran).status.signal(), Some(15));
}

pub async fn one_that_writes_for_ever_is_stopped() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let command = traced.shell("yes & yes >&2 & wait");
    let running = command.limits(1000, 1000).run(&commands);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(running, stopping);
    traced.assert_gone();
    let output = stopped(ran);
    assert_eq!(
        (output.stdout.bytes.len(), output.stderr.bytes.len()),
        (1000, 1000)
    );
    assert!(output.stdout.bytes_written > 1_000_000 && output.stderr.is_cut());
}

/// Nine in the group, nine in groups of their own, one with a session of its own, and one that
/// forked twice, took a session and forgot its environment.
const TWENTY: &str = "
    for i in 1 2 3; do (trap '' TERM; {sleep} & {sleep} & {sleep} & wait) & done
    for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; {sleep} & {sleep} & {sleep} & wait' & done
    setsid {sleep} &
    (env -i setsid sh -c 'trap \"\" TERM; cd /; exec >/dev/null 2>&1; {sleep} & exit' &)
    ";

pub async fn twenty_grandchildren_are_gone() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let command = traced.shell(&format!("{TWENTY}\nwait"));
    let running = command.grace(Duration::from_millis(300)).run(&commands);
    let stopping = async {
        traced.wait_sleeping(20).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(running, stopping);
    traced.assert_gone();
    stopped(ran);
}

pub async fn what_a_command_leaves_behind_is_killed() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let script = format!("{TWENTY}\nsleep 0.5; echo done; exit 0");
    let began = Instant::now();
    let output = traced.shell(&script).run(&commands).await.unwrap();
    traced.assert_gone();
    assert!(output.status.success(), "that is no failure of its own");
    assert_eq!(output.stdout.text(), "done\n");
    assert!(began.elapsed() < SOON / 6);
}

pub async fn dropped_means_gone() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let command = traced
        .shell(&format!("trap '' TERM; {TWENTY}\nwait"))
        .grace(SOON);
    let running = command.run(&commands);
    tokio::select! {
        ran = running => panic!("it ended: {ran:?}"),
        alive = traced.wait_sleeping(20) => assert!(alive.len() >= 20),
    }
    let took = traced.wait_gone().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

pub async fn the_end_waits_for_dropped_commands() {
    let traced = Traced::new();
    let (_, commands) = alone();
    for _ in 0..5 {
        let running = traced.shell(&format!("{TWENTY}\nwait")).run(&commands);
        tokio::select! {
            ran = running => panic!("it ended: {ran:?}"),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
    // Counted apart: those of the dropped may be dying still.
    let last = Traced::new();
    let running = last.shell(&format!("{TWENTY}\nwait")).run(&commands);
    let ending = async {
        last.wait_sleeping(20).await;
        commands.end().await;
        traced.assert_gone();
        last.assert_gone();
    };
    let (ran, ()) = tokio::join!(running, ending);
    stopped(ran);
}

pub async fn nothing_begins_after_the_end() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let mut attempts = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (command, commands) = (traced.shell("{sleep}"), commands.clone());
        attempts.spawn(async move { command.run(&commands).await });
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    commands.end().await;
    traced.assert_gone();
    while let Some(ran) = attempts.join_next().await {
        let ran = ran.unwrap();
        // One whose supervisor was ended before it could say a word counts as lost.
        assert!(
            matches!(
                ran,
                Err(Error::NotStarted | Error::Stopped { .. } | Error::Lost { .. })
            ),
            "{ran:?}"
        );
    }
    let ran = traced.shell("{sleep}").run(&commands).await;
    assert!(matches!(ran, Err(Error::NotStarted)), "{ran:?}");
}

pub async fn nothing_begins_after_a_stop() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    stop.cancel();
    let ran = traced.shell("{sleep}").run(&commands).await;
    assert!(matches!(ran, Err(Error::NotStarted)), "{ran:?}");
    traced.assert_gone();
}

/// Each starts the next in a session of its own and ends: there is always one, and never the same.
pub async fn a_relay_is_caught() {
    relay(1).await;
}

/// Ten at once. (One that doubled would take the machine away from its neighbours.)
pub async fn ten_relays_are_caught() {
    relay(10).await;
}

async fn relay(count: usize) {
    let traced = Traced::new();
    let (stop, commands) = alone();
    // Their command line is the file's name: found by that. Without the file they end.
    let dir = harness::temp::Temp::new().unwrap();
    let file = dir.path().join(traced.sleep().replace("sleep ", "relay-"));
    std::fs::write(&file, "trap '' TERM\nsetsid sh \"$0\" &\n").unwrap();
    let file = file.display();
    let first = format!("for i in $(seq {count}); do sh {file} & done; wait; {{sleep}}");
    let command = traced.shell(&first).grace(Duration::from_millis(20));
    let running = tokio::time::timeout(SOON, command.run(&commands));
    let stopping = async {
        traced.wait_sleeping(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
        Instant::now()
    };
    let (ran, asked) = tokio::join!(running, stopping);
    traced.assert_gone();
    assert!(asked.elapsed() < SOON / 6, "{:?}", asked.elapsed());
    stopped(ran.unwrap());
}

pub async fn orphans_that_end_are_not_kept_as_zombies() {
    let traced = Traced::new();
    let (stop, commands) = alone();
    let script = "i=0; while [ $i -lt 100 ]; do (true &); i=$((i+1)); done; {sleep}";
    let running = traced.shell(script).run(&commands);
    let counting = async {
        traced.wait_sleeping(1).await;
        let supervisor = traced.supervisor().unwrap();
        harness::wait::for_state(
            "no zombie",
            SOON,
            async || zombies_of(supervisor.as_raw()),
            |zombies| *zombies == 0,
        )
        .await
        .unwrap();
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(running, counting);
    stopped(ran);
}

fn zombies_of(parent: i32) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|e| std::fs::read_to_string(e.path().join("stat")).ok());
    stats
        .filter(|stat| stat.contains(&format!(") Z {parent} ")))
        .count()
}

pub async fn many_at_once_leave_nothing() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (_, commands) = alone();
    Command::new("true").run(&commands).await.unwrap();
    let before = open();
    for _ in 0..4 {
        let mut all = tokio::task::JoinSet::new();
        for n in 0..16 {
            let commands = commands.clone();
            all.spawn(async move {
                let word = n.to_string();
                let output = Command::new("echo")
                    .arg(&word)
                    .run(&commands)
                    .await
                    .unwrap();
                assert_eq!(output.stdout.text().trim_end(), word);
            });
        }
        while let Some(ended) = all.join_next().await {
            ended.unwrap();
        }
    }
    assert_eq!(open(), before, "files were left open");
    let me = i32::try_from(std::process::id()).unwrap();
    assert_eq!(zombies_of(me), 0);
}
