//! The whole system as real processes: gateways, workers and crons of the built binary over a
//! real Postgres and a real Redis, and what happens when parts of it die.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod callbacks;
mod clocks;
mod commands;
mod crons;
mod crons_sweeps;
mod doctor;
mod drains;
mod fairness;
mod faults;
mod figures;
mod flows;
mod gateways_balancer;
mod gateways_ends;
mod gateways_listeners;
mod health;
mod invariants;
mod legacy;
mod limits;
mod parking;
mod passthrough;
mod policies;
mod postgres_committed;
mod postgres_load;
mod postgres_promoted;
mod postgres_replies;
mod postgres_restarted;
mod postgres_sessions;
mod postgres_unreachable;
mod principals;
mod provided;
mod redis_cluster;
mod redis_connections;
mod redis_evictions;
mod redis_failover;
mod redis_outages;
mod reports_cancels;
mod reports_duplicates;
mod reports_inputs;
mod reports_leases;
mod reports_lifetimes;
mod reports_replicas;
mod reports_streams;
mod reports_tools;
mod roles;
mod rollout;
mod sealed;
mod settings;
mod support;
mod tools_file;
mod tour;
mod units;
mod upstreams;
