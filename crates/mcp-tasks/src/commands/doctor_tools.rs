//! The doctor's look at what the tools file stands on: whether it can be read, and upstream servers and services
//! are there.
//! Only where this command's settings name one, as workers' do.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tools::upstream::UpstreamConfig;

use super::doctor::Findings;
use super::operator::Desk;
use super::tools_file;

/// A server that takes no connection in this time is called away.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at the tools file, and knocks at every upstream server and service with an address; nothing is
/// sent.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    let Some(file) = &desk.config.tools.file else {
        return;
    };
    let read = match tools::file::load_within(file, tools_file::limits(&desk.config.worker)) {
        Ok(read) => read,
        Err(problems) => {
            let told: Vec<String> = problems.problems.iter().map(|one| one.of(file)).collect();
            return findings.fail(
                "tools file",
                told.join("; "),
                "mend the file: workers serve none of it",
            );
        }
    };
    for problem in &read.missing {
        findings.warn(
            "tools",
            problem.of(file),
            "make it there, or take the section out: the others are served",
        );
    }
    // Many tools may be of one service.
    let mut services: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for tool in &read.tools {
        if let Some(server) = &tool.server {
            services.entry(server).or_default().push(&tool.name);
        }
    }
    for (server, tools) in services {
        let tools = tools.join(", ");
        match knock_at(server).await {
            Ok(seen) => findings.ok("services", format!("{tools}: {seen}")),
            Err(problem) => findings.warn(
                "services",
                format!("{tools}: {problem}"),
                "calls of these tools are tried again or fail until it is back: look at that service, or at the way \
                 to it",
            ),
        }
    }
    for upstream in &read.upstreams {
        let config = &upstream.wanted.config;
        match knock(config).await {
            Ok(seen) => findings.ok("upstreams", format!("{}: {seen}", config.name)),
            Err(problem) => findings.warn(
                "upstreams",
                format!("{}: {problem}", config.name),
                "calls of its tools wait or fail until it is back: look at that server, or at the way to it",
            ),
        }
    }
}

async fn knock(config: &UpstreamConfig) -> Result<String, String> {
    match (&config.url, &config.command) {
        (Some(url), _) => knock_at(url).await,
        (None, Some(command)) => {
            let program = command.first().map_or("", String::as_str);
            match Path::new(program).is_absolute() && !Path::new(program).exists() {
                true => Err(format!("{program} is not there")),
                false => Ok(format!("is started by workers: {program}")),
            }
        }
        (None, None) => Err("has neither url nor command".to_owned()),
    }
}

async fn knock_at(url: &str) -> Result<String, String> {
    let (host, port) = address(url).ok_or_else(|| "its url names no host".to_owned())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // Without the rest: a path may hold what is nobody's business.
    let shown = format!("{host}:{port}");
    match tokio::time::timeout(PATIENCE, TcpStream::connect((bare, port))).await {
        Ok(Ok(_)) => Ok(format!("{shown} takes connections")),
        Ok(Err(error)) => Err(format!("{shown} cannot be reached: {error}")),
        Err(_) => Err(format!("{shown} took no connection within {PATIENCE:?}")),
    }
}

/// Host and port of a URL.
fn address(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    // A name and a password before it are shown to nobody.
    let authority = authority.rsplit('@').next()?;
    let usual = if scheme == "https" { 443 } else { 80 };
    match authority.rsplit_once(':') {
        // Within brackets a colon is the address's own.
        Some((host, port)) if !port.ends_with(']') => Some((host, port.parse().ok()?)),
        _ => (!authority.is_empty()).then_some((authority, usual)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (url, expected) in [
            ("http://a.example/mcp", Some(("a.example", 80))),
            ("https://a.example:8443/mcp", Some(("a.example", 8443))),
            ("https://[::1]/mcp", Some(("[::1]", 443))),
            ("http://[::1]:1", Some(("[::1]", 1))),
            ("http://who:secret@a.example:1/", Some(("a.example", 1))),
            ("http://a:b/", None),
            ("http:///x", None),
            ("a.example", None),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
    }
}
