//! What an upstream server offers, page by page.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::code;
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

/// A list, or as much of it as is read.
pub(super) struct Items {
    pub(super) items: Vec<Box<RawValue>>,
    /// There are more than are wanted.
    pub(super) more: bool,
}

/// What there is: tools, and what cannot be offered, in words.
pub(super) struct Listed {
    pub(super) tools: Vec<(Definition, Support)>,
    pub(super) problems: Vec<String>,
}

/// Whether a tool of an older server runs as a task (MCP 2025-11-25 §Tasks, Tool-Level
/// Negotiation). Since 2026-07-28 that is the server's to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Support {
    Optional,
    Required,
    #[default]
    #[serde(other)]
    Forbidden,
}

#[derive(Deserialize)]
struct Execution {
    execution: Option<TaskSupport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskSupport {
    task_support: Option<Support>,
}

/// Reads the whole list of tools. One that cannot be read is left out, and the others are not.
pub(super) async fn list(link: &Arc<Link>, timeout: Duration) -> Result<Listed, Fault> {
    let mut listed = Listed {
        tools: Vec::new(),
        problems: Vec::new(),
    };
    let read = match pages(link, "tools/list", "tools", TOOLS_MAX, timeout).await {
        Ok(read) => read,
        // It serves other things.
        Err(Fault::Rpc(error))
            if error.code == code::METHOD_NOT_FOUND && !link.serves("/tools") =>
        {
            return Ok(listed);
        }
        Err(fault) => return Err(fault),
    };
    if read.more {
        return Err(Fault::Garbage(format!("lists more than {TOOLS_MAX} tools")));
    }
    for tool in read.items {
        match tool_of(&tool, link) {
            Ok(tool) => listed.tools.push(tool),
            Err(problem) => listed.problems.push(problem),
        }
    }
    Ok(listed)
}

/// Reads a list until it ends, or holds more than `max`.
pub(super) async fn pages(
    link: &Arc<Link>,
    method: &str,
    member: &str,
    max: usize,
    timeout: Duration,
) -> Result<Items, Fault> {
    let garbage = |why: String| Fault::Garbage(format!("{method}: {why}"));
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for _ in 0..PAGES_MAX {
        let cursor_text = cursor.as_deref().map(message::string);
        let members: Vec<(&str, &str)> = cursor_text
            .iter()
            .map(|cursor| ("cursor", cursor.as_str()))
            .collect();
        let page = link.ask(method, &members, None, timeout).await?;
        let page: HashMap<&str, &RawValue> =
            serde_json::from_str(page.get()).map_err(|error| garbage(error.to_string()))?;
        let listed = page
            .get(member)
            .ok_or_else(|| garbage(format!("without `{member}`")))?;
        let listed: Vec<Box<RawValue>> =
            serde_json::from_str(listed.get()).map_err(|error| garbage(error.to_string()))?;
        items.extend(listed);
        if items.len() > max {
            items.truncate(max);
            return Ok(Items { items, more: true });
        }
        let next: Option<String> = match page.get("nextCursor") {
            Some(next) => serde_json::from_str(next.get())
                .map_err(|error| garbage(format!("nextCursor: {error}")))?,
            None => None,
        };
        match next.filter(|next| !next.is_empty()) {
            None => return Ok(Items { items, more: false }),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(garbage("lists the same page for ever".to_owned()));
            }
            next => cursor = next,
        }
    }
    Err(garbage(format!("lists more than {PAGES_MAX} pages")))
}

/// What could not be read, by its beginning.
pub(super) fn unread(what: &str, text: &RawValue, error: &serde_json::Error) -> String {
    let begin: String = text.get().chars().take(80).collect();
    format!("{what} that cannot be read ({error}): {begin}")
}

fn tool_of(tool: &RawValue, link: &Link) -> Result<(Definition, Support), String> {
    let definition: Definition =
        serde_json::from_str(tool.get()).map_err(|error| unread("a tool", tool, &error))?;
    let execution: Option<Execution> = serde_json::from_str(tool.get()).ok();
    let support = execution
        .and_then(|tool| tool.execution)
        .and_then(|execution| execution.task_support)
        .filter(|_| !link.is_modern())
        .unwrap_or_default();
    if support == Support::Required && !link.makes_tasks() {
        return Err(format!(
            "tool {} only runs as a task, and its server makes none for calls",
            definition.name
        ));
    }
    Ok((definition, support))
}
