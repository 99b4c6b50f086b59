//! What operators see: rules, dashboards and alerts, tried on a real Prometheus and a real
//! Alertmanager that watch a real stack.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod alertmanager;
mod dashboards;
mod load;
mod panels;
mod rules;
mod scrape;
mod servers;
mod stack;
mod state;
