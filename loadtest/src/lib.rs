//! The chaos harness: many clients drive a mixed scenario against real gateways, workers and crons
//! while a seeded schedule of faults breaks everything around them; a checker then decides from the
//! clients' history, and from a ledger that the tools' steps write to, whether a promise was broken.
//!
//! It shares no code with the product: what it believes about the wire and the tools is its own.

pub mod bench;
pub mod board;
pub mod caller;
pub mod calls;
pub mod checker;
pub mod clock;
pub mod fault;
pub mod faults;
pub mod figures;
pub mod flood;
pub mod history;
pub mod judgement;
pub mod ledger;
pub mod lines;
pub mod lives;
pub mod load;
pub mod operator;
pub mod outage;
pub mod plan;
pub mod rng;
pub mod run;
pub mod sabotage;
pub mod scene;
pub mod schedule;
pub mod settle;
pub mod stack;
pub mod supervisor;
pub mod timeline;
