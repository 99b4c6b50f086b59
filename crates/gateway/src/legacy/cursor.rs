//! Cursors of `tasks/list`: which task ended the page before, sealed, and of use to the principal
//! alone that got it.

use protocol::TaskId;
use protocol::jsonrpc::InvalidParams;
use serde::{Deserialize, Serialize};
use store::Principal;

use crate::request_state::Keys;

/// Names the use and the format, so that nothing sealed for another purpose opens here.
const PURPOSE: &[u8] = b"mcp-tasks/cursor/1/tasks/list";

#[derive(Serialize, Deserialize)]
struct Cursor {
    #[serde(rename = "i")]
    before: TaskId,
    #[serde(rename = "p")]
    principal: (String, String),
}

fn owner(principal: &Principal) -> (String, String) {
    (principal.issuer.clone(), principal.subject.clone())
}

/// The cursor for what comes after the task `before`; `None` when no key is configured.
pub(super) fn seal(keys: &Keys, before: TaskId, principal: &Principal) -> Option<String> {
    let cursor = Cursor {
        before,
        principal: owner(principal),
    };
    let plain = serde_json::to_vec(&cursor).expect("strings always print");
    keys.encrypt(PURPOSE, &plain)
}

/// The task that a cursor names.
///
/// # Errors
/// If it was not made for this principal.
pub(super) fn open(
    keys: &Keys,
    text: &str,
    principal: &Principal,
) -> Result<TaskId, InvalidParams> {
    let plain = keys.decrypt(PURPOSE, text);
    let cursor: Option<Cursor> = plain.and_then(|plain| serde_json::from_slice(&plain).ok());
    cursor
        .filter(|cursor| cursor.principal == owner(principal))
        .map(|cursor| cursor.before)
        .ok_or_else(|| InvalidParams::new("`cursor` is not one of ours: begin again without it"))
}
