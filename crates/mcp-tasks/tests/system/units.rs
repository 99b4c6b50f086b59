//! The units for systemd: such that systemd takes, and that give up what no process of ours needs.

use std::path::Path;
use std::process::Command;

use harness::temp::Temp;

/// Of ten times the exposure that systemd reckons; a unit without a word about it has 96.
const EXPOSURE_MAX: &str = "25";

#[test]
fn every_unit_is_taken_and_gives_up_what_it_does_not_need() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let copies = Temp::new().unwrap();
    let mut units = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file
            .extension()
            .is_none_or(|extension| extension != "service")
        {
            continue;
        }
        units += 1;
        // A unit whose program is missing is refused.
        let text = std::fs::read_to_string(&file).unwrap();
        let ours = text.replace("/usr/local/bin/mcp-tasks", env!("CARGO_BIN_EXE_mcp-tasks"));
        assert_ne!(text, ours, "{}", file.display());
        let copy = copies.path().join(file.file_name().unwrap());
        std::fs::write(&copy, ours).unwrap();
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        for words in [
            &["verify", "--man=no"][..],
            &["security", "--offline=true", &threshold],
        ] {
            let output = Command::new("systemd-analyze")
                .args(words)
                .arg(&copy)
                .output();
            let output = output.unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "{}: {said}", file.display());
            // Of keys that it does not know, it only warns.
            assert!(
                words[0] != "verify" || said.is_empty(),
                "{}: {said}",
                file.display()
            );
        }
    }
    assert_eq!(units, 3);
}
