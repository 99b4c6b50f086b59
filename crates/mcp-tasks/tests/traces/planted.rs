//! A system that knows many secrets, each of them in one place.

use std::path::Path;

use harness::cluster::{Cluster, Plan};
use harness::config::{Role, merge};
use harness::hook::{Hook, Manner as Takes};
use harness::postgres::Database;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::tokens::{CLIENT, Issuer, SigningKey};
use sha2::{Digest as _, Sha256};

use crate::collector::Collector;
use crate::stack::migrate;

/// Of callers, tools and services: in no output, and with encryption in no row.
const SAID: [&str; 11] = [
    "hush-argument",
    "hush-answer",
    "hush-malformed",
    "hush-error",
    "hush-output",
    "hush-script",
    "hush-baggage",
    "hush-progress",
    "hush-callback",
    "hush-key-argument",
    "hush-opaque-argument",
];
/// Of callers: in no output, but clear in Postgres, where it is looked up before there is a task.
pub const SHOWN: &str = "hush-idempotency";
pub const API_KEY: &str = "mtk_hush-api-key";
pub const OPAQUE: &str = "hush-opaque-token";
/// Of the settings, and credentials of callers: in no output and in no row.
const KEPT: [&str; 13] = [
    "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
    "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2",
    "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3",
    "whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo",
    "hush-redis",
    "hush-path",
    "hush-postgres",
    "hush-upstream",
    CLIENT.1,
    API_KEY,
    "hush-api-key",
    OPAQUE,
    "hush-wrong-token",
];

pub struct Planted {
    pub cluster: Cluster,
    pub database: Database,
    pub redis: Redis,
    pub hook: Hook,
    /// Takes work on, and calls back.
    pub service: Hook,
    pub issuer: Issuer,
    pub signing: SigningKey,
    /// Made on the way: a JWT, the address of a callback, the private key of the certificate.
    pub made: Vec<String>,
    _files: Temp,
}

pub const RESOURCE: &str = "http://127.0.0.1:9/mcp";

impl Planted {
    /// Everything that is in no output.
    pub fn all(&self) -> Vec<&str> {
        let made = self.made.iter().map(String::as_str);
        SAID.into_iter()
            .chain([SHOWN])
            .chain(KEPT)
            .chain(made)
            .collect()
    }

    /// Everything that is in no row, as text and as Postgres shows bytes.
    pub fn in_no_row(&self) -> Vec<String> {
        let all = self.all().into_iter().filter(|secret| *secret != SHOWN);
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect();
        all.flat_map(|secret| [secret.to_owned(), hex(secret)])
            .collect()
    }
}

fn tools(files: &Path, service: &Hook) -> String {
    let upstream = files.join("upstream");
    std::fs::write(&upstream, "hush-upstream").unwrap();
    let tools = format!(
        "[[http]]\nname = \"job\"\ndescription = \"D.\"\nurl = \"{}/job\"\ncallback_wait = \"1h\"\n\
         effects = \"repeatable\"\nsecret_headers = {{ X-Upstream = {upstream:?} }}\n\
         [http.policy]\ninline_budget = \"0s\"\n",
        service.url
    );
    let file = files.join("tools.toml");
    std::fs::write(&file, tools).unwrap();
    format!("file = {file:?}\n")
}

/// A gateway that checks tokens, behind TLS.
async fn guard(cluster: &mut Cluster, files: &Path, issuer: &Issuer) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let [key_file, certificate_file, api_keys, secret] =
        ["key.pem", "cert.pem", "api-keys.toml", "client-secret"].map(|name| files.join(name));
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::write(&certificate_file, certificate.pem()).unwrap();
    std::fs::write(&secret, CLIENT.1).unwrap();
    let digest = Sha256::digest(API_KEY);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!("[[key]]\nsha256 = \"{digest}\"\nsubject = \"machine\"\n");
    std::fs::write(&api_keys, entry).unwrap();
    let url = &issuer.url;
    let settings = format!(
        "[auth]\nmode = \"tokens\"\nresource = \"{RESOURCE}\"\napi_keys_file = {api_keys:?}\n\
         [[auth.issuers]]\nissuer = \"{url}\"\nintrospection_url = \"{url}/introspect\"\n\
         introspection_client_id = {:?}\nintrospection_secret_file = {secret:?}\n",
        CLIENT.0
    );
    let tls = format!(
        "[gateway.tls]\ncertificate_file = {certificate_file:?}\nkey_file = {key_file:?}\n"
    );
    for more in [settings.clone(), format!("{settings}{tls}")] {
        let guarded = cluster.add_with(Role::Gateway, |plan| {
            merge(&mut plan.common.settings, &more.parse().unwrap());
        });
        guarded.unwrap().ready().await.unwrap();
    }
    let pem = key.serialize_pem();
    pem.lines().nth(1).unwrap().to_owned()
}

pub async fn planted(collector: &Collector) -> Planted {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">hush-redis",
        "~*",
        "&*",
        "+@all",
    ];
    redis.command(&user).await.unwrap();
    let hook = Hook::start(Takes::Take).await.unwrap();
    let service = Hook::start(Takes::Status(202)).await.unwrap();
    let signing = SigningKey::p256("k");
    let issuer = Issuer::start(&[&signing]).await.unwrap();
    let files = Temp::new().unwrap();
    let key_file = files.path().join("key");
    std::fs::write(&key_file, KEPT[2]).unwrap();
    let ledger = files.path().join("ledger");
    let settings = format!(
        "[postgres]\nlease = \"3s\"\nheartbeat = \"1s\"\n\
         [gateway]\ndrain_delay = \"0s\"\nrequest_state_keys = [{:?}]\n\
         [callbacks]\nkeys = [{:?}]\npublic_url = \"http://callbacks.example\"\n\
         [encryption]\nkeys = [{{ id = \"k1\", key_file = {key_file:?} }}]\n\
         [tools]\nfixtures = \"chaos\"\nledger = {ledger:?}\nshell = true\n{}\
         [cron]\nalerts_interval = \"200ms\"\n\
         [logs]\nfilter = \"trace\"\n\
         [traces]\nbatch_delay = \"100ms\"\nendpoint = {:?}\n\
         [alerts]\nunfetched_after = \"1s\"\n\
         [[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}/hush-path\"\nsecret = {:?}\nquestions = true\n",
        KEPT[0],
        KEPT[1],
        tools(files.path(), &service),
        collector.endpoint,
        hook.url,
        KEPT[3],
    );
    let address = redis.url().replace("redis://", "redis://app:hush-redis@");
    let postgres = database.url();
    let postgres = postgres.replace("postgres@", "postgres:hush-postgres@");
    assert!(postgres.contains("hush-postgres"), "{postgres}");
    let plan = Plan::new(env!("CARGO_BIN_EXE_mcp-tasks"), &postgres, &address);
    let plan = plan.of(1, 1, 1).settings(&settings);
    let mut cluster = plan.start().await.unwrap();
    let private = guard(&mut cluster, files.path(), &issuer).await;
    let tools = ["chaos_undo", "run_shell", "job"];
    cluster.wait_for_tools(0, &tools).await.unwrap();
    Planted {
        cluster,
        database,
        redis,
        hook,
        service,
        issuer,
        signing,
        made: vec![private],
        _files: files,
    }
}

/// Which secret is in it.
pub fn found<'a, S: AsRef<str>>(bytes: &[u8], secrets: &'a [S]) -> Option<&'a str> {
    let secrets = secrets.iter().map(AsRef::as_ref);
    let mut there = secrets.filter(|secret| {
        let mut parts = bytes.windows(secret.len());
        parts.any(|part| part == secret.as_bytes())
    });
    there.next()
}
