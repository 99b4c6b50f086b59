//! `mcp-tasks migrate`: brings the schema up to what this binary needs.

use std::path::PathBuf;
use std::process::ExitCode;

use super::Failure;
use crate::config::Config;

/// Where the schema is, and for whom.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Configuration file (TOML). Environment variables win over it: MCP_TASKS__POSTGRES__URL is postgres.url.
    #[arg(long, env = "MCP_TASKS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Then give the roles mcp_tasks_gateway, mcp_tasks_worker and mcp_tasks_cron the rights that their
    /// processes need, and no others; they are made if they are missing (deploy/postgres/roles.sql).
    #[arg(long)]
    roles: bool,
}

/// Applies what is missing; safe to run from any number of places at once.
///
/// # Errors
/// When Postgres cannot be reached, a migration fails, or the roles cannot be given their rights.
pub fn run(config: Config, options: &Options) -> Result<ExitCode, Failure> {
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
    if options.roles {
        runtime.block_on(store::migrate::grant_roles(&config.postgres))?;
        println!("the roles of gateway, worker and cron have their rights, and no others");
    }
    drop(guard);
    Ok(ExitCode::SUCCESS)
}
