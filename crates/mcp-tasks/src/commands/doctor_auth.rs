//! The doctor's look at authentication: whether issuers answer, and files hold what they should.

use gateway::auth::doctor::NOBODY;

use super::Failure;
use super::doctor::Findings;
use super::operator::Desk;
use crate::config::Config;
use crate::out::outln;

/// Reads the files that `[auth]` names, and asks nobody. Gives what is wrong with them.
///
/// # Errors
/// When it cannot look.
pub fn files(config: &Config) -> Result<Vec<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut problems = Vec::new();
    for look in runtime.block_on(gateway::auth::doctor::files(&config.auth)) {
        match look.seen {
            Ok(seen) if seen == NOBODY => eprintln!("warning: {}: {seen}", look.what),
            Ok(seen) => outln!("{}: {seen}", look.what),
            Err(problem) => problems.push(problem),
        }
    }
    Ok(problems)
}

/// Looks at everything that `[auth]` names.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    for look in gateway::auth::doctor::look(&desk.config.auth).await {
        match look.seen {
            Ok(seen) if seen == NOBODY => findings.warn(
                "auth",
                format!("{}: {seen}", look.what),
                "write a key's hash into the file, or name an issuer: docs/authentication.md",
            ),
            Ok(seen) => findings.ok("auth", format!("{}: {seen}", look.what)),
            Err(problem) => findings.fail(
                "auth",
                format!("{}: {problem}", look.what),
                "callers whose tokens rest on it are refused: mend [auth], or what it names",
            ),
        }
    }
}
