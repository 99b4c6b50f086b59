//! The house rules as tests: reads files and `cargo metadata`, and depends on no crate of ours.

use std::path::{Path, PathBuf};

/// The workspace's root folder.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
        .to_owned()
}

/// All files below `dir` whose name ends with `suffix`, build output left out.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree can be read") {
            let path = entry.expect("a folder of the tree can be read").path();
            let name = path
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default();
            if path.is_dir() {
                if !["target", "node_modules", ".git", ".tools", ".dev"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name.ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The text of a file.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A path as people write it: from the root.
#[must_use]
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}
