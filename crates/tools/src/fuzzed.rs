//! What this crate decodes, for fuzzers and property tests (`crates/fuzz`): thin wrappers, and nothing
//! that anybody else should call.

use std::path::Path;

use serde_json::{Map, Value};

use crate::file::{self, Problem};
use crate::http::template::{Allowed, Field, Url, Values};

pub use crate::command::lines;
pub use crate::upstream::fuzzed::{events, message};

/// Reads a tools file whose programs lie in a folder: how many tools and upstreams it declares.
///
/// # Errors
/// Everything that is wrong with it.
pub fn tools_file(text: &str, folder: &Path) -> Result<usize, Vec<Problem>> {
    file::read(text, folder).map(|file| file.tools.len() + file.upstreams.len())
}

/// A URL with places for arguments, filled; `None` where it is none or the values are refused.
#[must_use]
pub fn url(text: &str, arguments: &Map<String, Value>) -> Option<(http::Uri, http::Uri)> {
    let names: Vec<String> = arguments.keys().cloned().collect();
    let allowed = Allowed {
        arguments: &names,
        callback: true,
    };
    let url = Url::read(text, &allowed).ok()?;
    let field = |field: Field| Some(format!("{field:?}"));
    let values = Values {
        arguments,
        field: &field,
    };
    let filled = url.fill(&values).ok()?;
    Some((url.shape.clone(), filled))
}
