//! What a running program says, message by message, and what it is told.

use std::time::Duration;

use bytes::Bytes;
use protocol::progress::Progress;
use serde_json::Value;
use tokio::time::Instant;
use worker::process::Talk;
use worker::{Reporter, ToolError};

use super::message::{Lines, Said, Told, progress};
use super::result::INTERNAL;

/// Between two reports of progress.
const REPORT_PAUSE: Duration = Duration::from_millis(100);
/// What is told is sent in pieces.
const PIECE_BYTES: usize = 64 * 1024;

/// Messages of the program, and replies to it.
pub(super) struct Wire {
    talk: Talk,
    lines: Lines,
    /// Nobody is told how an undo goes.
    reporter: Option<Reporter>,
    reports: u64,
    reported: Option<Instant>,
    /// The last report, if it came too soon after the one before.
    held: Option<Progress>,
    /// It has closed its end, and says nothing any more.
    over: bool,
}

impl Wire {
    pub(super) fn new(talk: Talk, reporter: Option<Reporter>) -> Self {
        Self {
            talk,
            lines: Lines::default(),
            reporter,
            reports: 0,
            reported: None,
            held: None,
            over: false,
        }
    }

    /// The next message but for reports of progress, which are passed on at a bearable pace; `None`
    /// when there will be no more. Dropped before it is there, no message is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Said>, String> {
        loop {
            let due = self.reported.map(|reported| reported + REPORT_PAUSE);
            let due = due.unwrap_or_else(Instant::now);
            let held = self.held.is_some();
            let said = tokio::select! {
                said = self.hear() => said?,
                () = tokio::time::sleep_until(due), if held => {
                    self.report().await;
                    continue;
                }
            };
            let Some(Said::Progress {
                message,
                progress: done,
                total,
            }) = said
            else {
                // The last word before something else is not lost.
                self.report().await;
                return Ok(said);
            };
            self.reports += 1;
            self.held = Some(progress(self.reports, message, done, total));
            if Instant::now() >= due {
                self.report().await;
            }
        }
    }

    async fn report(&mut self) {
        // Dropped meanwhile, it is said again.
        if let Some(held) = self.held.clone() {
            if let Some(reporter) = &self.reporter {
                reporter.report(held).await;
            }
            self.reported = Some(Instant::now());
            self.held = None;
        }
    }

    async fn hear(&mut self) -> Result<Option<Said>, String> {
        loop {
            if let Some(said) = self.lines.next()? {
                return Ok(Some(said));
            }
            match self.talk.from.recv().await {
                Some(bytes) => self.lines.push(&bytes),
                None => {
                    self.over = true;
                    return self.lines.last();
                }
            }
        }
    }

    /// Whether it can say anything yet.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) async fn tell(&self, told: &Told<'_>) {
        let mut line = told.line();
        while !line.is_empty() {
            let piece: Bytes = line.split_to(line.len().min(PIECE_BYTES));
            // One that has ended hears nothing any more.
            if self.talk.to.send(piece).await.is_err() {
                return;
            }
        }
    }

    /// The act of a step: what the program does until it says that it is done.
    pub(super) async fn act(&mut self, key: &str) -> Result<Value, ToolError> {
        let doubt = |why: String| ToolError::outcome_unknown(format!("line protocol: {why}"));
        match self.next().await.map_err(doubt)? {
            None => Err(doubt(format!("it ended in the middle of step \"{key}\""))),
            Some(Said::End {
                key: ended,
                output,
                error: None,
                ..
            }) if ended == key => Ok(output),
            Some(Said::End {
                key: ended,
                error: Some(why),
                retry,
                ..
            }) if ended == key => Err(if retry {
                ToolError::retryable(why)
            } else {
                ToolError::failed(INTERNAL, why)
            }),
            Some(other) => {
                let name = other.name();
                Err(doubt(format!(
                    "it said \"{name}\" in the middle of step \"{key}\""
                )))
            }
        }
    }
}
