//! A folder with a tools file and its scripts, and what is left alive of them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tools::file;
use worker::testkit::{Kit, Run};
use worker::{CallToolResult, Tool};

pub struct World {
    dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A shell script as a tool that takes any arguments; `more` are further keys of its section.
    pub fn script(&self, script: &str, more: &str) -> Arc<dyn Tool> {
        self.program("script", &format!("#!/bin/sh\n{script}\n"), more)
    }

    pub fn python(&self, script: &str, more: &str) -> Arc<dyn Tool> {
        let head = "#!/usr/bin/env python3\nimport json, os, sys\n\
                    def say(**m): print(json.dumps(m), flush=True)\n\
                    def hear(): return json.loads(sys.stdin.readline())\n";
        let more = format!("protocol = \"stdout\"\n{more}");
        self.program("script", &format!("{head}{script}\n"), &more)
    }

    fn program(&self, name: &str, text: &str, more: &str) -> Arc<dyn Tool> {
        self.write(name, text);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), executable).unwrap();
        let properties = r#"{ x = {}, y = {}, z = {} }"#;
        self.write(
            "tools.toml",
            &format!(
                "[[command]]\nname = \"tool\"\ndescription = \"T.\"\nprogram = \"./{name}\"\n\
                 input_schema = {{ type = \"object\", properties = {properties} }}\n{more}\n"
            ),
        );
        self.tool("tool")
    }

    /// The tool of this name in the file.
    pub fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let read = file::load(&self.path("tools.toml")).unwrap_or_else(|error| panic!("{error}"));
        let mut tools = read.tools.into_iter();
        tools.find(|tool| tool.name == name).unwrap().tool
    }

    /// Processes whose working folder is this one.
    fn alive(&self) -> Vec<i32> {
        let dir = self.dir.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| is_in(*pid, &dir)).collect()
    }

    #[track_caller]
    pub fn assert_gone(&self) {
        assert_eq!(self.alive(), [0; 0], "still alive");
    }

    /// Waits until nobody is left: for those that are killed because nobody waits for them.
    pub async fn wait_gone(&self) {
        for _ in 0..3000 {
            if self.alive().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.assert_gone();
    }
}

fn is_in(pid: i32, dir: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir)
}

pub async fn call(tool: &Arc<dyn Tool>, arguments: Value) -> Run {
    Kit::of(Arc::clone(tool)).arguments(arguments).run().await
}

/// The text of a result that is no error.
#[track_caller]
pub fn text(run: &Run) -> String {
    let result = run.result().unwrap_or_else(|error| panic!("{error:?}"));
    assert!(!result.is_error, "{result:?}");
    text_of(result)
}

/// The text of a result that is one.
#[track_caller]
pub fn error(run: &Run) -> String {
    let result = run.result().unwrap_or_else(|error| panic!("{error:?}"));
    assert!(result.is_error, "{result:?}");
    text_of(result)
}

fn text_of(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().to_owned()
}

/// The message of a failure.
#[track_caller]
pub fn failure(run: &Run) -> String {
    let error = run.result().unwrap_err();
    let failed = error.as_failed().unwrap_or_else(|| panic!("{error:?}"));
    failed.message.clone()
}
