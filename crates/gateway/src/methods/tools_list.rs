//! `tools/list`: the tools that the caller may call, by name, in pages (MCP 2026-07-28 §Tools).

use protocol::tools;

use super::page::{begins_after, page};
use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::method::Method;
use crate::reply::Reply;

/// One page.
pub(crate) async fn list(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let after = begins_after(shared, call, Method::ToolsList)?;
    let snapshot = shared.catalog.current().await?;
    let tools = snapshot
        .after(after.as_deref())
        .filter(|entry| call.caller.has_scopes(&entry.tool.spec.policy.scopes));
    let page = page(shared, (call, Method::ToolsList), tools, |entry| {
        entry.tool.spec.name()
    });
    let definitions = page.items.iter().map(|entry| &entry.tool.definition[..]);
    Ok(Reply::ok(tools::write_list(
        definitions,
        page.next.as_deref(),
        page.caching,
        &shared.meta,
    )))
}
