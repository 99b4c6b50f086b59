//! The bench: what the system does a second, each work beside its baseline in the same minute, on the
//! same machine and the same table.
//!
//! Baselines are `pgbench` scripts: single prepared statements, as fast as Postgres serves them to its own
//! tool. Ours go through HTTP, authentication and every promise. Clients share the cores with both.

pub mod capacity;
pub mod connection;
pub mod drive;
pub mod fill;
pub mod history;
pub mod listens;
pub mod machine;
pub mod many;
pub mod measure;
pub mod pairs;
pub mod peers;
pub mod pgbench;
pub mod processors;
pub mod report;
pub mod run;
pub mod sealed;
pub mod soak;
pub mod system;
pub mod table;
pub mod wire;
pub mod works;
