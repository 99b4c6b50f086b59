//! What a tools file may say of an upstream server.

use super::*;

#[test]
fn every_mistake_in_an_upstream_names_line_and_key() {
    for (more, expected) in [
        ("", "1: upstream \"a\": url, command: exactly one of them"),
        ("url = 3", "3: upstream \"a\": invalid type: integer `3`"),
        ("url = \"a/mcp\"", "3: upstream \"a\": url: "),
        (
            "url = \"http://a/\"\ncolour = 3",
            "4: upstream \"a\": unknown field `colour`",
        ),
        ("url = \"http://a/\"\nrefresh = 3", "4: upstream \"a\": "),
        (
            "url = \"http://a/\"\nrefresh = \"1ms\"",
            "4: upstream \"a\": refresh: ",
        ),
        (
            "url = \"http://a/\"\npolicy = { concurrency = 0 }",
            "4: upstream \"a\": policy.concurrency: concurrency is 0: nothing would ever run",
        ),
        (
            "url = \"http://a/\"\npolicy = { ttl = \"1h\" }",
            "4: upstream \"a\": policy.ttl: ttl 1h is too short",
        ),
        (
            "url = \"http://a/\"\n[upstream.tools.x]\ncolour = 3",
            "5: upstream \"a\": unknown field `colour`, expected `effects`, `hide` or `policy`",
        ),
        (
            "url = \"http://a/\"\n[upstream.tools.x.policy]\nttl = 3",
            "5: upstream \"a\": tools.x.policy.ttl: ",
        ),
        (
            "url = \"http://a/\"\n[upstream.tools.x.policy]\nttl = \"1h\"",
            "5: upstream \"a\": tools.x.policy.ttl: ttl 1h is too short",
        ),
    ] {
        let text = format!("[[upstream]]\nname = \"a\"\n{more}");
        assert_problem(&text, expected);
    }
    let one = "[[upstream]]\nname = \"a\"\nurl = \"http://a/\"\n";
    assert_problem(
        &format!("{one}{one}"),
        "4: upstream \"a\": there is an upstream \"a\" already, on line 1",
    );
}

#[test]
fn an_upstreams_tools_have_policies_in_three_layers() {
    let text = "[defaults]\nwork_limit = \"1m\"\non_lost = \"fail\"\n\
                [[upstream]]\nname = \"a\"\nprefix = \"a_\"\ncommand = [\"./server\"]\ndir = \"sub\"\n\
                policy = { work_limit = \"2m\", tries_max = 2 }\n\
                [upstream.tools.slow]\npolicy = { work_limit = \"3m\" }\nhide = false\n\
                [[upstream]]\nname = \"b\"\nurl = \"http://b/\"\n";
    let file = read(text, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let wanted = &file.upstreams[0].wanted;
    assert_eq!(wanted.config.dir.as_deref(), Some(Path::new("/sub")));
    assert_eq!(wanted.config.command.as_ref().unwrap()[0], "/./server");
    let adjusted = |name: &str| {
        let definition = worker::Definition::new(name, &serde_json::json!({"type": "object"}));
        let mut spec = worker::ToolSpec::new(definition);
        (wanted.adjust)("a", &mut spec);
        (
            spec.policy.work_limit.as_secs(),
            spec.policy.tries_max,
            spec.policy.on_lost,
        )
    };
    assert_eq!(adjusted("a_slow"), (180, 2, worker::OnLost::Fail));
    assert_eq!(adjusted("a_other"), (120, 2, worker::OnLost::Fail));
    let from = |name: &str| {
        let policy = file.policy(name).unwrap();
        let row = policy
            .values
            .iter()
            .find(|row| row.key == "work_limit")
            .unwrap();
        (policy.source, policy.line, row.from, row.line)
    };
    assert_eq!(from("a_slow"), ("upstream", 4, From::Tool, Some(11)));
    assert_eq!(from("a_other"), ("upstream", 4, From::Source, Some(9)));
    assert_eq!(from("x"), ("upstream", 13, From::Defaults, Some(2)));
}

/// Both kinds of program begin where the file is.
#[test]
fn an_upstreams_command_runs_in_the_files_folder() {
    let text = "[[upstream]]\nname = \"a\"\ncommand = [\"sh\", \"server.sh\"]\n\
                [[upstream]]\nname = \"b\"\nurl = \"http://b/\"\n";
    let file = read(text, Path::new("/etc")).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let dir = |at: usize| file.upstreams[at].wanted.config.dir.clone();
    assert_eq!(dir(0).as_deref(), Some(Path::new("/etc/")));
    assert_eq!(dir(1), None);
    assert!(file.missing.is_empty(), "{:?}", file.missing);
}

/// A server that lacks something costs its own tools: the file is served, and the check says it.
#[test]
fn what_an_upstream_lacks_is_told() {
    let lacks = |more: &str| {
        let text = format!("[[upstream]]\nname = \"a\"\n{more}");
        let file = read(&text, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let said = file.missing.iter().map(|one| one.of(Path::new("f")));
        said.collect::<Vec<String>>()
    };
    for (more, expected) in [
        (
            "command = [\"no-such-prog\"]",
            "f:3: upstream \"a\": command: no-such-prog is not on the PATH",
        ),
        (
            "command = [\"./no-such\"]",
            "f:3: upstream \"a\": command: /./no-such does not exist",
        ),
        (
            "command = [\"sh\"]\ndir = \"no-such\"",
            "f:4: upstream \"a\": dir: /no-such is no folder",
        ),
        (
            "url = \"http://a/\"\nbearer_file = \"/none\"",
            "f:4: upstream \"a\": bearer_file: /none: No such file",
        ),
        (
            "url = \"https://a/\"\nca_file = \"/none\"",
            "f:4: upstream \"a\": ca_file: /none: No such file",
        ),
        (
            "url = \"https://a/\"\n[upstream.oauth]\ntoken_url = \"https://t/\"\nclient_id = \"c\"\n\
             client_secret_file = \"/none\"",
            "f:4: upstream \"a\": oauth.client_secret_file: /none: No such file",
        ),
    ] {
        let said = lacks(more);
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{more}: {said:#?}"
        );
    }
    assert!(lacks("command = [\"no-such\"]\nenv = { PATH = \"/opt\" }").is_empty());
}

/// Hidden it would break what a server says, and shown it is no secret any more: what to do is told.
#[test]
fn a_secret_that_is_too_short_to_be_hidden_is_noted() {
    let temp = tempfile::tempdir().unwrap();
    for (name, secret) in [("short", "1234567 \n"), ("long", "12345678\n")] {
        std::fs::write(temp.path().join(name), secret).unwrap();
    }
    let notes = |text: &str| {
        let file = read(text, temp.path()).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert!(file.missing.is_empty(), "{:?}", file.missing);
        let notes = file.notes.iter().map(|note| note.of(Path::new("f")));
        notes.collect::<Vec<String>>()
    };
    let upstream = "[[upstream]]\nname = \"a\"\nurl = \"http://a/\"\n";
    let http = "[[http]]\nname = \"a\"\nurl = \"http://a/\"\ndescription = \"A.\"\n";
    for (section, key, expected) in [
        (
            upstream,
            "bearer_file = \"FILE\"",
            "f:4: upstream \"a\": bearer_file: ",
        ),
        (
            upstream,
            "secret_headers = { X-K = \"FILE\" }",
            "f:4: upstream \"a\": secret_headers: ",
        ),
        (
            upstream,
            "oauth = { token_url = \"https://t/\", client_id = \"c\", client_secret_file = \"FILE\" }",
            "f:4: upstream \"a\": oauth.client_secret_file: ",
        ),
        (
            http,
            "bearer_file = \"FILE\"",
            "f:5: http \"a\": bearer_file: ",
        ),
        (
            http,
            "secret_headers = { X-K = \"FILE\" }",
            "f:5: http \"a\": secret_headers: ",
        ),
    ] {
        let said = notes(&format!("{section}{}", key.replace("FILE", "short")));
        assert!(
            said.len() == 1 && said[0].starts_with(expected) && said[0].contains("8 bytes"),
            "{key}: {said:#?}"
        );
        assert!(!said[0].contains("1234567"), "{said:#?}");
        let said = notes(&format!("{section}{}", key.replace("FILE", "long")));
        assert!(said.is_empty(), "{said:#?}");
    }
}
