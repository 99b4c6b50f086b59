//! Settings that do not work, as people meet them: told at once, all of them, with what to change.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use harness::postgres::Postgres;
use harness::redis::Redis;
use harness::temp::Temp;

use crate::support::{SOON, migrate};

/// Told by files that are not there.
const RECEIVER: &str = "[[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\n\
                        url_file = \"/no/url\"\nsecret_file = \"/no/secret\"\n";
const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// What a command says of these settings, and whether it is content.
fn said(command: &[&str], file: Option<&Path>, env: &[(&str, &str)]) -> (bool, String) {
    let mut run = Command::new(BINARY);
    run.args(command).envs(env.iter().copied());
    if let Some(file) = file {
        run.arg("--config").arg(file);
    }
    told(&run.output().unwrap())
}

fn told(output: &Output) -> (bool, String) {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

fn file(dir: &Temp, text: &str) -> PathBuf {
    let path = dir.path().join("settings.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_check_tells_every_problem_with_its_place() {
    let dir = Temp::new().unwrap();
    let text = "[postgres]\nulr = \"x\"\nlease = 10\nurl = \"postgres://h/d?sslmode=verify\"\n\
                [logs]\nfilter = \"infoo\"\n\
                [redis]\npassword_file = \"/none\"\n\
                [[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"https://h\"\n";
    let file = file(&dir, text);
    let env = [("MCP_TASKS__GATEWAY__POLL_MIN", "7")];
    let (good, said) = said(&["config", "check"], Some(&file), &env);
    assert!(!good);
    for (path, what, place) in [
        ("postgres.ulr", "unknown field", "line 2"),
        ("postgres.lease", "\"30s\"", "line 3"),
        ("postgres.url", "verify-full", "line 4"),
        ("logs.filter", "infoo", "line 6"),
        ("redis.password_file", "/none", "line 8"),
        ("alerts.receivers[0].secret", "missing", "line 9"),
        (
            "gateway.poll_min",
            "\"30s\"",
            "MCP_TASKS__GATEWAY__POLL_MIN",
        ),
    ] {
        let mut lines = said.lines();
        let found = lines.any(|line| {
            line.trim_start().starts_with(&format!("{path}: "))
                && line.contains(what)
                && line.trim_end().ends_with(&format!("{place})"))
        });
        assert!(found, "{path}:\n{said}");
    }
}

/// Good is what is good with all the files that it names; what is wrong with those is told at once.
#[test]
fn settings_are_good_when_their_files_are() {
    let dir = Temp::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let none = write("none.toml", "");
    let of = |auth: &str| {
        format!(
            "[auth]\nmode = \"tokens\"\nresource = \"https://a.example/mcp\"\n\
             api_keys_file = \"{auth}\"\n"
        )
    };
    let settings = file(&dir, &of(&none));
    let (good, told) = said(&["config", "check"], Some(&settings), &[]);
    assert!(good && told.contains("the settings are good"), "{told}");
    assert!(
        told.contains("warning: ") && told.contains("nobody may call"),
        "{told}"
    );

    let pem = write("pem", "nothing");
    let settings = file(
        &dir,
        &format!(
            "{}[tools]\nfile = \"/no/tools.toml\"\n[gateway.tls]\ncertificate_file = \"{pem}\"\n\
             key_file = \"{pem}\"\n{RECEIVER}ca_file = \"{pem}\"\n",
            of("/no/keys.toml")
        ),
    );
    let (good, told) = said(&["config", "check"], Some(&settings), &[]);
    assert!(!good && !told.contains("are good"), "{told}");
    for problem in [
        "auth.api_keys_file: /no/keys.toml: No such file",
        "/no/tools.toml: cannot be read",
        "gateway.tls.certificate_file: holds no certificate",
        "alerts.receivers[0].url_file: /no/url: No such file",
        "alerts.receivers[0].secret_file: /no/secret: No such file",
        "alerts.receivers[0].ca_file: ",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
}

/// Cron alone tells receivers, so that others need not have their files.
#[test]
fn cron_does_not_start_without_the_files_of_receivers() {
    let dir = Temp::new().unwrap();
    let settings = file(
        &dir,
        &format!("[admin]\nlisten = \"127.0.0.1:0\"\n{RECEIVER}"),
    );
    // One that started all the same would wait for Postgres.
    let mut cron = Command::new("timeout");
    cron.args(["30", BINARY, "cron", "--config"]).arg(&settings);
    let (good, told) = told(&cron.output().unwrap());
    assert!(!good, "{told}");
    for problem in [
        "alerts.receivers[0].url_file: /no/url: No such file",
        "alerts.receivers[0].secret_file: /no/secret: No such file",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    let (good, told) = said(&["config", "show"], Some(&settings), &[]);
    assert!(good && told.contains("url_file = \"/no/url\""), "{told}");
}

#[test]
fn files_that_are_no_settings_are_told_apart() {
    let dir = Temp::new().unwrap();
    let broken = file(&dir, "[postgres\nurl = 1\n");
    let (good, said_of_it) = said(&["config", "check"], Some(&broken), &[]);
    assert!(!good && said_of_it.contains("is not TOML") && said_of_it.contains("line 1"));
    // The line may hold a password.
    let broken = file(&dir, "[postgres]\nurl = \"postgres://u:sesame@h\" sesame\n");
    let (good, said_of_it) = said(&["config", "check"], Some(&broken), &[]);
    assert!(
        !good && said_of_it.contains("line 2, column"),
        "{said_of_it}"
    );
    assert!(!said_of_it.contains("sesame"), "{said_of_it}");
    let (good, said) = said(&["config", "check"], Some(Path::new("/none.toml")), &[]);
    assert!(
        !good && said.contains("/none.toml cannot be read"),
        "{said}"
    );
}

#[test]
fn settings_are_shown_without_secrets() {
    let dir = Temp::new().unwrap();
    let key = "0011223344556677889900112233445566778899001122334455667788990011";
    let text = format!(
        "[postgres]\nurl = \"postgres://u:sesame@h/d\"\n[redis]\nurl = \"redis://:sesame@h\"\n\
         [gateway]\nrequest_state_keys = [\"{key}\"]\n"
    );
    let file = file(&dir, &text);
    let said_of = said;
    let (good, said) = said(&["config", "show"], Some(&file), &[]);
    assert!(good && said.contains("postgres://u:(hidden)@h/d"), "{said}");
    assert!(!said.contains("sesame") && !said.contains(key), "{said}");
    // In every form that is taken, and in those that look like another one.
    for (url, shown) in [
        ("host=h password = sesame user=u", "postgres://u:(hidden)@h"),
        (r"host=h password='a\'sesame'", "postgres://:(hidden)@h"),
        (r"host=h password=a\ sesame", "postgres://:(hidden)@h"),
        ("postgres://u:p?sesame@h/d", "postgres://u:(hidden)@h/d"),
        ("postgres://u:p@sesame@h/d", "(hidden)"),
    ] {
        let env = [("MCP_TASKS__POSTGRES__URL", url)];
        let (good, said) = said_of(&["config", "show"], None, &env);
        assert!(
            good && said.contains(&format!("url = \"{shown}\"")),
            "{url}: {said}"
        );
        assert!(!said.contains("sesame"), "{url}: {said}");
    }
}

/// The second process of a machine, started as the first one was.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_told_with_its_setting() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("taken").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let (url, redis) = (url.as_str(), redis.url());
    let servers = [
        ("MCP_TASKS__POSTGRES__URL", url),
        ("MCP_TASKS__REDIS__URL", &redis),
    ];
    for command in ["gateway", "worker", "cron"] {
        let env = [&servers[..], &[("MCP_TASKS__ADMIN__LISTEN", &taken)]].concat();
        let (good, said) = said(&[command], None, &env);
        assert!(!good && said.contains("admin.listen"), "{command}: {said}");
        assert!(
            said.contains("MCP_TASKS__ADMIN__LISTEN=127.0.0.1:0"),
            "{said}"
        );
    }
    let of_gateway = [
        ("MCP_TASKS__ADMIN__LISTEN", "127.0.0.1:0"),
        ("MCP_TASKS__GATEWAY__BIND", &taken),
    ];
    let (good, said) = said(&["gateway"], None, &[&servers[..], &of_gateway].concat());
    assert!(!good && said.contains("gateway.bind"), "{said}");
}

/// A stack that is ended with the test, and the file that it talks to.
struct Dev {
    child: Child,
    out: PathBuf,
}

impl Dev {
    fn start(dir: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Dev {
        let out = dir.join("out");
        let file = std::fs::File::create(&out).unwrap();
        let mut command = Command::new(BINARY);
        command
            .args(["dev", "--data-dir"])
            .arg(dir.join("data"))
            .args(arguments)
            .envs(env.iter().copied())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command.spawn().unwrap();
        Dev { child, out }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    fn said(mut self) -> (bool, String) {
        let status = self.child.wait().unwrap();
        (status.success(), self.text())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        for _ in 0..2 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.wait();
    }
}

#[test]
fn dev_tells_what_is_wrong_before_it_starts_anything() {
    let dir = Temp::new().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port().to_string();
    let (good, said) = Dev::start(dir.path(), &["--port", &taken], &[]).said();
    assert!(
        !good && said.contains("--port") && said.contains(&taken),
        "{said}"
    );
    assert!(!said.contains("are up"), "{said}");

    let settings = file(&dir, "[worker]\nslots = \"many\"\nslotz = 1\n");
    let settings = settings.to_str().unwrap();
    let env = [("MCP_TASKS_CONFIG", settings)];
    let (good, said) = Dev::start(dir.path(), &["--port", "0"], &env).said();
    assert!(!good && !said.contains("are up"), "{said}");
    assert!(
        said.contains("worker.slots:") && said.contains("worker.slotz:"),
        "{said}"
    );
}

/// The file of settings is used, and nothing of it leads away from this machine; nor do variables.
#[tokio::test(flavor = "multi_thread")]
async fn dev_uses_settings_and_keeps_its_addresses() {
    let dir = Temp::new().unwrap();
    let text = "[postgres]\nurl = \"postgres://elsewhere.example/d\"\nlease = \"33s\"\n\
                [redis]\nurl = \"redis://elsewhere.example\"\n\
                [gateway]\nbind = \"127.0.0.1:1\"\n[admin]\nlisten = \"127.0.0.1:1\"\n\
                [worker]\nslots = 3\n";
    let settings = file(&dir, text);
    let env = [
        ("MCP_TASKS__POSTGRES__URL", "postgres://elsewhere.example/d"),
        ("MCP_TASKS__REDIS__URL", "redis://elsewhere.example"),
    ];
    let arguments = ["--port", "0", "--config", settings.to_str().unwrap()];
    let mut dev = Dev::start(dir.path(), &arguments, &env);
    let processes = dir.path().join("data/processes.json");
    let ready = async || {
        if let Some(status) = dev.child.try_wait().unwrap() {
            panic!("{status}: {}", dev.text());
        }
        processes.exists() && dev.text().contains("ctrl-C")
    };
    let ready = harness::wait::for_state("dev is ready", SOON * 2, ready, |there| *there);
    ready.await.unwrap();
    let processes = std::fs::read_to_string(&processes).unwrap();
    let processes: serde_json::Value = serde_json::from_str(&processes).unwrap();
    let worker = processes["workers"][0]["admin"].as_str().unwrap();
    let http = harness::http::Http::new(Duration::from_secs(10));
    let page = http.get(&format!("{worker}/metrics")).await.unwrap();
    let page = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.contains("mcp_tasks_worker_slots 3"), "{page}");
    // The call that it prints is one.
    let text = dev.text();
    let call = text.split("\n\n").find(|part| part.starts_with("curl"));
    let mut shell = Command::new("bash");
    let (good, answer) = told(&shell.args(["-c", call.unwrap()]).output().unwrap());
    assert!(
        good && answer.contains("\"resultType\":\"task\""),
        "{answer}"
    );
}
