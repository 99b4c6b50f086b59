//! `server/discover`: what this server speaks (MCP 2026-07-28 §Discovery). The same for every
//! caller and every replica.

use protocol::discover::{self, CacheScope, Caching};

use crate::Shared;
use crate::error::Error;
use crate::reply::Reply;

/// How to wait, for models whose client does not do it for them.
const INSTRUCTIONS: &str = "Some tools take long. A client that declares the extension \
    io.modelcontextprotocol/tasks may get a task handle (resultType \"task\") in place of a \
    result: the result does not exist yet. Poll tasks/get with its taskId, every pollIntervalMs, \
    until the status is completed, failed or cancelled, and only then report. When the status is \
    input_required, answer its inputRequests with tasks/update. Stop a task that is no longer \
    wanted with tasks/cancel.";

/// Versions, capabilities, instructions.
pub(crate) fn discover(shared: &Shared) -> Result<Reply, Error> {
    let instructions = match shared.config.instructions.as_str() {
        "" => INSTRUCTIONS,
        own => own,
    };
    let caching = Caching {
        ttl_ms: shared.list_ttl_ms(),
        scope: CacheScope::Public,
    };
    let json = discover::write_result(
        shared.catalog.known().provided.serves,
        Some(instructions),
        caching,
        &shared.meta,
    );
    Ok(Reply::ok(json))
}
