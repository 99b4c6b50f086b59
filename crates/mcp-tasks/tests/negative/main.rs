//! What no honest client sends, over real sockets, to a real gateway: every request of the tables is
//! answered exactly as they say. Nothing panics, hangs or grows, no log complains, and between the
//! tables good callers are served.
//!
//! One file a subject; a row is a name, the bytes that are sent, and the answer. The suite counts the
//! rows whose bytes differ.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod admin;
mod bodies;
mod callbacks;
mod chunks;
mod cursors;
mod envelopes;
mod frames;
mod framing;
mod growth;
mod h2;
mod heads;
mod legacy;
mod legacy_params;
mod meta;
mod mirrors;
mod odd;
mod params;
mod request;
mod rotation;
mod row;
mod sizes;
mod smuggling;
mod stack;
mod streams;
mod suite;
mod tokens;
mod unpacked;
