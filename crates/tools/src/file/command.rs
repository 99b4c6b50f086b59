//! `[[command]]`: a program as a tool.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::policy::{Effective, Layer};
use super::reader::Section;
use super::tool::{self, argument_is_known};
use crate::command::{Channel, Output, Program};

const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Less, and no program starts.
const MEMORY_BYTES_MIN: u64 = 1024 * 1024;

/// What became of a section.
pub(super) struct Read {
    pub(super) program: Program,
    pub(super) policy: Vec<Effective>,
    pub(super) effects: Effective,
    pub(super) grace: Option<(Duration, usize)>,
}

/// Reads one section; `None` when it has problems, all of which were told.
pub(super) fn read(section: Section<'_, '_>, folder: &Path, defaults: &Layer) -> Option<Read> {
    let tool = tool::read(&section, defaults);
    let known = &tool.arguments;
    let output = match section.take::<String>("output").as_deref() {
        None if tool.output_schema.is_some() => Output::Json,
        None | Some("text") => Output::Text,
        Some("json") => Output::Json,
        Some(_) => {
            section.wrong_word("output");
            Output::Text
        }
    };
    if output == Output::Text && tool.output_schema.is_some() {
        let problem = "must be \"json\" where there is an output_schema";
        section.problem(section.at("output"), "output", problem);
    }
    let channel = match section.take::<String>("protocol").as_deref() {
        None | Some("none") => None,
        Some("stdout") => Some(Channel::Stdout),
        Some("fd3") => Some(Channel::Fd3),
        Some(_) => {
            section.wrong_word("protocol");
            None
        }
    };
    let dir = section.take::<PathBuf>("dir").map(|dir| folder.join(dir));
    if let Some(dir) = dir.as_ref().filter(|dir| !dir.is_dir()) {
        let problem = format!("{} is no folder", dir.display());
        section.problem(section.at("dir"), "dir", problem);
    }
    let program = section
        .require::<PathBuf>("program")
        .and_then(|program| executable(&section, folder, &program));
    let flags: BTreeMap<String, String> = section.take("flags").unwrap_or_default();
    let positional: Vec<String> = section.take("positional").unwrap_or_default();
    for (argument, flag) in &flags {
        let at = section.at("flags");
        argument_is_known(&section, at, "flags", argument, known);
        if !flag.starts_with('-') || flag.contains([' ', '=', '\0']) {
            let problem = format!("{flag:?} is no flag: one word that begins with -");
            section.problem(at, "flags", problem);
        }
    }
    for argument in &positional {
        argument_is_known(
            &section,
            section.at("positional"),
            "positional",
            argument,
            known,
        );
    }
    if let Some(program) = &program
        && !positional.is_empty()
        && !section.table.contains_key("separator")
        && let Some(interpreter) = script(program)
    {
        let note = format!(
            "the program is a script of {interpreter}, whose first argument is the separator \"--\" \
             and not \"{}\"; a script that does not expect that wants `shift`, or separator = \"\"",
            positional[0]
        );
        section.note(section.at("positional"), "positional", note);
    }
    let stdin = section.take("stdin").unwrap_or(true);
    if channel.is_some() && !stdin {
        let problem = "must be true where there is a protocol: replies come that way";
        section.problem(section.at("stdin"), "stdin", problem);
    }
    let memory_bytes_max: Option<u64> = section.take("memory_bytes_max");
    if memory_bytes_max.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        let problem = format!("must be at least {MEMORY_BYTES_MIN}");
        section.problem(section.at("memory_bytes_max"), "memory_bytes_max", problem);
    }
    let retry_exit_codes: Vec<u8> = section.take("retry_exit_codes").unwrap_or_default();
    if retry_exit_codes.contains(&0) {
        let problem = "0 is success; allowed: a list of exit codes from 1 to 255";
        section.problem(section.at("retry_exit_codes"), "retry_exit_codes", problem);
    }
    let program = Program {
        spec: tool.spec,
        program: program.unwrap_or_default(),
        arguments: section.take("arguments").unwrap_or_default(),
        flags: flags.into_iter().collect(),
        positional,
        separator: section.take("separator").unwrap_or_else(|| "--".to_owned()),
        stdin,
        env: environment(&section),
        secret_env: secrets(&section, folder),
        dir: dir.unwrap_or_else(|| folder.to_owned()),
        output,
        output_schema: tool.output_schema,
        channel,
        effects: tool.effects,
        grace: section
            .take::<humantime_serde::Serde<Duration>>("grace")
            .map(humantime_serde::Serde::into_inner),
        memory_bytes_max,
        output_bytes_max: section.take("output_bytes_max").unwrap_or(OUTPUT_BYTES_MAX),
        retry_exit_codes,
    };
    let grace = program
        .grace
        .map(|grace| (grace, section.reader.line(section.at("grace"))));
    section.finish();
    tool.name.map(|_| Read {
        program,
        policy: tool.policy,
        effects: tool.effects_shown,
        grace,
    })
}

/// The interpreter of a program that gets its arguments one by one, as they stand.
fn script(program: &Path) -> Option<String> {
    let mut start = [0; 128];
    let mut file = std::fs::File::open(program).ok()?;
    let length = std::io::Read::read(&mut file, &mut start).ok()?;
    let line = start[..length].strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let words = line
        .split_whitespace()
        .filter(|word| !word.starts_with('-'));
    let mut names = words.map(|word| word.rsplit('/').next().unwrap_or_default());
    let name = names.find(|name| *name != "env")?;
    let known = ["sh", "bash", "dash", "ksh", "zsh"].contains(&name);
    (known || name.starts_with("python")).then(|| name.to_owned())
}

/// The program's file, if there is one that can be run.
fn executable(section: &Section<'_, '_>, folder: &Path, program: &Path) -> Option<PathBuf> {
    let found = find(folder, program);
    if let Err(problem) = &found {
        section.problem(section.at("program"), "program", problem.clone());
    }
    found.ok()
}

/// Looks for a program as it is started: a path from this folder on, or a name on the PATH.
pub(super) fn find(folder: &Path, program: &Path) -> Result<PathBuf, String> {
    let is_path = program.components().count() > 1 || program.is_absolute();
    let file = if is_path {
        Some(folder.join(program)).filter(|file| file.exists())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|dir| dir.join(program))
            .find(|file| is_executable(file))
    };
    let Some(file) = file else {
        return Err(if is_path {
            format!("{} does not exist", folder.join(program).display())
        } else {
            format!("{} is not on the PATH", program.display())
        });
    };
    if !is_executable(&file) {
        return Err(format!("{} is no executable file", file.display()));
    }
    Ok(file)
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What is known of the environment before a call.
fn environment(section: &Section<'_, '_>) -> Vec<(String, String)> {
    let set: BTreeMap<String, String> = section.take("env").unwrap_or_default();
    let passed: Vec<String> = section.take("env_pass").unwrap_or_default();
    for (key, name) in std::iter::empty()
        .chain(set.keys().map(|name| ("env", name)))
        .chain(passed.iter().map(|name| ("env_pass", name)))
    {
        variable(section, section.at(key), key, name);
    }
    for (name, value) in &set {
        if value.contains('\0') {
            let problem = format!("{name}: a variable cannot hold a zero byte");
            section.problem(section.at("env"), "env", problem);
        }
    }
    let found = passed.into_iter().filter_map(|name| {
        // One that is not set is not passed.
        let value = std::env::var_os(&name)?.into_string().ok()?;
        Some((name, value))
    });
    found.chain(set).collect()
}

fn secrets(section: &Section<'_, '_>, folder: &Path) -> Vec<(String, PathBuf)> {
    let secrets: BTreeMap<String, PathBuf> = section.take("secret_env").unwrap_or_default();
    let at = section.at("secret_env");
    let secrets = secrets.into_iter().map(|(name, file)| {
        variable(section, at, "secret_env", &name);
        let file = folder.join(file);
        if let Err(error) = std::fs::read_to_string(&file) {
            let problem = format!("{name}: {}: {error}", file.display());
            section.problem(at, "secret_env", problem);
        }
        (name, file)
    });
    secrets.collect()
}

fn variable(section: &Section<'_, '_>, at: usize, key: &str, name: &str) {
    if name.is_empty() || name.contains(['=', '\0']) {
        section.problem(at, key, format!("{name:?} is no name of a variable"));
    } else if name.starts_with("MCP_TASKS_") || name == "TRACEPARENT" {
        section.problem(at, key, format!("{name} is set by the worker itself"));
    }
}
