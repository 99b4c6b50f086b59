//! The reference of settings in docs/ is what the binary prints.

use std::process::Command;

#[test]
fn the_reference_of_settings_is_current() {
    let printed = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
        .args(["config", "reference"])
        .output()
        .expect("the binary runs");
    assert!(printed.status.success());
    let written = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/configuration.md"
    ))
    .expect("docs/configuration.md can be read");
    assert!(
        String::from_utf8_lossy(&printed.stdout) == written,
        "docs/configuration.md is stale: run `make docs`"
    );
}
