//! `mcp-tasks doctor` on set-ups that are broken on purpose, each in one way; what is sound beside
//! that stays so. (What it says of a sound system, of an empty one and of one that is away is
//! tested with the other commands for operators.)

use std::process::Command;

use harness::cluster::Plan;
use harness::pgbouncer::{PgBouncer, PoolMode};
use harness::postgres::{Options, Postgres, Session, rows};
use harness::redis::{Options as RedisOptions, Redis};
use harness::temp::Temp;
use serde_json::Value;

use crate::support::{SOON, migrate};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// Exit code and findings.
#[derive(Debug)]
struct Diagnosis {
    code: i32,
    findings: Value,
}

impl Diagnosis {
    fn of(postgres: &str, redis: &str, env: &[(String, String)]) -> Diagnosis {
        Self::with((postgres, redis), "", env)
    }

    /// `more`: of the settings.
    fn with((postgres, redis): (&str, &str), more: &str, env: &[(String, String)]) -> Diagnosis {
        let dir = Temp::new().unwrap();
        let config = dir.path().join("doctor.toml");
        let text = format!("[postgres]\nurl = \"{postgres}\"\n[redis]\nurl = \"{redis}\"\n{more}");
        std::fs::write(&config, text).unwrap();
        let output = Command::new(BINARY)
            .args(["doctor", "--output", "json", "--config"])
            .arg(&config)
            .envs(env.iter().cloned())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Diagnosis {
            code: output.status.code().unwrap(),
            findings: serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{said}")),
        }
    }

    fn find(&self, check: &str) -> Option<&Value> {
        let all = self.findings.as_array().unwrap();
        all.iter().find(|finding| finding["check"] == check)
    }

    fn verdict(&self, check: &str) -> &str {
        let finding = self.find(check);
        let finding = finding.unwrap_or_else(|| panic!("{check}: {:#}", self.findings));
        finding["verdict"].as_str().unwrap()
    }

    /// A check that is not well, with what is seen and what to do.
    fn ails(&self, check: &str, verdict: &str, (seen, todo): (&str, &str)) {
        assert_eq!(self.verdict(check), verdict, "{:#}", self.findings);
        let finding = self.find(check).unwrap();
        let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        assert!(text("seen").contains(seen), "{finding}");
        assert!(text("advice").contains(todo), "{finding}");
    }
}

/// A server with a schema that fits, and nobody at work.
async fn server(options: Options) -> (Postgres, String) {
    let postgres = Postgres::temporary_with(options).await.unwrap();
    let url = postgres.create_database("patient").await.unwrap();
    migrate(url.clone()).await.unwrap();
    (postgres, url)
}

/// For what is broken in Postgres alone.
async fn redis() -> Redis {
    Redis::temporary_with(RedisOptions::durable())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_lags_is_found() {
    let (postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    let standby = postgres.standby().await.unwrap();
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    let follows = |seen: &Diagnosis| {
        let finding = seen.find("replication").unwrap();
        let seen = finding["seen"].as_str().unwrap();
        finding["verdict"] == "ok" && seen.contains("1 standbys")
    };
    harness::wait::for_state("it follows", SOON, look, follows)
        .await
        .unwrap();
    let there = standby.url("postgres");
    let _ = rows(&there, "SELECT pg_wal_replay_pause()").await.unwrap();
    // More than the 64 MiB that are told of.
    let write =
        "CREATE TABLE ballast AS SELECT repeat(md5(n::text), 32) FROM generate_series(1, 100000) n";
    let _ = rows(&url, write).await.unwrap();
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    let lags = |seen: &Diagnosis| seen.verdict("replication") == "warn";
    let seen = harness::wait::for_state("it lags", SOON, look, lags).await;
    let told = ("1 standbys", "look at the standby");
    seen.unwrap().ails("replication", "warn", told);
    // A reader that is gone for good.
    let slot = "SELECT pg_create_physical_replication_slot('forgotten', true)";
    let _ = rows(&url, slot).await.unwrap();
    let seen = look().await;
    seen.ails("replication slots", "warn", ("1 that nobody", "drop them"));
}

/// The server alone, on a standby: nothing of ours may go there.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_leads_to_a_standby_is_found() {
    let (postgres, _url) = server(Options::test()).await;
    let standby = postgres.standby().await.unwrap();
    let seen = Diagnosis::of(&standby.url("patient"), &redis().await.url(), &[]);
    assert_eq!(seen.code, 1);
    seen.ails("postgres", "fail", ("", "postgres.url"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_is_found() {
    let (_postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    for (seconds, verdict) in [(-90, "fail"), (8, "warn"), (0, "ok")] {
        let env = harness::clock::off_by(seconds).unwrap();
        let seen = Diagnosis::of(&url, &redis.url(), &env);
        let todo = if verdict == "ok" { "" } else { "NTP" };
        seen.ails("clock", verdict, ("differ by", todo));
    }
}

/// On a server whose minutes pass quickly.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_left_open_is_found() {
    let mut options = Options::test();
    options.env = harness::clock::times(120).unwrap();
    let (_postgres, url) = server(options).await;
    let redis = redis().await;
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    assert_eq!(look().await.verdict("transactions"), "ok");
    let session = Session::open(&url).await.unwrap();
    session.run("BEGIN; SELECT txid_current()").await.unwrap();
    let late = |seen: &Diagnosis| seen.verdict("transactions") != "ok";
    let seen = harness::wait::for_state("it is late", SOON, look, late).await;
    seen.unwrap().ails(
        "transactions",
        "warn",
        ("the oldest is", "pg_stat_activity"),
    );
    drop(session);
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    let over = |seen: &Diagnosis| seen.verdict("transactions") == "ok";
    harness::wait::for_state("it is over", SOON, look, over)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_judged_by_its_mode() {
    let (postgres, _url) = server(Options::test()).await;
    let redis = redis().await;
    let keeps = PgBouncer::start(postgres.port(), PoolMode::Session)
        .await
        .unwrap();
    let seen = Diagnosis::of(&keeps.url("patient"), &redis.url(), &[]);
    assert_eq!(seen.verdict("sessions"), "ok", "{:#}", seen.findings);
    let shares = PgBouncer::start(postgres.port(), PoolMode::Transaction)
        .await
        .unwrap();
    let seen = Diagnosis::of(&shares.url("patient"), &redis.url(), &[]);
    assert_eq!(seen.code, 1);
    let told = ("pool_mode", "session pooling");
    seen.ails("sessions", "fail", told);
    assert!(
        seen.find("schema").is_none(),
        "it is not judged through that"
    );
}

/// Real processes whose pools are too much for the server, without being told how many they are.
#[tokio::test(flavor = "multi_thread")]
async fn pools_that_do_not_fit_are_found() {
    let options = Options::test().set("max_connections", "60");
    let (_postgres, url) = server(options).await;
    let redis = redis().await;
    let mut cluster = Plan::new(BINARY, &url, &redis.url())
        .of(1, 1, 1)
        .settings("[tools]\ndemo = true\n")
        .start()
        .await
        .unwrap();
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    let well = |seen: &Diagnosis| {
        seen.find("connections")
            .is_some_and(|c| c["verdict"] != "fail")
    };
    harness::wait::for_state("three pools of 16 fit", SOON, look, well)
        .await
        .unwrap();
    cluster.add(harness::config::Role::Worker).unwrap();
    let look = async || Diagnosis::of(&url, &redis.url(), &[]);
    let ill = |seen: &Diagnosis| seen.verdict("connections") == "fail";
    let seen = harness::wait::for_state("four do not", SOON, look, ill).await;
    let told = ("4 processes", "pool_size");
    seen.unwrap().ails("connections", "fail", told);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_is_found() {
    let (_postgres, url) = server(Options::test()).await;
    let mut options = RedisOptions::test();
    for (name, value) in [("maxmemory", "3mb"), ("maxmemory-policy", "volatile-lru")] {
        options.settings.push((name.to_owned(), value.to_owned()));
    }
    let redis = Redis::temporary_with(options).await.unwrap();
    let seen = Diagnosis::of(&url, &redis.url(), &[]);
    assert_eq!(seen.code, 1);
    seen.ails("redis eviction", "fail", ("volatile-lru", "noeviction"));
    seen.ails("redis persistence", "warn", ("off", "appendonly"));
    // One that does not let us in is there.
    let url_of_nobody = redis.url().replace("redis://", "redis://nobody:none@");
    let seen = Diagnosis::of(&url, &url_of_nobody, &[]);
    seen.ails("redis", "fail", ("", "redis.password_file"));
    let sound = self::redis().await;
    let seen = Diagnosis::of(&url, &sound.url(), &[]);
    for check in ["redis", "redis eviction", "redis persistence"] {
        assert_eq!(seen.verdict(check), "ok", "{:#}", seen.findings);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_too_old_or_too_new_is_found() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("patient").await.unwrap();
    let redis = redis().await;
    let look = || Diagnosis::of(&url, &redis.url(), &[]);
    look().ails("schema", "fail", ("at version 0", "mcp-tasks migrate"));
    migrate(url.clone()).await.unwrap();
    assert_eq!(look().verdict("schema"), "ok");
    let newer = "UPDATE schema_support SET oldest_supported_release = '99.0.0'";
    let _ = rows(&url, newer).await.unwrap();
    let seen = look();
    assert_eq!(seen.code, 1);
    seen.ails("schema", "fail", ("99.0.0", "newer release"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_or_a_database_that_does_not_fit_is_found() {
    let (postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    let none = postgres.url("none");
    let seen = Diagnosis::of(&none, &redis.url(), &[]);
    seen.ails("postgres", "fail", ("does not exist", "create it"));
    let run = async |sql: &str| rows(&url, sql).await.unwrap();
    run("CREATE ROLE app LOGIN").await;
    run("GRANT ALL ON ALL TABLES IN SCHEMA public TO app").await;
    run("REVOKE DELETE ON tasks FROM app").await;
    let seen = Diagnosis::of(&url.replace("postgres@", "app@"), &redis.url(), &[]);
    assert_eq!(seen.code, 1);
    seen.ails("rights", "fail", ("DELETE on tasks", "grant"));
    assert_eq!(
        Diagnosis::of(&url, &redis.url(), &[]).verdict("rights"),
        "ok"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuers_that_do_not_answer_are_told() {
    use harness::tokens::{Issuer, Manner, SigningKey};

    let (postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    let issuer = Issuer::start(&[&SigningKey::p256("k")]).await.unwrap();
    let dir = Temp::new().unwrap();
    let keys = dir.path().join("keys.toml");
    std::fs::write(&keys, "").unwrap();
    let settings = format!(
        "[auth]\nmode = \"tokens\"\nresource = \"https://us.example.com/mcp\"\n\
         api_keys_file = \"{}\"\n[[auth.issuers]]\nissuer = \"{}\"\n",
        keys.display(),
        issuer.url
    );
    let servers = (url.as_str(), redis.url());
    let look = || Diagnosis::with((servers.0, &servers.1), &settings, &[]);
    let seen = |diagnosis: &Diagnosis| -> Vec<(String, String)> {
        let all = diagnosis.findings.as_array().unwrap().iter();
        let auth = all.filter(|finding| finding["check"] == "auth");
        auth.map(|finding| {
            let text = |name: &str| finding[name].as_str().unwrap().to_owned();
            (text("verdict"), text("seen"))
        })
        .collect()
    };
    let well = seen(&look());
    assert_eq!(well.len(), 2, "{well:?}");
    assert!(well.iter().all(|(verdict, _)| verdict == "ok"), "{well:?}");
    assert!(well[1].1.contains("1 keys"), "{well:?}");
    issuer.behave(Manner::Status(500));
    std::fs::write(&keys, "[[key]]\n").unwrap();
    let diagnosis = look();
    let ill = seen(&diagnosis);
    assert!(ill.iter().all(|(verdict, _)| verdict == "fail"), "{ill:?}");
    assert!(
        ill[0].1.contains("sha256") && ill[1].1.contains("500"),
        "{ill:?}"
    );
    assert_eq!(diagnosis.code, 1);
    drop(postgres);
}

/// Upstream servers and services of the tools file: those that take connections, those that do not, and what of
/// their addresses is nobody's business.
#[tokio::test(flavor = "multi_thread")]
async fn services_and_upstreams_that_are_away_are_found() {
    let (_postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    let there = crate::callbacks::Service::start().await;
    let gone = format!("http://127.0.0.1:{}", harness::ports::free().unwrap());
    let dir = Temp::new().unwrap();
    let tools = format!(
        "[[http]]\nname = \"one\"\ndescription = \"D.\"\nurl = \"{0}/hush-path\"\n\
         [[http]]\nname = \"two\"\ndescription = \"D.\"\nurl = \"{0}/?hush-query\"\n\
         [[http]]\nname = \"three\"\ndescription = \"D.\"\nurl = \"{gone}/hush-path\"\n\
         [[upstream]]\nname = \"up\"\nprefix = \"up_\"\nurl = \"{0}/hush-path\"\n\
         [[upstream]]\nname = \"down\"\nprefix = \"down_\"\nurl = \"{gone}/hush-path\"\n\
         [[upstream]]\nname = \"pipe\"\nprefix = \"pipe_\"\ncommand = [\"sh\"]\n",
        there.url
    );
    let file = dir.path().join("tools.toml");
    std::fs::write(&file, tools).unwrap();
    let settings = format!("[tools]\nfile = {file:?}\n");
    let seen = Diagnosis::with((&url, &redis.url()), &settings, &[]);
    let all = seen.findings.as_array().unwrap();
    let of = |check: &str| -> Vec<(String, String)> {
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
        let all = all.iter().filter(|finding| finding["check"] == check);
        all.map(|finding| (text(finding, "verdict"), text(finding, "seen")))
            .collect()
    };
    let (services, upstreams) = (of("services"), of("upstreams"));
    let find = |all: &[(String, String)], begin: &str| {
        let mut found = all.iter().filter(|(_, seen)| seen.starts_with(begin));
        let found = found.next().unwrap_or_else(|| panic!("{begin}: {all:?}"));
        found.clone()
    };
    assert_eq!(
        (services.len(), upstreams.len()),
        (2, 3),
        "{:#}",
        seen.findings
    );
    for (all, begin, verdict, told) in [
        (&services, "one, two: ", "ok", "takes connections"),
        (&services, "three: ", "warn", "cannot be reached"),
        (&upstreams, "up: ", "ok", "takes connections"),
        (&upstreams, "down: ", "warn", "cannot be reached"),
        (&upstreams, "pipe: ", "ok", "is started by workers"),
    ] {
        let (was, said) = find(all, begin);
        assert!(
            was == verdict && said.contains(told),
            "{begin} {was} {said}"
        );
    }
    assert!(
        !seen.findings.to_string().contains("hush"),
        "{:#}",
        seen.findings
    );
    // It was knocked at, and nothing was said.
    assert!(there.seen().is_empty());
    // A file that cannot be served is told with its lines.
    std::fs::write(
        &file,
        "[[http]]\nname = \"one\"\nurl = \"https://who:hush-password@a/\"\n",
    )
    .unwrap();
    let seen = Diagnosis::with((&url, &redis.url()), &settings, &[]);
    seen.ails("tools file", "fail", ("tools.toml", "mend the file"));
    assert_eq!(seen.code, 1);
    assert!(
        !seen.findings.to_string().contains("hush"),
        "{:#}",
        seen.findings
    );
}

/// Told, and no failure: it may look from where only cron's files are not.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_receivers_are_read() {
    let (_postgres, url) = server(Options::test()).await;
    let redis = redis().await;
    let dir = Temp::new().unwrap();
    let [address, secret] = ["url", "secret"].map(|name| dir.path().join(name));
    std::fs::write(&address, "https://h/hush-path\n").unwrap();
    let settings = format!(
        "[[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl_file = {address:?}\n\
         secret_file = {secret:?}\n"
    );
    let look = || Diagnosis::with((&url, &redis.url()), &settings, &[]);
    let told = ("alerts.receivers[0].secret_file: ", "where cron runs");
    look().ails("receivers", "warn", told);
    std::fs::write(&secret, "hush-hush").unwrap();
    let seen = look();
    seen.ails("receivers", "warn", ("not base64", "where cron runs"));
    assert!(!seen.findings.to_string().contains("hush"), "{seen:?}");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    assert_eq!(look().verdict("receivers"), "ok");
}

/// What is not a matter of health: settings that cannot be used, and words that are no command.
#[test]
fn exit_codes_tell_mistakes_from_findings() {
    let code = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env("MCP_TASKS__POSTGRES__URL", "x:");
        let output = command.output().unwrap();
        (output.status.code().unwrap(), output.stdout.len())
    };
    assert_eq!(code(&["doctor", "--output", "json"]), (1, 0));
    assert_eq!(code(&["doctor", "--nonsense"]), (2, 0));
}
