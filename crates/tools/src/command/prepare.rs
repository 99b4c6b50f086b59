//! From a call to a command line and an environment; nothing of a call is ever read by a shell.

use std::path::Path;

use serde_json::{Map, Value};
use worker::process::Command;
use worker::{Arguments, Principal};

use super::Program;

/// The longest word of a command line (`MAX_ARG_STRLEN` of Linux is 131072, its end included).
const WORD_BYTES_MAX: usize = 128 * 1024 - 1;
/// All words that come from a call.
const WORDS_BYTES_MAX: usize = 512 * 1024;
/// Standard error that is kept.
const STDERR_BYTES_MAX: usize = 8 * 1024;

/// A call that cannot become a command line, told to the model.
pub(super) struct Refused(pub(super) String);

/// What a run is called.
pub(super) struct Names<'a> {
    pub(super) task: &'a str,
    pub(super) attempt: i32,
    /// The same at every attempt.
    pub(super) key: String,
    /// For whom it is run.
    pub(super) principal: &'a Principal,
}

/// A command that can be run, and what must not be seen of it.
pub(super) struct Prepared {
    pub(super) command: Command,
    pub(super) secrets: Vec<String>,
}

impl Program {
    pub(super) fn prepare(
        &self,
        arguments: &Arguments,
        names: &Names<'_>,
    ) -> Result<Prepared, Refused> {
        let values: Map<String, Value> = arguments
            .parse()
            .map_err(|error| Refused(error.to_string()))?;
        let mut command = Command::new(&self.program)
            .args(&self.arguments)
            .args(self.words(&values)?)
            .dir(&self.dir)
            .limits(self.output_bytes_max, STDERR_BYTES_MAX)
            .env("MCP_TASKS_TASK_ID", names.task)
            .env("MCP_TASKS_ATTEMPT", names.attempt.to_string())
            .env("MCP_TASKS_IDEMPOTENCY_KEY", &names.key)
            .env("MCP_TASKS_PRINCIPAL_ISSUER", &names.principal.issuer)
            .env("MCP_TASKS_PRINCIPAL_SUBJECT", &names.principal.subject);
        if let Some(tenant) = &names.principal.tenant {
            command = command.env("MCP_TASKS_PRINCIPAL_TENANT", tenant);
        }
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        let mut secrets = Vec::new();
        for (name, file) in &self.secret_env {
            let secret = secret(file).map_err(|why| Refused(format!("{name}: {why}")))?;
            command = command.env(name, &secret);
            secrets.push(secret);
        }
        if let Some(grace) = self.grace {
            command = command.grace(grace);
        }
        if let Some(bytes) = self.memory_bytes_max {
            command = command.memory(bytes);
        }
        Ok(Prepared { command, secrets })
    }

    /// The words that the call itself adds.
    fn words(&self, values: &Map<String, Value>) -> Result<Vec<String>, Refused> {
        let mut words = Vec::new();
        for (argument, flag) in &self.flags {
            for value in each(values.get(argument)) {
                match value {
                    Value::Bool(true) => words.push(flag.clone()),
                    Value::Bool(false) | Value::Null => {}
                    // One word: whatever the value begins with, it is the flag's.
                    value if flag.starts_with("--") => {
                        words.push(format!("{flag}={}", word(argument, value)?));
                    }
                    value => {
                        words.push(flag.clone());
                        words.push(no_flag(argument, word(argument, value)?)?);
                    }
                }
            }
        }
        let positional = self.positional.iter();
        let positional = positional
            .flat_map(|argument| each(values.get(argument)).map(move |value| (argument, value)));
        let mut positional = positional.filter(|(_, value)| !value.is_null()).peekable();
        let guarded = !self.separator.is_empty();
        if guarded && positional.peek().is_some() {
            words.push(self.separator.clone());
        }
        for (argument, value) in positional {
            let value = word(argument, value)?;
            words.push(if guarded {
                value
            } else {
                no_flag(argument, value)?
            });
        }
        if words.iter().map(String::len).sum::<usize>() > WORDS_BYTES_MAX {
            let why = "the arguments are too long for a command line";
            return Err(Refused(why.to_owned()));
        }
        Ok(words)
    }
}

/// The elements of a list, or the value itself.
fn each(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
        None => &[],
    }
    .iter()
}

/// A value as one word.
fn word(argument: &str, value: &Value) -> Result<String, Refused> {
    let word = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if word.contains('\0') {
        return Err(Refused(format!("{argument}: holds a zero byte")));
    }
    if word.len() > WORD_BYTES_MAX {
        return Err(Refused(format!(
            "{argument}: is longer than {WORD_BYTES_MAX} bytes"
        )));
    }
    Ok(word)
}

/// Refuses a word that the program might take for a flag.
fn no_flag(argument: &str, word: String) -> Result<String, Refused> {
    if word.starts_with('-') {
        return Err(Refused(format!("{argument}: must not begin with \"-\"")));
    }
    Ok(word)
}

/// Read at every start, so that it may change.
fn secret(file: &Path) -> Result<String, String> {
    let secret = std::fs::read_to_string(file).map_err(|error| {
        tracing::error!(file = %file.display(), error = ?error, "a secret cannot be read");
        "its secret cannot be read".to_owned()
    })?;
    Ok(secret.trim_end_matches(['\r', '\n']).to_owned())
}
