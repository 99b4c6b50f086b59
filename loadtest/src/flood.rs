//! What a flood of one principal leaves to another one, and what floods of connections, bodies, unread
//! answers and streams take of a gateway's memory. The figures of `docs/limits.md` come from here.

pub mod latency;
pub mod memory;
pub mod target;
