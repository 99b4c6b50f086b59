//! What the system itself tells of a few tasks after a run: `mcp-tasks tasks show`, for those that
//! went through the most.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use harness::{Error, Result};

/// The folder in the folder of the run.
pub const LIVES: &str = "tasks";

/// Which tasks, and how the most interesting one of each kind is found.
const KINDS: [(&str, &str); 6] = [
    ("most-attempts", "true ORDER BY attempt DESC"),
    ("parked", "rounds > 0 ORDER BY rounds DESC, attempt DESC"),
    (
        "cancelled",
        "status = 'cancelled' AND stop_reason = 'cancelled' ORDER BY attempt DESC",
    ),
    (
        "undone",
        "EXISTS (SELECT FROM steps s WHERE s.task_id = tasks.id AND s.undo_state = 'finished') \
         ORDER BY attempt DESC",
    ),
    (
        "in-doubt",
        "status = 'failed' AND open_step IS NOT NULL ORDER BY attempt DESC",
    ),
    (
        "given-up",
        "status = 'failed' AND tries >= tries_max ORDER BY attempt DESC",
    ),
];

/// One task's life.
#[derive(Clone, Debug)]
pub struct Life {
    /// Why this task.
    pub kind: &'static str,
    /// Where it was written to.
    pub file: PathBuf,
    /// As `mcp-tasks tasks show` prints it.
    pub text: String,
}

/// Writes the lives of a few tasks into `dir`. A kind that no task is of is left out.
///
/// # Errors
/// If the database can't be asked, the command fails, or a file can't be written.
pub async fn tell(binary: &Path, postgres_url: &str, dir: &Path) -> Result<Vec<Life>> {
    let folder = dir.join(LIVES);
    std::fs::create_dir_all(&folder).map_err(Error::io("make a folder for tasks"))?;
    let mut lives = Vec::new();
    for (kind, which) in KINDS {
        let sql = format!("SELECT id FROM tasks WHERE {which}, id LIMIT 1");
        let rows = harness::postgres::rows(postgres_url, &sql).await?;
        let Some(id) = rows.first().and_then(|row| row.first()?.clone()) else {
            continue;
        };
        let text = show(binary, postgres_url, &id).await?;
        let file = folder.join(format!("{kind}.txt"));
        std::fs::write(&file, &text).map_err(Error::io("write a task's life"))?;
        lives.push(Life { kind, file, text });
    }
    Ok(lives)
}

async fn show(binary: &Path, postgres_url: &str, id: &str) -> Result<String> {
    let shown = tokio::process::Command::new(binary)
        .args(["tasks", "show", id])
        .env("MCP_TASKS__POSTGRES__URL", postgres_url)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(Error::io("run mcp-tasks tasks show"))?;
    if shown.status.success() {
        return Ok(String::from_utf8_lossy(&shown.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&shown.stderr);
    Err(Error::Failed {
        what: format!("mcp-tasks tasks show {id}: {said}"),
        log: None,
    })
}
