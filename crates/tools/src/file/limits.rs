//! What a tools file and a worker's settings must agree on: what is written must be kept.

use super::reader::{Problem, Section};
use crate::command::{Effects, Program};

const KEY: &str = "output_bytes_max";

/// What a worker's settings allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `worker.step_bytes_max`.
    pub step_bytes_max: usize,
    /// `worker.result_bytes_max`.
    pub result_bytes_max: usize,
}

/// What a program may write to its standard output.
#[derive(Clone, Debug)]
pub(super) struct Written {
    place: String,
    line: usize,
    /// The file says how much.
    is_set: bool,
    bytes_max: usize,
    /// The whole run is one step, and this its output.
    is_step: bool,
    /// What its policy says of the result.
    result_bytes_max: Option<u64>,
}

impl Written {
    /// Where it is said.
    pub(super) fn of(section: &Section<'_, '_>) -> Self {
        Self {
            place: section.path(KEY),
            line: section.reader.line(section.at(KEY)),
            is_set: section.table.contains_key(KEY),
            bytes_max: 0,
            is_step: false,
            result_bytes_max: None,
        }
    }

    /// And what it comes to.
    pub(super) fn by(self, program: &Program) -> Self {
        Self {
            bytes_max: program.output_bytes_max,
            is_step: program.channel.is_none() && program.effects != Effects::None,
            result_bytes_max: program.spec.policy.result_bytes_max,
            ..self
        }
    }
}

impl Limits {
    /// What was written, and could not be kept.
    pub(super) fn problems(self, written: &[Written]) -> Vec<Problem> {
        let problem = |one: &Written| {
            let result = one.result_bytes_max;
            let result = result.and_then(|bytes| usize::try_from(bytes).ok());
            let result = result.unwrap_or(self.result_bytes_max);
            let bytes = one.bytes_max;
            let problem = if one.is_step && bytes > self.step_bytes_max {
                format!(
                    "{bytes} is more than worker.step_bytes_max ({}): what was written could not \
                     be kept after the run, and its task would fail",
                    self.step_bytes_max
                )
            } else if one.is_set && bytes > result {
                format!("{bytes} is more than a result of this tool may have ({result})")
            } else {
                return None;
            };
            Some(Problem {
                line: one.line,
                key: one.place.clone(),
                problem,
            })
        };
        written.iter().filter_map(problem).collect()
    }
}
