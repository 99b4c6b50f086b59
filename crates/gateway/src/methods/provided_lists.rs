//! `resources/list`, `resources/templates/list` and `prompts/list`: what the caller may ask for, in
//! pages (MCP 2026-07-28 §Resources, §Prompts). Answered from the catalogue: nothing is asked of a
//! worker.

use std::sync::Arc;

use bytes::Bytes;
use protocol::discover::Caching;
use protocol::meta::ResultMeta;
use protocol::{prompts, resources};

use super::page::{begins_after, page};
use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::method::Method;
use crate::provided::{Lists, Provided, after};
use crate::reply::Reply;

/// One page of `resources/list`.
pub(crate) async fn resources(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.resources, "resources/list")?;
    list(
        shared,
        (call, Method::ResourcesList),
        &provided.resources,
        |items, next, how, meta| resources::write_list(items, next, how, meta),
    )
}

/// One page of `resources/templates/list`.
pub(crate) async fn templates(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.resources, "resources/templates/list")?;
    list(
        shared,
        (call, Method::TemplatesList),
        &provided.templates,
        |items, next, how, meta| resources::write_templates(items, next, how, meta),
    )
}

/// One page of `prompts/list`.
pub(crate) async fn prompts(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let provided = provided(shared).await?;
    served(provided.serves.prompts, "prompts/list")?;
    list(
        shared,
        (call, Method::PromptsList),
        &provided.prompts,
        |items, next, how, meta| prompts::write_list(items, next, how, meta),
    )
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

fn list<T>(
    shared: &Shared,
    (call, method): (&Call, Method),
    list: &Lists<T>,
    write: impl FnOnce(std::vec::IntoIter<&[u8]>, Option<&str>, Caching, &ResultMeta) -> Bytes,
) -> Result<Reply, Error> {
    let from = begins_after(shared, call, method)?;
    let items = after(list, from.as_deref()).filter(|(_, listed)| {
        let scopes = &listed.provider.spec.policy.scopes;
        call.caller.has_scopes(scopes)
    });
    let page = page(shared, (call, method), items, |(key, _)| key);
    let definitions = page.items.iter().map(|(_, listed)| &listed.definition[..]);
    let definitions: Vec<&[u8]> = definitions.collect();
    let json = write(
        definitions.into_iter(),
        page.next.as_deref(),
        page.caching,
        &shared.meta,
    );
    Ok(Reply::ok(json))
}
