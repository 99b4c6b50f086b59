//! The doctor's look at what the tools file stands on: whether it can be read, and upstream servers are there.
//! Only where this command's settings name one, as workers' do.

use std::path::Path;
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;
use tools::upstream::UpstreamConfig;

use super::doctor::Findings;
use super::operator::Desk;
use super::tools_file;

/// A server that takes no connection in this time is called away.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at the tools file, and knocks at every upstream server with an address; nothing is sent.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    let Some(file) = &desk.config.tools.file else {
        return;
    };
    let read = match tools::file::load_within(file, tools_file::limits(&desk.config.worker)) {
        Ok(read) => read,
        Err(problems) => {
            let told: Vec<String> = problems.problems.iter().map(|one| one.of(file)).collect();
            return findings.fail(
                "tools",
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
        (Some(url), _) => {
            let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
            let host = uri.host().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let usual = if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            };
            let address = (bare, uri.port_u16().unwrap_or(usual));
            // Without the rest: a path may hold what is nobody's business.
            let shown = format!("{host}:{}", address.1);
            match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(_)) => Ok(format!("{shown} takes connections")),
                Ok(Err(error)) => Err(format!("{shown} cannot be reached: {error}")),
                Err(_) => Err(format!("{shown} took no connection within {PATIENCE:?}")),
            }
        }
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
