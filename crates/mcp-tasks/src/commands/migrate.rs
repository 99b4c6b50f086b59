//! `mcp-tasks migrate`: brings the schema up to what this binary needs.

use std::process::ExitCode;

use super::Failure;
use crate::config::Config;

/// Applies what is missing; safe to run from any number of places at once.
///
/// # Errors
/// When Postgres cannot be reached, or a migration fails.
pub fn run(config: Config) -> Result<ExitCode, Failure> {
    let guard = telemetry::init(&config.telemetry(), "mcp-tasks-migrate")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let migrated = runtime.block_on(store::migrate::migrate(&config.postgres))?;
    if migrated.applied.is_empty() {
        println!("schema is at version {}: nothing to do", migrated.version);
    } else {
        println!(
            "schema is at version {}: applied {}",
            migrated.version,
            migrated.applied.join(", ")
        );
    }
    drop(guard);
    Ok(ExitCode::SUCCESS)
}
