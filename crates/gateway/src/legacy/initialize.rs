//! `initialize`: versions and capabilities, and nothing that is remembered.

use protocol::legacy::{self, InitializeParams, ListsTasks};

use super::list;
use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::methods::server_discover;
use crate::reply::Reply;

/// How to wait, for models whose client does not do it for them.
const INSTRUCTIONS: &str = "Some tools take long. In tools/list, execution.taskSupport says which \
    can be called as a task: send `task: {}` in the params of tools/call to get a handle in place \
    of a result. The result does not exist yet: poll tasks/get with its taskId, every pollInterval \
    milliseconds, until the status is completed, failed or cancelled, then read it by tasks/result, \
    which also waits. Stop a task that is no longer wanted with tasks/cancel.";

/// The handshake, the same on every replica.
pub(super) fn initialize(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let asked = InitializeParams::parse(call.params())?;
    let version = legacy::negotiate(&asked.protocol_version);
    let Reply::Result {
        json: discovered, ..
    } = server_discover::discover(shared)?
    else {
        return Err(Error::Bug("server/discover without a result".to_owned()));
    };
    let instructions = match shared.config.instructions.as_str() {
        "" => INSTRUCTIONS,
        own => own,
    };
    let lists = match list::is_served(shared, &call.caller.principal) {
        true => ListsTasks::Yes,
        false => ListsTasks::No,
    };
    let written =
        legacy::write_initialize(version, &discovered, lists, (instructions, &shared.meta));
    written
        .map(Reply::ok)
        .map_err(|error| Error::Bug(error.to_string()))
}
