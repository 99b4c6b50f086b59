//! Pages of lists. A cursor names the last item of the page before, so that it holds on every replica
//! and while items come and go. Without a key no cursor can be sealed, and lists come whole.

use protocol::discover::{CacheScope, Caching};
use protocol::meta;
use protocol::tools::ListToolsParams;

use crate::Shared;
use crate::auth;
use crate::cursor::Use;
use crate::endpoint::Call;
use crate::error::Error;
use crate::method::Method;

/// One page of what the caller may ask for.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// The cursor of the next page, if there is one.
    pub(super) next: Option<String>,
    pub(super) caching: Caching,
}

/// After which item the page begins that is asked for; `None` = with the first.
pub(super) fn begins_after(
    shared: &Shared,
    call: &Call,
    list: Method,
) -> Result<Option<String>, Error> {
    let params = ListToolsParams::parse(call.params())?;
    let cursor = params.cursor.as_deref();
    let used = used(call, list);
    let after = cursor.map(|text| used.open(&shared.state_keys, text, auth::time_of_day()));
    Ok(after.transpose()?)
}

/// The first page of these items; `name` is what a cursor says of one.
pub(super) fn page<T>(
    shared: &Shared,
    (call, list): (&Call, Method),
    items: impl Iterator<Item = T>,
    name: impl FnOnce(&T) -> &str,
) -> Page<T> {
    let keys = &shared.state_keys;
    let size = if keys.can_seal() {
        shared.config.list_page
    } else {
        usize::MAX - 1
    };
    let mut items: Vec<T> = items.take(size + 1).collect();
    let more = items.len() > size;
    items.truncate(size);
    let last = items.last().filter(|_| more);
    let used = used(call, list);
    Page {
        next: last.and_then(|last| used.seal(keys, name(last), auth::time_of_day())),
        items,
        caching: Caching {
            ttl_ms: shared.list_ttl_ms(),
            // The same on all pages.
            scope: match used.principal {
                None => CacheScope::Public,
                Some(_) => CacheScope::Private,
            },
        },
    }
}

/// What the cursors of this list are good for: a list that depends on what its caller may do is the
/// caller's alone.
fn used(call: &Call, list: Method) -> Use<'_> {
    let caller = &call.caller;
    Use {
        list: list.as_str(),
        version: caller
            .legacy
            .map_or(meta::VERSION, |dialect| dialect.version),
        principal: caller.scopes.as_ref().map(|_| &caller.principal),
    }
}
