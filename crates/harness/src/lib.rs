//! Starts the real things: private Postgres and Redis servers, clusters of our own binary, and the
//! instruments that tests hold against them (a chaos proxy, a raw client, waits, log checks).
//!
//! Everything here listens on loopback only, runs as real processes and cleans up after itself: a
//! server dies with the process that started it, and whatever a killed run left behind is found and
//! removed by the next.
//!
//! Architecture invariant: this crate never depends on a product crate other than `protocol`; the
//! path of our binary and the function that migrates a database are handed to it as arguments. No
//! product crate depends on it but the binary, whose `dev` command is [`dev`].

pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod dev;
pub mod error;
pub mod hook;
pub mod http;
pub mod logs;
pub mod node;
pub mod pgbouncer;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod redis_cluster;
pub mod sse;
pub mod temp;
pub mod tokens;
pub mod user;
pub mod wait;

mod leftovers;

pub use error::{Error, Result};
