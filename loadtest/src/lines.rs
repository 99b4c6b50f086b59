//! Reads files of one JSON value a line, whose last line a kill may have cut short.

use std::io::{BufRead, Error, Result};

use serde::de::DeserializeOwned;

/// All values.
///
/// # Errors
/// When the file cannot be read, or a line other than the last does not fit.
pub fn read<T: DeserializeOwned>(mut file: impl BufRead) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if file.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(values);
        }
        let value = serde_json::from_str(&line)
            .map_err(|error| Error::other(format!("line {}: {error}", values.len() + 1)))?;
        values.push(value);
    }
}
