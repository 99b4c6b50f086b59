//! `mcp-tasks health`: asks a process of this machine how it is, as images without a shell and curl
//! need it for their health checks.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use super::Failure;
use crate::out::outln;
use crate::{Settings, config};

/// More than any answer to a probe.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// What to ask.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The question.
    #[arg(value_enum, default_value_t = Probe::Ready)]
    probe: Probe,
    /// How long the answer may take.
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    settings: Settings,
}

/// The probes of the admin listener.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Probe {
    /// Whether its loops come round (`/livez`).
    Live,
    /// Whether it can do its work (`/readyz`).
    Ready,
    /// Whether it has looked at its neighbours (`/startupz`).
    Startup,
}

impl Probe {
    fn path(self) -> &'static str {
        match self {
            Probe::Live => "/livez",
            Probe::Ready => "/readyz",
            Probe::Startup => "/startupz",
        }
    }
}

/// Runs the command: prints the answer, and fails where it is not 200.
///
/// # Errors
/// When the settings cannot be used, or nobody answers.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let config = config::load(arguments.settings.config.as_deref())?;
    let address = here(config.admin.listen);
    let (status, body) = ask(address, arguments.probe.path(), arguments.timeout)
        .map_err(|error| format!("{address} (admin.listen): {error}"))?;
    outln!("{}", body.trim_end());
    Ok(if status == 200 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Who listens everywhere listens on loopback.
fn here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// One request over HTTP/1.0, after whose answer the other side closes: its status and its body.
fn ask(address: SocketAddr, path: &str, timeout: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let no_http = || io::Error::new(io::ErrorKind::InvalidData, "what answers is not HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_http)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or_else(no_http)?, body.to_owned()))
}
