//! What an upstream server offers, page by page.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use worker::Definition;

use super::fault::Fault;
use super::link::Link;
use super::message;

/// More than this is a mistake of the server's.
const PAGES_MAX: usize = 100;
/// The same of its tools.
const TOOLS_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tools: Vec<Box<RawValue>>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Execution {
    execution: Option<TaskSupport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskSupport {
    task_support: Option<String>,
}

/// What there is: tools, and what cannot be offered, in words.
pub(super) struct Listed {
    pub(super) tools: Vec<Definition>,
    pub(super) problems: Vec<String>,
}

/// Reads the whole list. A tool that cannot be read is left out, and the others are not.
pub(super) async fn list(
    link: &std::sync::Arc<Link>,
    timeout: std::time::Duration,
) -> Result<Listed, Fault> {
    let mut listed = Listed {
        tools: Vec::new(),
        problems: Vec::new(),
    };
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for _ in 0..PAGES_MAX {
        let cursor_text = cursor.as_deref().map(message::string);
        let members: Vec<(&str, &str)> = cursor_text
            .iter()
            .map(|cursor| ("cursor", cursor.as_str()))
            .collect();
        let page = link.ask("tools/list", &members, None, timeout).await?;
        let page: Page = serde_json::from_str(page.get())
            .map_err(|error| Fault::Garbage(format!("tools/list: {error}")))?;
        for tool in page.tools {
            if listed.tools.len() >= TOOLS_MAX {
                return Err(Fault::Garbage(format!("lists more than {TOOLS_MAX} tools")));
            }
            match read(&tool) {
                Ok(tool) => listed.tools.push(tool),
                Err(problem) => listed.problems.push(problem),
            }
        }
        match page.next_cursor.filter(|next| !next.is_empty()) {
            None => return Ok(listed),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(Fault::Garbage("lists the same page for ever".to_owned()));
            }
            next => cursor = next,
        }
    }
    Err(Fault::Garbage(format!("lists more than {PAGES_MAX} pages")))
}

fn read(tool: &RawValue) -> Result<Definition, String> {
    let definition: Definition = serde_json::from_str(tool.get()).map_err(|error| {
        let begin: String = tool.get().chars().take(80).collect();
        format!("a tool that cannot be read ({error}): {begin}")
    })?;
    // Tasks of 2025-11-25, which such a tool wants, are not spoken.
    let execution: Option<Execution> = serde_json::from_str(tool.get()).ok();
    let support = execution
        .and_then(|tool| tool.execution)
        .and_then(|execution| execution.task_support);
    if support.as_deref() == Some("required") {
        return Err(format!(
            "tool {} only runs as a task of 2025-11-25, which is not spoken to upstreams",
            definition.name
        ));
    }
    Ok(definition)
}
