//! A system that knows many secrets, each of them in one place.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use harness::cluster::{Cluster, Plan};
use harness::config::{Role, merge};
use harness::hook::{Hook, Manner as Takes};
use harness::postgres::Database;
use harness::proxy::Proxy;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::tokens::{CLIENT, Issuer, SigningKey};
use sha2::{Digest as _, Sha256};

use crate::collector::Collector;
use crate::server::{ACCESS, Server, TOOLS};
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
const KEPT: [&str; 31] = [
    "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
    "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2",
    "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3",
    "whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo",
    "d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4",
    "hush-broken-encryption-key",
    "hush-redis",
    "hush-path",
    "hush-postgres",
    "hush-in-a-file-of-postgres",
    "hush-in-a-file-of-redis",
    "hush-upstream",
    "hush-secret-header",
    "hush-client-secret",
    ACCESS,
    CLIENT.1,
    API_KEY,
    "hush-api-key",
    OPAQUE,
    "hush-wrong-token",
    "hush-digest-user",
    "aHVzaC1iYXNpYzpodXNoLWJhc2lj",
    "hush-two words",
    "hush-no-scheme",
    "hush-first-of-two",
    "hush-second-of-two",
    "hush-url-token",
    "hush-tls-token",
    "hush-plain-token",
    "hush-route",
    "hush-query",
];
/// Where the receiver is asked that refuses everything.
pub const REFUSED: &str = "/hush-route?key=hush-query";

pub struct Planted {
    pub cluster: Cluster,
    pub database: Database,
    /// Where the processes find the database.
    pub postgres: Proxy,
    pub redis: Redis,
    pub hook: Hook,
    /// Refuses every alert, and repeats what it was asked.
    pub grumbler: Hook,
    /// Takes work on, and calls back.
    pub service: Hook,
    /// Repeats what it is shown.
    pub upstream: Server,
    pub issuer: Issuer,
    pub signing: SigningKey,
    /// Made on the way: a JWT, the address of a callback, the private key of the certificate.
    pub made: Vec<String>,
    /// A task that an alert is about.
    pub unread: String,
    files: Temp,
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

    /// Of callers and of the settings: what nobody is told, whatever they sent themselves.
    pub fn credentials(&self) -> Vec<&str> {
        let made = self.made.iter().map(String::as_str);
        KEPT.into_iter().chain(made).collect()
    }

    /// Where the files are that the settings name.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Makes the user that the processes are in Redis.
    pub async fn let_into_redis(&self) {
        let_in(&self.redis).await;
    }

    /// Everything that is in no row, as text and as Postgres shows bytes.
    pub fn in_no_row(&self) -> Vec<String> {
        let all = self.all().into_iter().filter(|secret| *secret != SHOWN);
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect();
        all.flat_map(|secret| [secret.to_owned(), hex(secret)])
            .collect()
    }
}

fn tools(files: &Path, service: &Hook, server: &Server) -> String {
    let [upstream, header, secret] =
        ["upstream", "header", "oauth-secret"].map(|name| files.join(name));
    std::fs::write(&upstream, "hush-upstream").unwrap();
    std::fs::write(&header, "hush-secret-header").unwrap();
    std::fs::write(&secret, "hush-client-secret").unwrap();
    let tools = format!(
        "[[http]]\nname = \"job\"\ndescription = \"D.\"\nurl = \"{}/job\"\ncallback_wait = \"1h\"\n\
         effects = \"repeatable\"\nsecret_headers = {{ X-Upstream = {upstream:?} }}\n\
         [http.policy]\ninline_budget = \"0s\"\n\
         [[upstream]]\nname = \"up\"\nprefix = \"up_\"\nurl = \"{1}/mcp\"\nprotocol = \"2025-11-25\"\n\
         secret_headers = {{ X-Key = {header:?} }}\n\
         oauth = {{ token_url = \"{1}/token\", client_id = \"us\", client_secret_file = {secret:?} }}\n\
         policy = {{ inline_budget = \"0s\" }}\n",
        service.url, server.url
    );
    let file = files.join("tools.toml");
    std::fs::write(&file, tools).unwrap();
    format!("file = {file:?}\n")
}

/// One that takes alerts, and one that takes none and is told by files.
fn receivers(files: &Path, hook: &Hook, grumbler: &Hook) -> String {
    let [taken, refused] = [
        format!("{}/hush-path", hook.url),
        format!("{}{REFUSED}", grumbler.url),
    ];
    let secret = KEPT[3];
    let [url_file, secret_file] = [
        ("receiver-url", refused.as_str()),
        ("receiver-secret", secret),
    ]
    .map(|(name, text)| {
        let file = files.join(name);
        std::fs::write(&file, text).unwrap();
        file
    });
    format!(
        "[[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl = {taken:?}\nsecret = {secret:?}\n\
         questions = true\n\
         [[alerts.receivers]]\nname = \"grumbler\"\nkind = \"webhook\"\nurl_file = {url_file:?}\nsecret_file = {secret_file:?}\n"
    )
}

async fn let_in(redis: &Redis) {
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">hush-redis",
        ">hush-in-a-file-of-redis",
        "~*",
        "&*",
        "+@all",
    ];
    redis.command(&user).await.unwrap();
}

/// Gateways that check tokens, and find passwords in files; one of them encrypts. Its private key, line by line.
async fn guard(
    cluster: &mut Cluster,
    files: &Path,
    issuer: &Issuer,
    (postgres, redis): (&str, &str),
) -> Vec<String> {
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
    let [postgres_file, redis_file] = ["postgres", "redis"].map(|name| files.join(name));
    std::fs::write(&postgres_file, "hush-in-a-file-of-postgres").unwrap();
    std::fs::write(&redis_file, "hush-in-a-file-of-redis\n").unwrap();
    let passwords = format!(
        "[postgres]\npassword_file = {postgres_file:?}\n[redis]\npassword_file = {redis_file:?}\n"
    );
    for more in [
        format!("{settings}{passwords}"),
        format!("{settings}{passwords}{tls}"),
    ] {
        let guarded = cluster.add_with(Role::Gateway, |plan| {
            postgres.clone_into(&mut plan.common.postgres_url);
            redis.clone_into(&mut plan.common.redis_url);
            merge(&mut plan.common.settings, &more.parse().unwrap());
        });
        guarded.unwrap().ready().await.unwrap();
    }
    let pem = key.serialize_pem();
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    lines.map(str::to_owned).collect()
}

pub async fn planted(collector: &Collector) -> Planted {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let_in(&redis).await;
    let hook = Hook::start(Takes::Take).await.unwrap();
    let grumbler = Hook::start(Takes::Echo(404)).await.unwrap();
    let service = Hook::start(Takes::Status(202)).await.unwrap();
    let upstream = Server::start().await;
    let signing = SigningKey::p256("k");
    let issuer = Issuer::start(&[&signing]).await.unwrap();
    let files = Temp::new().unwrap();
    let key_file = files.path().join("key");
    for (name, key) in [
        ("key", KEPT[2]),
        ("other-key", KEPT[4]),
        ("broken-key", KEPT[5]),
    ] {
        std::fs::write(files.path().join(name), key).unwrap();
    }
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
         [alerts]\nunfetched_after = \"1s\"\n{}",
        KEPT[0],
        KEPT[1],
        tools(files.path(), &service, &upstream),
        collector.endpoint,
        receivers(files.path(), &hook, &grumbler),
    );
    let address = redis.url().replace("redis://", "redis://app:hush-redis@");
    let open = (
        database.url().to_owned(),
        redis.url().replace("redis://", "redis://app@"),
    );
    let proxy = Proxy::to_port(port(&open.0)).await.unwrap();
    let open = (proxy.through(&open.0), open.1);
    let postgres = open.0.replace("postgres@", "postgres:hush-postgres@");
    assert!(postgres.contains("hush-postgres"), "{postgres}");
    let plan = Plan::new(env!("CARGO_BIN_EXE_mcp-tasks"), &postgres, &address);
    let plan = plan.of(1, 1, 1).settings(&settings);
    let mut cluster = plan.start().await.unwrap();
    let mut made = guard(&mut cluster, files.path(), &issuer, (&open.0, &open.1)).await;
    // As they are sent.
    for pair in [
        "us:hush-client-secret".to_owned(),
        format!("{}:{}", CLIENT.0, CLIENT.1),
    ] {
        made.push(BASE64_STANDARD.encode(pair));
    }
    // Asks before there is a task.
    let asks = |plan: &mut harness::node::Plan| {
        let fixtures = "[tools]\nfixtures = \"conformance\"\n".parse().unwrap();
        merge(&mut plan.common.settings, &fixtures);
    };
    let asks = cluster.add_with(Role::Worker, asks).unwrap();
    asks.ready().await.unwrap();
    let upstreams = TOOLS.map(|name| format!("up_{name}"));
    let ours = [
        "chaos_undo",
        "run_shell",
        "job",
        "test_input_required_result_request_state",
    ];
    let tools: Vec<&str> = ours
        .into_iter()
        .chain(upstreams.iter().map(String::as_str))
        .collect();
    cluster.wait_for_tools(0, &tools).await.unwrap();
    Planted {
        cluster,
        database,
        postgres: proxy,
        redis,
        hook,
        grumbler,
        service,
        upstream,
        issuer,
        signing,
        made,
        unread: String::new(),
        files,
    }
}

/// Of a URL.
fn port(url: &str) -> u16 {
    let uri: http::Uri = url.parse().unwrap();
    uri.port_u16().unwrap()
}

/// Which secret is in it.
pub fn found<'a, S: AsRef<str>>(bytes: &[u8], secrets: &'a [S]) -> Option<&'a str> {
    let text = String::from_utf8_lossy(bytes);
    let mut secrets = secrets.iter().map(AsRef::as_ref);
    secrets.find(|secret| text.contains(secret))
}
