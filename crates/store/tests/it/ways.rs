//! Ways to Postgres: encrypted or not, with a password from a file, and refused. What is refused for
//! good is told apart from an outage, with what to do.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use harness::postgres::{Postgres, rows};
use harness::temp::Temp;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use store::{Error, Store};

use crate::support::{config, migrate, store};

/// Signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            file,
        }
    }

    /// Certificate and key for a server.
    fn sign(&self, host: &str, expired: bool) -> (String, String) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        if expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server, and files beside it.
struct Server {
    postgres: Postgres,
    dir: Temp,
}

impl Server {
    async fn new() -> Server {
        let postgres = Postgres::temporary().await.unwrap();
        migrate(postgres.create_database("ways").await.unwrap())
            .await
            .unwrap();
        Server {
            postgres,
            dir: Temp::new().unwrap(),
        }
    }

    async fn run(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        rows(&self.postgres.url("ways"), sql).await.unwrap()
    }

    /// A file in the server's folder that only the server can read.
    fn give(&self, name: &str, text: &str) {
        let file = self.postgres.data().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let owner = std::fs::metadata(self.postgres.data()).unwrap();
        chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    async fn encrypt(&self, (certificate, key): (String, String)) {
        self.give("server.crt", &certificate);
        self.give("server.key", &key);
        self.run("ALTER SYSTEM SET ssl = on").await;
        self.reload().await;
        let on = async || self.run("SHOW ssl").await[0][0].clone();
        let is_on = |value: &Option<String>| value.as_deref() == Some("on");
        harness::wait::for_state("ssl is on", harness::wait::DEFAULT, on, is_on)
            .await
            .unwrap();
    }

    async fn reload(&self) {
        self.run("SELECT pg_reload_conf()").await;
    }

    /// The role `app`, which must show a password, or does not get in.
    async fn ask_for_password(&self, method: &str) {
        self.run("CREATE ROLE app LOGIN PASSWORD 'first'").await;
        self.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO app")
            .await;
        let file = self.postgres.data().join("pg_hba.conf");
        let rules = std::fs::read_to_string(&file).unwrap();
        let rules = format!("host all app 127.0.0.1/32 {method}\n{rules}");
        std::fs::write(&file, rules).unwrap();
        self.reload().await;
        let sql = "SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{app}'";
        let loaded = async || self.run(sql).await[0][0].clone();
        let is_loaded = |count: &Option<String>| count.as_deref() == Some("1");
        harness::wait::for_state("rules", harness::wait::DEFAULT, loaded, is_loaded)
            .await
            .unwrap();
    }

    fn url(&self, role: &str, more: &str) -> String {
        let port = self.postgres.port();
        format!("postgres://{role}@127.0.0.1:{port}/ways{more}")
    }

    fn store(&self, more: &str) -> Store {
        store(config(&self.url("postgres", more)))
    }

    /// Whether the session of this store is encrypted.
    async fn is_encrypted(&self, store: &Store) -> bool {
        // Those of stores before it.
        let others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                      WHERE application_name = 'mcp-tasks'";
        self.run(others).await;
        store.check_schema().await.unwrap();
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE application_name = 'mcp-tasks'";
        self.run(sql).await[0][0].as_deref() == Some("t")
    }
}

fn file(setting: &str, path: &Path) -> String {
    format!("{setting}={}", path.display())
}

/// What is refused, and what to do. It must not be waited for.
async fn refused(store: &Store) -> String {
    let error = store.check_schema().await.unwrap_err();
    let refusal = error.refusal();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let told = refusal.unwrap_or_else(|| panic!("{error:?}")).to_string();
    assert!(!told.contains("first"), "{told}");
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_is_encrypted_as_the_url_says() {
    let server = Server::new().await;
    assert!(!server.is_encrypted(&server.store("")).await);
    let told = refused(&server.store("?sslmode=require")).await;
    assert!(
        told.contains("offers no encryption") && told.contains("ssl = on"),
        "{told}"
    );

    let ours = Authority::new(server.dir.path(), "ours");
    let other = Authority::new(server.dir.path(), "other");
    server.encrypt(ours.sign("127.0.0.1", false)).await;
    let (ca, other) = (
        file("sslrootcert", &ours.file),
        file("sslrootcert", &other.file),
    );
    for encrypted in [
        String::new(),
        "?sslmode=prefer".to_owned(),
        "?sslmode=require".to_owned(),
        format!("?sslmode=require&{ca}"),
        format!("?sslmode=verify-ca&{ca}"),
        format!("?sslmode=verify-full&{ca}"),
    ] {
        let store = server.store(&encrypted);
        assert!(server.is_encrypted(&store).await, "{encrypted}");
    }
    let plain = server.store("?sslmode=disable");
    plain.check_schema().await.unwrap();
    let mut settings = config(&server.url("postgres", "?sslmode=require"));
    settings.ca_file = Some(ours.file.clone());
    store::migrate::migrate(&settings).await.unwrap();
    assert!(server.is_encrypted(&store(settings)).await);

    // Somebody else's authority, and those of this machine, which do not know ours.
    for unknown in [
        format!("?sslmode=require&{other}"),
        format!("?sslmode=verify-ca&{other}"),
        "?sslmode=verify-full".to_owned(),
    ] {
        let told = refused(&server.store(&unknown)).await;
        assert!(
            told.contains("not trusted") && told.contains("ca_file"),
            "{unknown}: {told}"
        );
    }

    server.encrypt(ours.sign("elsewhere.example", false)).await;
    for unnoticed in [
        "?sslmode=require".to_owned(),
        format!("?sslmode=verify-ca&{ca}"),
    ] {
        assert!(
            server.is_encrypted(&server.store(&unnoticed)).await,
            "{unnoticed}"
        );
    }
    for noticed in [
        format!("?sslmode=require&{ca}"),
        format!("?sslmode=verify-full&{ca}"),
    ] {
        let told = refused(&server.store(&noticed)).await;
        assert!(told.contains("another host"), "{noticed}: {told}");
    }

    server.encrypt(ours.sign("127.0.0.1", true)).await;
    let told = refused(&server.store(&format!("?sslmode=verify-full&{ca}"))).await;
    assert!(told.contains("expired"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_bound_to_the_encrypted_way() {
    let server = Server::new().await;
    let ours = Authority::new(server.dir.path(), "ours");
    server.encrypt(ours.sign("127.0.0.1", false)).await;
    server.ask_for_password("scram-sha-256").await;
    let more = "?sslmode=require&channel_binding=require";
    let bound = store(config(&server.url("app:first", more)));
    bound.check_schema().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_may_change() {
    let server = Server::new().await;
    server.ask_for_password("scram-sha-256").await;
    let secret = server.dir.path().join("password");
    std::fs::write(&secret, "first\n").unwrap();
    // The file wins over the URL.
    let mut settings = config(&server.url("app:wrong", ""));
    settings.password_file = Some(secret.clone());
    let store = store(settings);
    store.check_schema().await.unwrap();

    server.run("ALTER ROLE app PASSWORD 'second'").await;
    let kill = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'app'";
    server.run(kill).await;
    let told = refused(&store).await;
    assert!(
        told.contains("password") && told.contains("password_file"),
        "{told}"
    );
    std::fs::write(&secret, "second").unwrap();
    store.check_schema().await.unwrap();
    // Mounted secrets are away for a moment while they change.
    std::fs::remove_file(&secret).unwrap();
    server.run(kill).await;
    store.tools().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waiting_does_not_mend_is_told_at_once() {
    let server = Server::new().await;
    server.ask_for_password("scram-sha-256").await;
    let at = |url: &str| store(config(url));
    let port = server.postgres.port();
    for (url, what) in [
        (server.url("app:wrong", ""), "password"),
        (server.url("app", ""), "none is set"),
        (server.url("nobody", ""), "let the role"),
        (
            format!("postgres://postgres@127.0.0.1:{port}/none"),
            "does not exist",
        ),
    ] {
        let told = refused(&at(&url)).await;
        assert!(told.contains(what), "{url}: {told}");
    }
    server.run("ALTER ROLE app NOLOGIN").await;
    let told = refused(&at(&server.url("app:first", ""))).await;
    assert!(told.contains("pg_hba.conf"), "{told}");
    // A server that is away is another matter.
    let away = at(&format!(
        "postgres://postgres@127.0.0.1:{}/ways",
        harness::ports::free().unwrap()
    ));
    let away = away.with_wait(std::time::Duration::ZERO);
    assert!(away.ping().await.unwrap_err().refusal().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_a_role_lacks_are_named() {
    let server = Server::new().await;
    server.ask_for_password("scram-sha-256").await;
    let store = store(config(&server.url("app:first", "")));
    assert_eq!(store.missing_rights().await.unwrap(), []);
    server.run("REVOKE DELETE ON steps FROM app").await;
    server.run("REVOKE UPDATE, INSERT ON tasks FROM app").await;
    let missing = store.missing_rights().await.unwrap();
    let told: Vec<String> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["DELETE on steps", "INSERT, UPDATE on tasks"]);
    let forbid: Vec<bool> = missing.iter().map(|right| right.forbids_work()).collect();
    assert_eq!(forbid, [false, true]);
    server
        .run("REVOKE SELECT ON schema_migrations FROM app")
        .await;
    let told = refused(&store).await;
    assert!(told.contains("lacks a right"), "{told}");
}
