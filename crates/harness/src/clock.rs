//! A machine whose clock is wrong: libfaketime in front of one of our processes.
//!
//! Only the wall clock is moved. The monotonic clock, which no operator can set, is left alone.

use std::path::PathBuf;

use crate::error::{Error, Result};

const LIBRARIES: &str = "/usr/lib";
/// The variant for programs with threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The environment of a process whose wall clock is wrong by so many seconds: positive is ahead.
/// For [`crate::node::Plan::env`].
///
/// # Errors
/// [`Error::Missing`] if libfaketime is not installed.
pub fn off_by(seconds: i64) -> Result<Vec<(String, String)>> {
    set(&format!("{seconds:+}s"))
}

/// The environment of a process whose wall clock is right when it starts, and runs so many times too
/// fast: minutes pass while a test waits.
///
/// # Errors
/// [`Error::Missing`] if libfaketime is not installed.
pub fn times(factor: u32) -> Result<Vec<(String, String)>> {
    set(&format!("+0 x{factor}"))
}

fn set(clock: &str) -> Result<Vec<(String, String)>> {
    let library = library().ok_or_else(|| Error::Missing {
        program: "libfaketime".into(),
        hint: "install faketime (on Debian: .ci/install test)",
    })?;
    Ok([
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", clock.to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}

/// Debian puts it below a folder named for the machine, others beside it.
fn library() -> Option<PathBuf> {
    let below = std::fs::read_dir(LIBRARIES).ok()?.flatten();
    let places = below.map(|entry| entry.path().join(LIBRARY));
    places
        .chain([PathBuf::from(LIBRARIES).join(LIBRARY)])
        .find(|file| file.is_file())
}
