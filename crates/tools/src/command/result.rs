//! What a program's end means for its call.

use std::os::unix::process::ExitStatusExt;

use serde_json::Value;
use worker::process::Output as Outputs;
use worker::{CallToolResult, ToolError};

use super::{Ended, Output, Program};

/// JSON-RPC: something of ours or of the program's is wrong, and no model can mend it.
pub(super) const INTERNAL: i64 = -32603;
/// So many bytes are worth hiding.
const SECRET_BYTES_MIN: usize = 4;

impl Program {
    pub(super) fn ended(&self, output: &Outputs, secrets: &[String]) -> Ended {
        Ended {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: output.stdout.bytes.clone(),
            cut_of: output
                .stdout
                .is_cut()
                .then_some(output.stdout.bytes_written),
            stderr: tail(&output.stderr.text(), secrets),
        }
    }

    /// It ended by an exit code that says: it did not happen, try again later.
    pub(super) fn asks_for_another_try(&self, output: &Outputs) -> bool {
        let code = output.status.code();
        let code = code.and_then(|code| u8::try_from(code).ok());
        code.is_some_and(|code| self.retry_exit_codes.contains(&code))
    }

    /// The result of a run without a protocol.
    pub(super) fn result(&self, ended: &Ended) -> Result<CallToolResult, ToolError> {
        if let Some(written) = ended.cut_of {
            return Ok(CallToolResult::error(format!(
                "wrote {written} bytes to its standard output; {} are allowed",
                self.output_bytes_max
            )));
        }
        if ended.code != Some(0) {
            return Ok(CallToolResult::error(failure(ended)));
        }
        self.output(&ended.stdout)
    }

    /// What standard output says.
    pub(super) fn output(&self, stdout: &[u8]) -> Result<CallToolResult, ToolError> {
        match self.output {
            Output::Text => {
                let text = String::from_utf8_lossy(stdout);
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Ok(CallToolResult::text(text))
            }
            Output::Json => {
                let value = serde_json::from_slice(stdout).map_err(|error| {
                    ToolError::failed(INTERNAL, format!("its standard output is no JSON: {error}"))
                })?;
                self.structured(value)
            }
        }
    }

    /// Structured content, which must be what the tool promises.
    pub(super) fn structured(&self, value: Value) -> Result<CallToolResult, ToolError> {
        if let Some(schema) = &self.output_schema
            && let Err(error) = schema.validate(&value)
        {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "its root" } else { &place };
            let message = format!("its result does not fit its outputSchema, at {place}: {error}");
            return Err(ToolError::failed(INTERNAL, message));
        }
        Ok(CallToolResult::structured(value))
    }
}

/// How a run failed, with the last that it said.
pub(super) fn failure(ended: &Ended) -> String {
    let how = match (ended.code, ended.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    match ended.stderr.trim() {
        "" => how,
        stderr => format!("{how}\n{stderr}"),
    }
}

/// Standard error without secrets.
fn tail(stderr: &str, secrets: &[String]) -> String {
    let secrets = secrets.iter().filter(|s| s.len() >= SECRET_BYTES_MIN);
    secrets.fold(stderr.to_owned(), |text, secret| {
        text.replace(secret, "***")
    })
}

/// Bytes in the journal: as a text where they are one.
pub(crate) mod text_or_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written<'a> {
        Text(std::borrow::Cow<'a, str>),
        Bytes(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Written::Text(text.into()),
            Err(_) => Written::Bytes(bytes.to_vec()),
        }
        .serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Text(text) => text.into_owned().into_bytes(),
            Written::Bytes(bytes) => bytes,
        })
    }
}
