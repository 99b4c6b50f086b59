//! Looks through captured logs for what a good run does not say.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

/// The lines of a log that are warnings, errors or no JSON at all (a panic's message, say), and
/// contain none of the `allowed` texts.
///
/// # Errors
/// [`Error::Io`] if the file can't be read.
pub fn unexpected(log: &Path, allowed: &[&str]) -> Result<Vec<String>> {
    let bytes = std::fs::read(log).map_err(Error::io(format!("read {}", log.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let bad = text.lines().filter(|line| !line.is_empty() && is_bad(line));
    let bad = bad.filter(|line| !allowed.iter().any(|text| line.contains(text)));
    Ok(bad.map(str::to_owned).collect())
}

/// The JSON lines of a log.
///
/// # Errors
/// [`Error::Io`] if the file can't be read.
pub fn lines(log: &Path) -> Result<Vec<Value>> {
    let bytes = std::fs::read(log).map_err(Error::io(format!("read {}", log.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// The last lines of a log, with a heading, for messages.
#[must_use]
pub fn tail(log: &Path, lines: usize) -> String {
    let Ok(bytes) = std::fs::read(log) else {
        return format!("no log at {}\n", log.display());
    };
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    format!(
        "last lines of {}:\n  {}\n",
        log.display(),
        last.join("\n  ")
    )
}

fn is_bad(line: &str) -> bool {
    match serde_json::from_str::<Value>(line) {
        Ok(line) => matches!(line["level"].as_str(), Some("WARN" | "ERROR") | None),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_warnings_errors_and_panics() {
        let temp = crate::temp::Temp::new().unwrap();
        let log = temp.path().join("log");
        let lines = [
            r#"{"level":"INFO","message":"started"}"#,
            r#"{"level":"WARN","message":"redis is gone"}"#,
            r#"{"level":"ERROR","message":"bug"}"#,
            "thread 'main' panicked at src/main.rs:1:1:",
        ];
        std::fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(unexpected(&log, &["redis is gone"]).unwrap(), lines[2..]);
        assert_eq!(super::lines(&log).unwrap().len(), 3);
    }
}
