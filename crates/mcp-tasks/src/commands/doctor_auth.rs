//! The doctor's look at authentication: whether issuers answer, and files hold what they should.

use super::Failure;
use super::doctor::Findings;
use super::operator::Desk;
use crate::config::Config;
use crate::out::outln;

/// Reads the files that `[auth]` names, and asks nobody.
///
/// # Errors
/// Names every file that cannot be used.
pub fn files(config: &Config) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut problems = Vec::new();
    for look in runtime.block_on(gateway::auth::doctor::files(&config.auth)) {
        match look.seen {
            Ok(seen) => outln!("{}: {seen}", look.what),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("; ").into())
    }
}

/// Looks at everything that `[auth]` names.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    for look in gateway::auth::doctor::look(&desk.config.auth).await {
        match look.seen {
            Ok(seen) => findings.ok("auth", format!("{}: {seen}", look.what)),
            Err(problem) => findings.fail(
                "auth",
                format!("{}: {problem}", look.what),
                "callers whose tokens rest on it are refused: mend [auth], or what it names",
            ),
        }
    }
}
