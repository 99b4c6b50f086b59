//! An upstream server that is a program of its own: one process, spoken to through its pipes
//! (MCP 2025-11-25 §stdio), supervised like every command of a worker's.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use worker::process::{Command, Commands, Output, Talk};

use super::config::UpstreamConfig;
use super::floor::Floor;
use super::link::nobody_answers;
use super::message::{self, Message, Request};

/// Of its standard error, for the message at its end.
const STDERR_BYTES_MAX: usize = 4096;

/// So many lines of it at most, and so much of each.
const LAST_LINES: usize = 5;
const LINE_BYTES_MAX: usize = 300;

/// A process that has closed its output may take so long to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What happens first.
enum Closed {
    Ended(Result<Output, worker::process::Error>),
    Heard(Option<String>),
}

/// The command as its settings want it.
pub(super) fn command(config: &UpstreamConfig) -> Command {
    let line = config.command.as_deref().unwrap_or_default();
    let mut command = Command::new(line.first().map_or("", String::as_str))
        .args(line.iter().skip(1))
        .limits(0, STDERR_BYTES_MAX)
        .interruptible();
    for name in &config.env_pass {
        if let Some(value) = std::env::var_os(name) {
            command = command.env(name, value);
        }
    }
    for (name, value) in &config.env {
        command = command.env(name, value);
    }
    if let Some(dir) = &config.dir {
        command = command.dir(dir);
    }
    command
}

/// Runs the process until it ends or `stop`; says how it ended. Whoever waits on `floor` is told
/// that there is nothing to wait for.
pub(super) async fn run(
    command: Command,
    talk: Talk,
    floor: Floor,
    bytes_max: usize,
    stop: CancellationToken,
) -> String {
    let Talk { to, from } = talk;
    let commands = Commands::alone(stop.clone());
    let running = command.run(&commands);
    let hearing = hear(to, from, &floor, bytes_max);
    tokio::pin!(running);
    let closed = tokio::select! {
        ended = &mut running => Closed::Ended(ended),
        problem = hearing => Closed::Heard(problem),
    };
    let ended = match closed {
        Closed::Ended(ended) => ended,
        Closed::Heard(Some(problem)) => {
            stop.cancel();
            // What it comes to is known already.
            let _ = running.await;
            floor.close();
            return problem;
        }
        // It has closed its output: it ends, or is ended.
        Closed::Heard(None) => match tokio::time::timeout(LAST_WORDS, &mut running).await {
            Ok(ended) => ended,
            Err(_) => {
                stop.cancel();
                running.await
            }
        },
    };
    floor.close();
    match ended {
        Ok(output) => last_words(&output),
        Err(worker::process::Error::Stopped { output, .. }) => last_words(&output),
        Err(error) => error.to_string(),
    }
}

/// How it ended, and the end of what it said of it.
fn last_words(output: &Output) -> String {
    let said = end_of(&output.stderr.text());
    format!("has ended ({}): {said}", output.status)
}

/// The last lines, and before them the first one that tells of an error: runtimes print that first,
/// and then where it was.
fn end_of(said: &str) -> String {
    let lines = said.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(LAST_LINES);
    let tells = |line: &&&str| {
        let line = line.to_ascii_lowercase();
        ["error", "exception", "panicked", "fatal"]
            .iter()
            .any(|word| line.contains(word))
    };
    let cause = lines[..last].iter().find(tells);
    let said = cause.into_iter().chain(&lines[last..]).map(|line| {
        let end = line.floor_char_boundary(LINE_BYTES_MAX);
        &line[..end]
    });
    said.collect::<Vec<&str>>().join(" | ")
}

/// Hears until it has closed its output, or says too much at once.
async fn hear(
    to: mpsc::Sender<Bytes>,
    mut from: mpsc::Receiver<Bytes>,
    floor: &Floor,
    bytes_max: usize,
) -> Option<String> {
    let mut buffer = BytesMut::new();
    let mut looked = 0;
    while let Some(bytes) = from.recv().await {
        buffer.extend_from_slice(&bytes);
        while let Some(found) = buffer[looked..].iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(looked + found);
            buffer.advance(1);
            looked = 0;
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match Message::read(line) {
                Ok(message) => {
                    if let Some(request) = floor.deliver(message) {
                        refuse(&to, &request).await;
                    }
                }
                // Programs print what they like; a lost answer is found by its time-out.
                Err(error) => tracing::debug!(error, "an upstream wrote what is no message"),
            }
        }
        looked = buffer.len();
        if buffer.len() > bytes_max {
            return Some(format!(
                "wrote more than the {bytes_max} bytes allowed for one message"
            ));
        }
    }
    None
}

async fn refuse(to: &mpsc::Sender<Bytes>, request: &Request) {
    let mut line = no_call(request);
    line.push('\n');
    // A process that is gone needs no answer.
    let _ = to.send(line.into()).await;
}

/// The answer to a request that is about no call we know of.
pub(super) fn no_call(request: &Request) -> String {
    let result = if request.method == "ping" {
        Ok(serde_json::value::RawValue::from_string("{}".to_owned())
            .expect("an empty object is JSON"))
    } else {
        Err(nobody_answers())
    };
    message::answer(&request.id, &result)
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_cause_is_told_with_the_last_lines() {
        let node = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n\
                    Error: Cannot find module '/srv/server.js'\n    at A (a:1:1)\n    at B (b:1:1)\n\
                    at C (c:1:1) {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\n\
                    Node.js v20.20.2\n";
        let said = end_of(node);
        assert!(
            said.starts_with("Error: Cannot find module '/srv/server.js' | "),
            "{said}"
        );
        assert!(
            said.ends_with("requireStack: [] | } | Node.js v20.20.2"),
            "{said}"
        );
        assert_eq!(end_of("a\n\nb\n"), "a | b");
        assert_eq!(end_of(""), "");
        let long = end_of(&"ö".repeat(4000));
        assert_eq!(long.len(), 300);
    }
}
