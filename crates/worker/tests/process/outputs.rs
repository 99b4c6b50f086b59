//! What goes into a command and what comes out.

use std::os::unix::process::ExitStatusExt;

use worker::process::{Command, Error};

use crate::world::{Traced, alone};

pub async fn what_a_command_writes_and_how_it_exits() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let output = traced
        .shell("read -r line; echo \"got $line in $PWD\"; echo oops >&2; exit 3")
        .stdin("hello\n")
        .dir("/")
        .run(&commands)
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout.text(), "got hello in /\n");
    assert_eq!(output.stderr.text(), "oops\n");
    assert!(!output.stdout.is_cut() && !output.stderr.is_cut());
    traced.assert_gone();
}

pub async fn ten_megabytes_go_through() {
    let (_, commands) = alone();
    let bytes: Vec<u8> = (0..10 * 1024 * 1024_u32)
        .map(|n| (n / 7 % 251) as u8)
        .collect();
    let output = Command::new("cat")
        .stdin(bytes.clone())
        .limits(bytes.len(), 0)
        .run(&commands)
        .await
        .unwrap();
    assert!(output.status.success());
    assert!(output.stdout.bytes == bytes, "something else came out");
    assert!(!output.stdout.is_cut());
}

pub async fn input_that_nobody_reads_holds_nothing_up() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let bytes = vec![0; 10 * 1024 * 1024];
    for script in [
        "exit 0",
        "exec <&-; echo done",
        "sleep 0.3; head -c 5 >/dev/null",
    ] {
        let command = traced.shell(script).stdin(bytes.clone());
        let output = command.run(&commands).await.unwrap();
        assert!(output.status.success(), "{script}");
    }
    traced.assert_gone();
}

pub async fn more_than_may_be_kept_is_read_and_counted() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let script = "i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let output = traced
        .shell(script)
        .limits(6, 9)
        .run(&commands)
        .await
        .unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.text(), "out 0\n", "the beginning");
    assert_eq!(output.stderr.text(), "err 1999\n", "the end");
    assert!(output.stdout.is_cut() && output.stderr.is_cut());
    assert_eq!(output.stdout.bytes_written, output.stderr.bytes_written);
    assert!(output.stdout.bytes_written > 10_000);
}

pub async fn a_program_that_is_not_there_is_named() {
    let (_, commands) = alone();
    let error = Command::new("no-such-program")
        .run(&commands)
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Start {
                kind: std::io::ErrorKind::NotFound,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("no-such-program"));
    let error = Command::new("/etc/passwd")
        .run(&commands)
        .await
        .unwrap_err();
    let denied = std::io::ErrorKind::PermissionDenied;
    assert!(
        matches!(&error, Error::Start { kind, .. } if *kind == denied),
        "{error:?}"
    );
}

pub async fn a_folder_that_is_not_there_is_named() {
    let (_, commands) = alone();
    let error = Command::new("true")
        .dir("/no/such/folder")
        .run(&commands)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

pub async fn secrets_of_the_worker_stay_with_it() {
    let (_, commands) = alone();
    // Every process of cargo's has this one.
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    let output = Command::new("env")
        .env("GREETING", "hello")
        .run(&commands)
        .await
        .unwrap();
    let text = output.stdout.text();
    assert!(text.contains("GREETING=hello\n"), "{text}");
    assert!(text.contains("PATH="), "{text}");
    assert!(!text.contains("CARGO"), "{text}");
}

pub async fn outputs_closed_early_end_nothing() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let script = "exec <&- >&- 2>&-; sleep 0.5; exit 4";
    let output = traced.shell(script).run(&commands).await.unwrap();
    assert_eq!(output.status.code(), Some(4));
    traced.assert_gone();
}

pub async fn an_end_by_a_signal_is_told_from_an_exit() {
    let traced = Traced::new();
    let (_, commands) = alone();
    let output = traced.shell("kill -SEGV $$").run(&commands).await.unwrap();
    assert_eq!(output.status.code(), None);
    assert_eq!(output.status.signal(), Some(11));
}
