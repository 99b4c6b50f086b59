//! `mcp-tasks dev`: the whole system on this machine, without any configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use harness::dev::{Hooks, Options as Stack, Processes};
use store::Store;
use telemetry::Registry;
use toml::{Table, Value};

use super::{Failure, chain};
use crate::config::{Fixtures, Tools};

/// What to run, and where.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Port of the first gateway; further ones take the next free ports.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// How many gateways.
    #[arg(long, default_value_t = 1)]
    gateways: usize,
    /// How many workers.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Folder for data, logs and processes.json.
    #[arg(long, default_value = ".dev")]
    data_dir: PathBuf,
    /// Settings for all processes (TOML). Addresses in it do not count: Postgres, Redis, gateways and
    /// admin listeners have dev's own.
    #[arg(long, env = "MCP_TASKS_CONFIG")]
    config: Option<PathBuf>,
    /// Serve the tools of this tools file beside the demo tools.
    #[arg(long)]
    tools: Option<PathBuf>,
    /// Serve test fixtures beside the demo tools.
    #[arg(long, value_enum)]
    fixtures: Option<Fixtures>,
    /// Forget all data of earlier runs.
    #[arg(long)]
    fresh: bool,
    /// Leave a process that died dead.
    #[arg(long)]
    no_restart: bool,
}

/// Runs everything until ctrl-C.
///
/// # Errors
/// When something cannot be started.
pub fn run(options: Options) -> Result<ExitCode, Failure> {
    if options.gateways == 0 || options.workers == 0 {
        return Err("--gateways and --workers must be at least 1".into());
    }
    let ledger = options.data_dir.join("ledger.jsonl");
    // Gateways open each other's, also after a restart, so they are kept with the data.
    let key = kept_key(&options, "request-state-key")?;
    let mut settings = settings(options.fixtures, &ledger, &key)?;
    let mut callbacks = Table::new();
    let keys = vec![Value::String(kept_key(&options, "callback-key")?)];
    callbacks.insert("keys".to_owned(), Value::Array(keys));
    settings.insert("callbacks".to_owned(), Value::Table(callbacks));
    if let Some(file) = &options.config {
        println!("settings: {}, but for addresses", file.display());
        harness::config::merge(&mut settings, &of_file(file)?);
    }
    if let Some(file) = &options.tools {
        let file = Value::try_from(std::path::absolute(file)?)?;
        let tools = settings
            .entry("tools")
            .or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(tools) = tools {
            tools.insert("file".to_owned(), file);
        }
    }
    let expected = expected(&settings)?;
    let tokens = believes_tokens(&settings)?;
    let run = options.data_dir.join("run");
    let stack = Stack {
        binary: std::env::current_exe()?,
        data_dir: options.data_dir,
        port: options.port,
        gateways: options.gateways,
        workers: options.workers,
        fresh: options.fresh,
        no_restart: options.no_restart,
        settings,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(harness::dev::run(
        stack,
        Arc::new(Dev {
            expected,
            run,
            tokens,
        }),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn names<'a>(tools: impl Iterator<Item = &'a Arc<dyn worker::Tool>>) -> BTreeSet<String> {
    tools.map(|tool| tool.spec().name().to_owned()).collect()
}

/// The tools that the workers will serve, as far as they are known by name here.
fn expected(settings: &Table) -> Result<BTreeSet<String>, Failure> {
    let tools = settings.get("tools").cloned();
    let tools: Tools = tools.unwrap_or(Value::Table(Table::new())).try_into()?;
    let mut expected = BTreeSet::new();
    if tools.demo {
        expected.extend(names(tools::demo().iter()));
    }
    match tools.fixtures {
        Some(Fixtures::Conformance) => {
            expected.extend(names(fixtures::conformance(&worker::ToolSet::new()).iter()));
        }
        Some(Fixtures::Chaos) => expected.extend(fixtures::CHAOS.map(str::to_owned)),
        None => {}
    }
    if let Some(file) = &tools.file {
        // Everything that is wrong with it is told here, and not in the logs of the workers.
        let file = tools::file::load(file)?;
        expected.extend(file.tools.into_iter().map(|declared| declared.name));
    }
    Ok(expected)
}

/// Whether callers need a token that somebody gave out.
fn believes_tokens(settings: &Table) -> Result<bool, Failure> {
    let auth = settings.get("auth").cloned();
    let auth: gateway::auth::Config = auth.unwrap_or(Value::Table(Table::new())).try_into()?;
    Ok(auth.mode() == gateway::auth::Mode::Tokens)
}

/// What the file says, without addresses: those are ours. Paths in it are seen from here, where the
/// processes are not.
fn of_file(file: &Path) -> Result<Table, Failure> {
    // Everything that is wrong is told here, and not in the logs of three processes.
    crate::config::load(Some(file))?;
    let mut settings: Table = std::fs::read_to_string(file)?.parse()?;
    for (section, addresses) in [
        ("postgres", &["url", "password_file", "ca_file"][..]),
        ("redis", &["url", "password_file", "ca_file"]),
        ("gateway", &["bind"]),
        ("admin", &["listen"]),
    ] {
        if let Some(Value::Table(section)) = settings.get_mut(section) {
            for address in addresses {
                section.remove(*address);
            }
        }
    }
    if let Some(Value::Table(tools)) = settings.get_mut("tools") {
        for name in ["ledger", "file"] {
            if let Some(Value::String(path)) = tools.get_mut(name) {
                *path = std::path::absolute(&*path)?.display().to_string();
            }
        }
    }
    Ok(settings)
}

/// What all processes of the stack share beside their addresses.
fn settings(fixtures: Option<Fixtures>, ledger: &Path, key: &str) -> Result<Table, Failure> {
    let mut tools = Table::new();
    tools.insert("demo".to_owned(), Value::Boolean(true));
    if let Some(fixtures) = fixtures {
        tools.insert("fixtures".to_owned(), Value::try_from(fixtures)?);
        if fixtures == Fixtures::Chaos {
            let ledger = std::path::absolute(ledger)?;
            tools.insert("ledger".to_owned(), Value::try_from(ledger)?);
        }
    }
    let mut gateway = Table::new();
    let keys = Value::Array(vec![Value::String(key.to_owned())]);
    gateway.insert("request_state_keys".to_owned(), keys);
    let mut all = Table::new();
    // A developer who stops everything waits for nothing but the work at hand.
    gateway.insert("drain_delay".to_owned(), Value::String("0s".to_owned()));
    // As long as jobs have in all, below: then calls without tasks are told to come again.
    let deadline = Value::String("4s".to_owned());
    gateway.insert("drain_deadline".to_owned(), deadline);
    let mut worker = Table::new();
    worker.insert("drain_deadline".to_owned(), Value::String("1s".to_owned()));
    worker.insert("stop_grace".to_owned(), Value::String("2s".to_owned()));
    // Its logs are read by eyes.
    let mut logs = Table::new();
    logs.insert("format".to_owned(), Value::String("text".to_owned()));
    all.insert("logs".to_owned(), Value::Table(logs));
    all.insert("worker".to_owned(), Value::Table(worker));
    all.insert("tools".to_owned(), Value::Table(tools));
    all.insert("gateway".to_owned(), Value::Table(gateway));
    Ok(all)
}

/// A key of this name, made once.
fn kept_key(options: &Options, name: &str) -> Result<String, Failure> {
    let file = options.data_dir.join(name);
    if !options.fresh
        && let Ok(key) = std::fs::read_to_string(&file)
    {
        return Ok(key.trim().to_owned());
    }
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key)?;
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = &options.data_dir;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&file, &key))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(key)
}

struct Dev {
    expected: BTreeSet<String>,
    /// Where each process's settings and log are.
    run: PathBuf,
    /// Names alone are not believed.
    tokens: bool,
}

fn store(postgres_url: &str) -> Result<Store, store::Error> {
    let config = store::Config {
        url: postgres_url.to_owned(),
        pool_size: 1,
        ..Default::default()
    };
    Store::new(config, &Registry::new())
}

impl Hooks for Dev {
    async fn migrate(&self, postgres_url: &str) -> Result<(), String> {
        let config = store::Config {
            url: postgres_url.to_owned(),
            ..Default::default()
        };
        store::migrate::migrate(&config)
            .await
            .map(drop)
            .map_err(|error| chain(&error))
    }

    async fn catalogue_complete(&self, postgres_url: &str) -> bool {
        let Ok(store) = store(postgres_url) else {
            return false;
        };
        let Ok(listed) = store.tools().await else {
            return false;
        };
        let listed: BTreeSet<&str> = listed.iter().map(|entry| entry.spec.name()).collect();
        self.expected
            .iter()
            .all(|name| listed.contains(name.as_str()))
    }

    fn ready(&self, processes: &Processes) {
        let Some(gateway) = processes.gateways.first() else {
            return;
        };
        println!("{}", invitation(&gateway.url, self.tokens));
        for gateway in &processes.gateways {
            println!(
                "gateway   {}   metrics {}/metrics",
                gateway.url, gateway.admin
            );
        }
        let run = self.run.display();
        println!(
            "postgres  {}\nredis     {}\nlogs      {run}/*.log\n\
             operate   mcp-tasks doctor --config {run}/cron-1.toml   (tasks list, workers, … likewise)\n\
             ctrl-C stops everything.",
            processes.postgres.url, processes.redis.url
        );
    }

    fn say(&self, line: &str) {
        println!("{line}");
    }
}

/// A call to try, as text for a shell.
fn invitation(url: &str, tokens: bool) -> String {
    let (before, token) = if tokens {
        (
            "\n[auth] mode = \"tokens\": put an access token of one of your issuers (its audience is \
             auth.resource)\nor an API key (of auth.api_keys_file) in its place:\n\nTOKEN=...",
            "\"Authorization: Bearer $TOKEN\"",
        )
    } else {
        ("", "'Authorization: Bearer alice'")
    };
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    format!(
        r#"
Everything is up. A call to try: a slow tool, answered at once with a task handle.
{before}
curl -s {url} \
  -H {token} -H 'Content-Type: application/json' \
  -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2026-07-28' \
  -H 'Mcp-Method: tools/call' -H 'Mcp-Name: build_report' \
  -d '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"build_report","arguments":{{"month":"2026-11"}},{meta}}}}}'

Poll it with tasks/get and the taskId it answers; README.md goes on from here.
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(settings: &str) -> bool {
        believes_tokens(&settings.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_call_to_try_has_a_token_that_is_believed() {
        assert!(!tokens("") && !tokens("[auth]\nmode = \"dev\""));
        assert!(tokens("[auth]\nmode = \"tokens\""));
        let named = invitation("http://127.0.0.1:3000/mcp", false);
        assert!(named.contains(
            "handle.\n\ncurl -s http://127.0.0.1:3000/mcp \\\n  -H 'Authorization: Bearer alice' -H"
        ));
        assert!(!named.contains("TOKEN"), "{named}");
        let given = invitation("http://127.0.0.1:3000/mcp", true);
        assert!(!given.contains("alice"), "{given}");
        // For the shell to fill in.
        assert!(given.contains("\n\nTOKEN=...\ncurl -s "), "{given}");
        assert!(
            given.contains("-H \"Authorization: Bearer $TOKEN\" -H"),
            "{given}"
        );
        assert!(given.contains("auth.api_keys_file"), "{given}");
    }
}
