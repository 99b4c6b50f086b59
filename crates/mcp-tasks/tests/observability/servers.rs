//! Prometheus and Alertmanager of Debian, each a private process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::http::Http;
use harness::process::{Process, Spec, find_program};
use harness::temp::Temp;
use harness::{ports, wait};
use serde_json::Value;

/// Used up by failures only.
const START: Duration = Duration::from_secs(30);

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate lies two folders below the root")
        .join(path)
}

/// The text of a file in the repository.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `text` with `from` replaced, which must be there.
pub fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in {text}");
    text.replace(from, to)
}

/// Runs a program to its end, which must be a good one: what it printed.
pub fn run(program: &str, args: &[&str], dir: &Path) -> String {
    let output = std::process::Command::new(installed(program))
        .args(args)
        .current_dir(dir)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {printed}");
    printed
}

fn installed(program: &str) -> PathBuf {
    find_program(program).unwrap_or_else(|| panic!("{program} is missing: .ci/install test"))
}

/// A running server with an HTTP API.
pub struct Server {
    url: String,
    http: Http,
    _process: Process,
    _temp: Temp,
}

impl Server {
    /// Prometheus with this configuration. `files`: what else lies beside it.
    pub async fn prometheus(config: &str, files: &[(&str, &str)]) -> Server {
        let args = |port: u16| {
            vec![
                "--config.file=config.yml".to_owned(),
                "--storage.tsdb.path=data".to_owned(),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--log.level=warn".to_owned(),
            ]
        };
        Self::start("prometheus", args, config, files).await
    }

    /// Alertmanager with this configuration.
    pub async fn alertmanager(config: &str) -> Server {
        let args = |port: u16| {
            vec![
                "--config.file=config.yml".to_owned(),
                "--storage.path=data".to_owned(),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--cluster.listen-address=".to_owned(),
            ]
        };
        Self::start("prometheus-alertmanager", args, config, &[]).await
    }

    async fn start(
        name: &str,
        args: impl Fn(u16) -> Vec<String>,
        config: &str,
        files: &[(&str, &str)],
    ) -> Server {
        let temp = Temp::new().unwrap();
        for (file, text) in files.iter().chain(&[("config.yml", config)]) {
            std::fs::write(temp.path().join(file), text).unwrap();
        }
        let port = ports::free().unwrap();
        let log = temp.path().join("log");
        let mut spec = Spec::new(name, &installed(name), &log).args(args(port));
        spec.dir = Some(temp.path().to_owned());
        let server = Server {
            url: format!("http://127.0.0.1:{port}"),
            http: Http::new(Duration::from_secs(10)),
            _process: Process::spawn(&spec).unwrap(),
            _temp: temp,
        };
        let ready = format!("{}/-/ready", server.url);
        let asked = wait::until(name, START, async || {
            let reply = server.http.get(&ready).await.ok()?;
            (reply.status == 200).then_some(())
        });
        if let Err(error) = asked.await {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{error}: {log}");
        }
        server
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it answers at this path.
    pub async fn get(&self, path: &str) -> Value {
        let reply = self.http.get(&format!("{}{path}", self.url)).await.unwrap();
        serde_json::from_slice(&reply.body).unwrap_or_else(|error| {
            panic!("{path}: {error}: {}", String::from_utf8_lossy(&reply.body))
        })
    }

    /// Prometheus' answer to an expression, now: its samples.
    ///
    /// # Errors
    /// What it says against the expression.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let answer = self.get(&path).await;
        match answer["data"]["result"].as_array() {
            Some(samples) => Ok(samples.clone()),
            None => Err(answer["error"].to_string()),
        }
    }
}

/// RFC 3986, section 2.1.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
