//! The externally visible acts of the chaos tools, one line each, written by the acts themselves.

use std::fs::File;
use std::io::{BufReader, Result};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Just before it was written ([`crate::clock`]).
    pub at_us: u64,
    /// The process that acted.
    pub pid: u32,
    /// For which task.
    pub task: String,
    /// The plan's name ([`crate::plan::Plan::call`]).
    pub call: String,
    /// The step.
    pub step: String,
    /// The idempotency key that the step was given.
    pub key: String,
    /// The attempt that acted.
    pub attempt: i32,
    /// Whether it was done or undone.
    pub what: What,
    /// What the step makes of the plan and the answers before it.
    pub value: String,
}

/// Which way an act went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Done.
    Act,
    /// Undone.
    Undo,
}

/// Reads the ledger, in the order of its clock. No file is no act.
///
/// # Errors
/// When the file cannot be read, or a line is none of ours.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut lines: Vec<Line> = crate::lines::read(BufReader::new(file))?;
    lines.sort_by_key(|line| line.at_us);
    Ok(lines)
}
