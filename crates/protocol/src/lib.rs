//! MCP 2026-07-28 on the wire, with the tasks extension (SEP-2663), and the
//! words that every other crate uses: [`TaskId`] and [`TaskStatus`].
//!
//! One file per topic. Requests are read one level deep and their payloads are
//! kept as raw JSON text; answers are written by joining stored raw JSON, so
//! that a result is never parsed and printed again on its way to a client.
//!
//! Architecture invariant: this crate never does I/O, never reads a clock or a
//! setting, and knows nothing of HTTP servers, tokio, Postgres or Redis. Headers
//! reach it as `&str`, times as numbers.

mod answer;
pub mod callback;
mod capabilities;
pub mod code;
pub mod completion;
mod content;
pub mod discover;
pub mod headers;
pub mod id;
pub mod idempotency;
pub mod input;
pub mod jsonrpc;
pub mod legacy;
mod listed;
pub mod meta;
mod mirror;
mod passed_on;
pub mod progress;
pub mod prompts;
mod raw;
pub mod resources;
pub mod secret;
pub mod status;
pub mod subscriptions;
pub mod tasks;
pub mod template;
pub mod time;
pub mod tools;
pub mod unique;
mod writer;

pub use id::TaskId;
pub use jsonrpc::{ErrorObject, InvalidParams, RequestId};
pub use meta::{EXTENSION_TASKS, SUPPORTED_VERSIONS, VERSION};
pub use status::TaskStatus;
pub use time::Timestamp;
