//! What all lists share: definitions on one line each, and pages of them.

use bytes::Bytes;
use serde::Serialize;

use crate::discover::Caching;
use crate::meta::ResultMeta;
use crate::{raw, writer};

/// A definition as it is stored and listed.
pub(crate) fn one_line(value: &impl Serialize) -> Bytes {
    let json = writer::json(value);
    Bytes::from(raw::compact(&String::from_utf8_lossy(&json)))
}

/// One page of definitions, copied as they are. Sort them before: the order must be the same each
/// time.
pub(crate) fn write_page<'a>(
    member: &str,
    definitions: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    let mut listed = vec![b'['];
    for definition in definitions {
        if listed.len() > 1 {
            listed.push(b',');
        }
        listed.extend_from_slice(definition);
    }
    listed.push(b']');
    writer::Object::with_capacity(listed.len() + 512)
        .value("resultType", "complete")
        .raw(member, listed)
        .optional("nextCursor", next_cursor)
        .integer("ttlMs", caching.ttl_ms)
        .value("cacheScope", &caching.scope)
        .raw("_meta", meta.to_json())
        .finish()
}
