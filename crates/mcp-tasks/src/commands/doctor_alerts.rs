//! The doctor's look at receivers of alerts: whether the files that they name hold what they should. Nobody
//! is asked: what is sent to a receiver is told to people.

use super::doctor::Findings;
use super::operator::Desk;
use crate::config::Config;

/// Reads the files that receivers name. Gives what is wrong with them.
///
/// # Errors
/// When it cannot look.
pub fn files(config: &Config) -> Result<Vec<String>, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(config.alerts.check_files()))
}

/// Looks at the files, where there are any.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    let alerts = &desk.config.alerts;
    if !alerts.names_files() {
        return;
    }
    let problems = alerts.check_files().await;
    if problems.is_empty() {
        findings.ok("receivers", "their files can be used");
    }
    for problem in problems {
        // A doctor beside a gateway need not see them.
        findings.warn(
            "receivers",
            problem,
            "nobody is told of alerts there while cron cannot read it: look from where cron runs",
        );
    }
}
