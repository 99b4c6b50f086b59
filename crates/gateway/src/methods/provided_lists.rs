//! `resources/list`, `resources/templates/list` and `prompts/list`: what the caller may ask for, in
//! pages (MCP 2026-07-28 §Resources, §Prompts). Answered from the catalogue: nothing is asked of a
//! worker.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use protocol::discover::{CacheScope, Caching};
use protocol::meta::ResultMeta;
use protocol::tools::ListToolsParams;
use protocol::{prompts, resources};

use super::tools_list::read_cursor;
use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::provided::{Lists, Provided, after};
use crate::reply::Reply;

/// One page of `resources/list`.
pub(crate) async fn resources(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.resources, "resources/list")?;
    let page = page(shared, call, &provided.resources)?;
    Ok(page.reply(shared, |page, definitions, meta| {
        resources::write_list(definitions, page.next.as_deref(), page.caching, meta)
    }))
}

/// One page of `resources/templates/list`.
pub(crate) async fn templates(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.resources, "resources/templates/list")?;
    let page = page(shared, call, &provided.templates)?;
    Ok(page.reply(shared, |page, definitions, meta| {
        resources::write_templates(definitions, page.next.as_deref(), page.caching, meta)
    }))
}

/// One page of `prompts/list`.
pub(crate) async fn prompts(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.prompts, "prompts/list")?;
    let page = page(shared, call, &provided.prompts)?;
    Ok(page.reply(shared, |page, definitions, meta| {
        prompts::write_list(definitions, page.next.as_deref(), page.caching, meta)
    }))
}

async fn provided(shared: &Shared) -> Result<Arc<Provided>, Error> {
    Ok(Arc::clone(&shared.catalog.current().await?.provided))
}

/// What nobody provides is no method of this server.
pub(super) fn served(is_served: bool, method: &str) -> Result<(), Error> {
    if is_served {
        return Ok(());
    }
    Err(Error::Method(method.to_owned()))
}

struct Page {
    definitions: Vec<Bytes>,
    next: Option<String>,
    caching: Caching,
}

impl Page {
    fn reply(
        &self,
        shared: &Shared,
        write: impl FnOnce(&Self, std::vec::IntoIter<&[u8]>, &ResultMeta) -> Bytes,
    ) -> Reply {
        let definitions: Vec<&[u8]> = self.definitions.iter().map(|json| &json[..]).collect();
        Reply::ok(write(self, definitions.into_iter(), &shared.meta))
    }
}

/// The cursor names the last one of the page before, so that it holds on every replica and while
/// lists change.
fn page<T>(shared: &Shared, call: &Call, list: &Lists<T>) -> Result<Page, Error> {
    let params = ListToolsParams::parse(call.params())?;
    let from = params.cursor.as_deref().map(read_cursor).transpose()?;
    let size = shared.config.list_page;
    let mut items: Vec<_> = after(list, from.as_deref())
        .filter(|(_, listed)| {
            let scopes = &listed.provider.spec.policy.scopes;
            call.caller.has_scopes(scopes)
        })
        .take(size + 1)
        .collect();
    let more = items.len() > size;
    items.truncate(size);
    Ok(Page {
        next: items
            .last()
            .filter(|_| more)
            .map(|(key, _)| BASE64_URL_SAFE_NO_PAD.encode(key)),
        definitions: items
            .iter()
            .map(|(_, listed)| listed.definition.clone())
            .collect(),
        caching: Caching {
            ttl_ms: shared.list_ttl_ms(),
            scope: match call.caller.scopes {
                None => CacheScope::Public,
                Some(_) => CacheScope::Private,
            },
        },
    })
}
