//! `tools/list`: the tools that the caller may call, by name, in pages (MCP 2026-07-28 §Tools).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use protocol::discover::{CacheScope, Caching};
use protocol::jsonrpc::InvalidParams;
use protocol::tools::{self, ListToolsParams};

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;

/// One page. The cursor names the last tool of the page before, so that it holds on every
/// replica and while tools come and go.
pub(crate) async fn list(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let params = ListToolsParams::parse(call.params())?;
    let after = params.cursor.as_deref().map(read_cursor).transpose()?;
    let snapshot = shared.catalog.current().await?;
    let mut page: Vec<_> = snapshot
        .after(after.as_deref())
        .filter(|entry| call.caller.has_scopes(&entry.tool.spec.policy.scopes))
        .take(shared.config.list_page + 1)
        .collect();
    let more = page.len() > shared.config.list_page;
    page.truncate(shared.config.list_page);
    let next = page
        .last()
        .filter(|_| more)
        .map(|last| BASE64_URL_SAFE_NO_PAD.encode(last.tool.spec.name()));
    let caching = Caching {
        ttl_ms: shared.list_ttl_ms(),
        // Private, and the same on all pages, whenever the list depends on the caller.
        scope: match call.caller.scopes {
            None => CacheScope::Public,
            Some(_) => CacheScope::Private,
        },
    };
    let definitions = page.iter().map(|entry| &entry.tool.definition[..]);
    Ok(Reply::ok(tools::write_list(
        definitions,
        next.as_deref(),
        caching,
        &shared.meta,
    )))
}

pub(super) fn read_cursor(cursor: &str) -> Result<String, InvalidParams> {
    let name = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    name.filter(|name| !name.is_empty())
        .and_then(|name| String::from_utf8(name).ok())
        .ok_or_else(|| InvalidParams::new("`cursor` is not one of ours: begin again without it"))
}
