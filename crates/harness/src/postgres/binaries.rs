//! Where Postgres' programs are: on the `PATH`, or where Debian puts them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::process::find_program;

const DEBIAN: &str = "/usr/lib/postgresql";

/// Finds `initdb` or `postgres`. With a data folder, the release that wrote it is preferred: a
/// newer server refuses an older cluster. Otherwise the `PATH` comes first, then Debian's newest.
pub(super) fn find(program: &str, data: Option<&Path>) -> Result<PathBuf> {
    let wrote = data.and_then(|data| std::fs::read_to_string(data.join("PG_VERSION")).ok());
    let same = wrote.map(|version| {
        Path::new(DEBIAN)
            .join(version.trim())
            .join("bin")
            .join(program)
    });
    same.filter(|file| file.is_file())
        .or_else(|| find_program(program))
        .or_else(|| newest(program))
        .ok_or_else(|| Error::Missing {
            program: program.to_owned(),
            hint: "install PostgreSQL 15 or newer (on Debian: .ci/install dev)",
        })
}

fn newest(program: &str) -> Option<PathBuf> {
    let releases = std::fs::read_dir(DEBIAN)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let file = entry.path().join("bin").join(program);
            file.is_file().then_some((number, file))
        });
    releases
        .max_by_key(|(number, _)| *number)
        .map(|(_, file)| file)
}
