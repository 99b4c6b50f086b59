//! What a tools file may say, and how it is told what is wrong.

use std::path::Path;

use super::*;

fn folder() -> &'static Path {
    Path::new("/")
}

/// The problems of a text, as `line: key: problem`.
fn problems(text: &str) -> Vec<String> {
    let Err(problems) = read(text, folder()) else {
        return Vec::new();
    };
    problems
        .into_iter()
        .map(|Problem { line, key, problem }| format!("{line}: {key}: {problem}"))
        .collect()
}

#[track_caller]
fn assert_problem(text: &str, expected: &str) {
    let found = problems(text);
    assert!(
        found.len() == 1 && found[0].starts_with(expected),
        "{text}\nexpected: {expected}\nfound: {found:#?}"
    );
}

/// A command that works, on line 1 to 4, and what else it says.
fn with(more: &str) -> String {
    format!("[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"sh\"\n{more}")
}

#[test]
fn ten_lines_are_enough() {
    let file = r#"
[[command]]
name = "greet"
description = "Greets somebody."
program = "echo"
arguments = ["Hello,"]
positional = ["name"]
input_schema = { type = "object", properties = { name = { type = "string" } }, required = ["name"] }
"#;
    let file = read(file, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(file.tools.len(), 1);
    let tool = &file.tools[0];
    assert_eq!(
        (tool.name.as_str(), tool.source, tool.line),
        ("greet", "command", 2)
    );
    assert!(tool.policy.iter().all(|row| row.from == From::Default));
    let spec = tool.tool.spec();
    assert_eq!(spec.policy, worker::ToolPolicy::default());
    assert!(spec.definition.input_schema.get().contains("\"name\""));
}

#[test]
fn an_empty_file_serves_nothing() {
    assert!(read("", folder()).is_ok_and(|file| file.tools.is_empty()));
}

#[test]
fn every_kind_of_mistake_names_line_and_key() {
    for (text, expected) in [
        (
            "x = 1",
            "1: x: unknown; allowed: defaults, command, http, upstream",
        ),
        ("defaults = 3", "1: defaults: is no table"),
        (
            "[command]\nname = \"a\"",
            "1: command: write [[command]], with two brackets",
        ),
        ("command = [3]", "1: command: is no [[command]] section"),
        (
            "[defaults]\nwork = \"5m\"",
            "2: defaults.work: unknown; allowed: task_support",
        ),
        (
            "[defaults]\nwork_limit = 5",
            "2: defaults.work_limit: invalid type: integer `5`",
        ),
        ("[defaults]\nwork_limit = \"5\"", "2: defaults.work_limit: "),
        ("[defaults]\nttl = 7", "2: defaults.ttl: "),
        ("[defaults]\ntries_max = -1", "2: defaults.tries_max: "),
        ("[defaults]\ntries_max = 70000", "2: defaults.tries_max: "),
        (
            "[defaults]\non_lost = \"repeat\"",
            "2: defaults.on_lost: unknown variant `repeat`",
        ),
        (
            "[defaults]\nbackoff = { first = \"1s\", least = \"1s\" }",
            "2: defaults.backoff.least: unknown",
        ),
        ("[defaults.backoff]\nmax = 3", "2: defaults.backoff.max: "),
        (
            "[defaults]\nbackoff = \"1s\"",
            "2: defaults.backoff: unknown",
        ),
        (
            "[defaults]\nconcurrency = \"3\"",
            "2: defaults.concurrency: invalid type: string \"3\"",
        ),
        (
            "[defaults]\nqueue = 3",
            "2: defaults.queue: invalid type: integer `3`",
        ),
        (
            "[defaults]\npriority = 40000",
            "2: defaults.priority: invalid value: integer `40000`",
        ),
        (
            "[defaults]\nscopes = \"a\"",
            "2: defaults.scopes: invalid type: string \"a\"",
        ),
        ("[defaults]\ncall_limit = 5", "2: defaults.call_limit: "),
        (
            "[defaults]\ndefault_answers = \"decline\"",
            "2: defaults.default_answers: invalid type",
        ),
    ] {
        assert_problem(text, expected);
    }
}

#[test]
fn every_mistake_in_a_command_names_line_and_key() {
    for (more, expected) in [
        (
            "colour = 3",
            "5: command \"a\": colour: unknown; allowed: name, title",
        ),
        (
            "title = 3",
            "5: command \"a\": title: invalid type: integer `3`, expected a string; allowed: a text",
        ),
        (
            "arguments = \"-l\"",
            "5: command \"a\": arguments: invalid type",
        ),
        (
            "arguments = [\"-l\", 3]",
            "5: command \"a\": arguments: invalid type: integer `3`",
        ),
        (
            "version = 0",
            "5: command \"a\": version: must be at least 1",
        ),
        (
            "version = \"one\"",
            "5: command \"a\": version: invalid type",
        ),
        (
            "input_schema = 3",
            "5: command \"a\": input_schema: is no JSON Schema: it is no object",
        ),
        (
            "input_schema = \"{\"",
            "5: command \"a\": input_schema: is no JSON: ",
        ),
        (
            "input_schema = { type = \"array\" }",
            "5: command \"a\": input_schema: tool a: inputSchema must have the type object",
        ),
        (
            "input_schema = { type = \"object\", required = 3 }",
            "5: command \"a\": input_schema: is no JSON Schema: ",
        ),
        (
            "output_schema = { type = \"thing\" }",
            "5: command \"a\": output_schema: is no JSON Schema: ",
        ),
        (
            "output = \"yaml\"",
            "5: command \"a\": output: allowed: \"text\" or \"json\"",
        ),
        (
            "output_schema = { type = \"object\" }\noutput = \"text\"",
            "6: command \"a\": output: must be \"json\"",
        ),
        (
            "protocol = \"fd4\"",
            "5: command \"a\": protocol: allowed: ",
        ),
        (
            "protocol = \"fd3\"\nstdin = false",
            "6: command \"a\": stdin: must be true",
        ),
        ("effects = \"many\"", "5: command \"a\": effects: allowed: "),
        (
            "annotations = { readonly = true }",
            "5: command \"a\": annotations.readonly: unknown; allowed: title, readOnlyHint",
        ),
        (
            "dir = \"/no/such/folder\"",
            "5: command \"a\": dir: /no/such/folder is no folder",
        ),
        (
            "flags = { x = \"--x\" }",
            "5: command \"a\": flags: \"x\" is no property of input_schema; it has none",
        ),
        (
            "positional = [\"x\"]",
            "5: command \"a\": positional: \"x\" is no property of input_schema; it has none",
        ),
        (
            "input_schema = { type = \"object\", properties = { x = {} } }\nflags = { x = \"x\" }",
            "6: command \"a\": flags: \"x\" is no flag",
        ),
        (
            "input_schema = { type = \"object\", properties = { x = {} } }\nflags = { x = \"-x y\" }",
            "6: command \"a\": flags: \"-x y\" is no flag",
        ),
        (
            "env = { \"A=B\" = \"c\" }",
            "5: command \"a\": env: \"A=B\" is no name",
        ),
        (
            "env = { MCP_TASKS_ATTEMPT = \"3\" }",
            "5: command \"a\": env: MCP_TASKS_ATTEMPT is set by the worker",
        ),
        (
            "env_pass = [\"\"]",
            "5: command \"a\": env_pass: \"\" is no name",
        ),
        (
            "secret_env = { TOKEN = \"/no/such/file\" }",
            "5: command \"a\": secret_env: TOKEN: /no/such/file: ",
        ),
        ("grace = 3", "5: command \"a\": grace: "),
        (
            "memory_bytes_max = 1000",
            "5: command \"a\": memory_bytes_max: must be at least 1048576",
        ),
        (
            "output_bytes_max = -1",
            "5: command \"a\": output_bytes_max: ",
        ),
        (
            "retry_exit_codes = [0]",
            "5: command \"a\": retry_exit_codes: 0 is success",
        ),
        (
            "retry_exit_codes = [300]",
            "5: command \"a\": retry_exit_codes: ",
        ),
        ("policy = 3", "5: command \"a\": policy: is no table"),
        (
            "[command.policy]\nttl = \"2h\"",
            "6: command \"a\": policy.ttl: ttl 2h is too short: queue_wait 1h + tries_max 5",
        ),
        (
            "[command.policy]\ntries_max = 0",
            "6: command \"a\": policy.tries_max: tries_max is 0",
        ),
        (
            "[command.policy]\nscopes = [3]",
            "6: command \"a\": policy.scopes: invalid type: integer `3`",
        ),
        (
            "[command.policy]\ncall_limit = \"0s\"",
            "6: command \"a\": policy.call_limit: call_limit must be above 0",
        ),
        (
            "[command.policy]\ninput_deadline = \"0s\"",
            "6: command \"a\": policy.input_deadline: input_deadline must be above 0",
        ),
        (
            "[command.policy.default_answers]\nsure = 3",
            "6: command \"a\": policy.default_answers: default_answers.sure is 3; allowed: ",
        ),
        (
            "[command.policy.default_answers]\n\"*\" = { sure = true }",
            "6: command \"a\": policy.default_answers: default_answers.\"*\" is ",
        ),
        (
            "[command.policy]\nwork_limit = \"20h\"\ninput_deadline = \"30days\"\ntries_max = 1",
            "1: command \"a\": policy.ttl_max: ttl_max ",
        ),
        (
            "[command.policy]\npoll_min = \"1m\"\npoll_max = \"1s\"",
            "6: command \"a\": policy.poll_min: poll_min 60s is longer than poll_max 1s",
        ),
        (
            "[command.policy]\nidempotency_key_argument = \"id\"",
            "5: command \"a\": policy.idempotency_key_argument: \"id\" is no property",
        ),
    ] {
        assert_problem(&with(more), expected);
    }
    for (text, expected) in [
        (
            "[[command]]\ndescription = \"A.\"\nprogram = \"sh\"",
            "1: command[0]: name: is missing: 1 to 128",
        ),
        (
            "[[command]]\nname = \"a b\"\ndescription = \"A.\"\nprogram = \"sh\"",
            "2: command \"a b\": name: tool name `a b` must be",
        ),
        (
            "[[command]]\nname = \"a\"\nprogram = \"sh\"",
            "1: command \"a\": description: is missing",
        ),
        (
            "[[command]]\nname = \"a\"\ndescription = \"A.\"",
            "1: command \"a\": program: is missing",
        ),
        (
            "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"no-such\"",
            "4: command \"a\": program: no-such is not on the PATH",
        ),
        (
            "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"no/such\"",
            "4: command \"a\": program: /no/such does not exist",
        ),
        (
            "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"/etc/passwd\"",
            "4: command \"a\": program: /etc/passwd is no executable file",
        ),
    ] {
        assert_problem(text, expected);
    }
}

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

/// The value of `effects`, and where it is said.
fn effects(file: &ToolsFile, name: &str) -> (String, From, Option<usize>) {
    let policy = file.policy(name).unwrap();
    let row = policy.values.iter().find(|row| row.key == "effects");
    let row = row.unwrap();
    (row.value.as_str().unwrap().to_owned(), row.from, row.line)
}

#[test]
fn what_a_call_does_is_shown_with_its_policy() {
    let of = |more: &str| {
        let file = read(&with(more), folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
        effects(&file, "a")
    };
    assert_eq!(of(""), ("once".to_owned(), From::Default, None));
    let said = ("repeatable".to_owned(), From::Tool, Some(5));
    assert_eq!(of("effects = \"repeatable\""), said);
    let hinted = ("none".to_owned(), From::Tool, Some(5));
    assert_eq!(of("annotations = { readOnlyHint = true }"), hinted);
    let text = "[[upstream]]\nname = \"a\"\nprefix = \"a_\"\nurl = \"http://a/\"\neffects = \"none\"\n\
                [upstream.tools.pay]\neffects = \"once\"\n\
                [[upstream]]\nname = \"b\"\nurl = \"http://b/\"\n";
    let file = read(text, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let other = ("none".to_owned(), From::Source, Some(5));
    assert_eq!(effects(&file, "a_other"), other);
    let pay = ("once".to_owned(), From::Tool, Some(7));
    assert_eq!(effects(&file, "a_pay"), pay);
    let unsaid = ("by_hints".to_owned(), From::Default, None);
    assert_eq!(effects(&file, "x"), unsaid);
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

#[test]
fn a_script_is_told_what_its_first_argument_is() {
    let temp = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = temp.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("sh", "#!/bin/sh -e\necho $1\n");
    script("py", "#!/usr/bin/env python3\n");
    script("other", "#!/usr/bin/node\n");
    let notes = |program: &str, more: &str| {
        let text = format!(
            "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"./{program}\"\n\
             positional = [\"who\"]\n{more}\n[command.input_schema]\ntype = \"object\"\n\
             [command.input_schema.properties.who]\ntype = \"string\"\n"
        );
        let file = read(&text, temp.path()).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let notes = file.notes.iter().map(|note| note.of(Path::new("f")));
        notes.collect::<Vec<String>>()
    };
    let said = "f:5: command \"a\": positional: the program is a script of";
    let of_sh = notes("sh", "");
    assert!(
        of_sh.len() == 1 && of_sh[0].starts_with(&format!("{said} sh")),
        "{of_sh:?}"
    );
    assert!(notes("py", "")[0].starts_with(&format!("{said} python3")));
    assert!(notes("other", "").is_empty());
    assert!(notes("sh", "separator = \"\"").is_empty());
}

#[test]
fn every_mistake_in_a_policy_is_told() {
    let found = problems(&with("policy = { priority = 200, queue = \"a b\" }"));
    assert_eq!(found.len(), 2, "{found:?}");
    for key in ["policy.priority", "policy.queue"] {
        assert!(found.iter().any(|one| one.contains(key)), "{found:?}");
    }
}

#[test]
fn names_are_used_once() {
    let twice = format!("{}\n{}", with(""), with(""));
    assert_problem(
        &twice,
        "6: command \"a\": there is a tool \"a\" already, on line 1",
    );
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_their_lines() {
    let text =
        "[defaults]\nwork = \"a\"\nttl = 3\n\n[[command]]\nname = \"a\"\ncolour = 1\n\n[[https]]\n";
    let found = problems(text);
    let lines: Vec<&str> = found.iter().map(|p| p.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["2", "3", "5", "5", "7", "9"], "{found:#?}");
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let found = problems("[defaults]\nttl = \n[[command]]\nname = \"a\nprogram");
    assert!(found.iter().any(|p| p.starts_with("2: ")), "{found:#?}");
    assert!(found.iter().any(|p| p.starts_with("4: ")), "{found:#?}");
    assert_problem(
        "defaults = {}\ndefaults = {}\n",
        "2: : is no TOML: duplicate key",
    );
}

#[test]
fn a_setting_wrong_for_all_is_told_where_it_was_set_and_once() {
    let second = with("").replace("\"a\"", "\"b\"");
    let text = format!("[defaults]\nttl = \"1h\"\n{}{second}", with(""));
    let found = problems(&text);
    let at_defaults = found.iter().all(|p| p.starts_with("2: command "));
    assert!(at_defaults && found.len() == 2, "{found:#?}");
}

#[test]
fn layers_lie_over_each_other_and_say_so() {
    let text = format!(
        "[defaults]\nwork_limit = \"5m\"\nttl_max = \"none\"\nbackoff = {{ first = \"3s\" }}\n{}",
        with("[command.policy]\nwork_limit = \"10m\"\non_lost = \"fail\"\n")
    );
    let file = read(&text, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let policy = file.tools[0].tool.spec().policy;
    assert_eq!(policy.work_limit.as_secs(), 600);
    assert_eq!(policy.on_lost, worker::OnLost::Fail);
    assert_eq!(policy.ttl_max, None);
    assert_eq!(policy.backoff.first.as_secs(), 3);
    assert_eq!(policy.backoff.max.as_secs(), 60);
    let row = |key: &str| {
        let row = file.tools[0].policy.iter().find(|row| row.key == key);
        let row = row.unwrap();
        (row.value.to_string(), row.from, row.line)
    };
    assert_eq!(
        row("work_limit"),
        ("\"10m\"".to_owned(), From::Tool, Some(10))
    );
    assert_eq!(
        row("on_lost"),
        ("\"fail\"".to_owned(), From::Tool, Some(11))
    );
    assert_eq!(row("ttl_max"), ("null".to_owned(), From::Defaults, Some(3)));
    assert_eq!(
        row("backoff.first"),
        ("\"3s\"".to_owned(), From::Defaults, Some(4))
    );
    assert_eq!(
        row("backoff.max"),
        ("\"1m\"".to_owned(), From::Default, None)
    );
}

/// What is written after the act must be kept, or nobody knows what came of it.
#[test]
fn outputs_fit_what_the_worker_keeps() {
    let limits = |step_bytes_max, result_bytes_max| Limits {
        step_bytes_max,
        result_bytes_max,
    };
    let problems = |text: &str, limits: Limits| -> Vec<String> {
        let file = read(text, folder()).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let problems = limits.problems(&file.written).into_iter();
        problems
            .map(|Problem { line, key, problem }| format!("{line}: {key}: {problem}"))
            .collect()
    };
    let plain = with("");
    assert_eq!(problems(&plain, limits(262_144, 1)), [""; 0]);
    let told = problems(&plain, limits(262_143, 1));
    assert!(
        told.len() == 1
            && told[0].starts_with(
                "1: command \"a\": output_bytes_max: 262144 is more than worker.step_bytes_max (262143)"
            ),
        "{told:?}"
    );
    let large = with("title = \"A\"\noutput_bytes_max = 5000000");
    let told = problems(&large, limits(1_048_576, 8_000_000));
    assert!(
        told.len() == 1 && told[0].starts_with("6: command \"a\": "),
        "{told:?}"
    );
    // What has no step, or says its result itself, keeps nothing of it in the journal.
    for more in ["effects = \"none\"", "protocol = \"fd3\""] {
        let free = format!("{large}\n{more}");
        assert_eq!(problems(&free, limits(1_000, 8_000_000)), [""; 0], "{more}");
        let told = problems(&free, limits(1_000, 4_000_000));
        assert!(told[0].contains("may have (4000000)"), "{told:?}");
        let own = format!("{free}\npolicy = {{ result_bytes_max = 4000 }}");
        assert!(problems(&own, limits(1_000, 8_000_000))[0].contains("(4000)"));
    }
}

/// Hundreds of broken texts: something is told or it is served, and nothing panics.
#[test]
fn a_file_cut_anywhere_is_told_or_read() {
    let text = with("flags = { }\n[command.policy]\nttl = \"2days\"\nbackoff = { max = \"1m\" }\n");
    for end in 0..text.len() {
        let _ = problems(&text[..end]);
        let _ = problems(&text[end..]);
    }
    for at in 0..text.len() {
        for byte in ["\"", "[", "=", "\u{0}", "3"] {
            let mut text = text.clone();
            text.replace_range(at..=at, byte);
            let _ = problems(&text);
        }
    }
}

/// The tables of the page are written from those that files are read by: with `WRITE_DOCS` set,
/// this writes them.
#[test]
fn the_page_has_all_keys() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools-file.md");
    let old = std::fs::read_to_string(path).unwrap();
    let mut page = old.clone();
    for (name, table) in reference() {
        let (head, rest) = page
            .split_once(&format!("<!-- keys: {name} -->\n"))
            .unwrap();
        let (_, tail) = rest.split_once("<!-- end -->").unwrap();
        page = format!("{head}<!-- keys: {name} -->\n{table}<!-- end -->{tail}");
    }
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        page == old,
        "docs/tools-file.md was stale: WRITE_DOCS=1 cargo test -p mcp-tasks-tools the_page"
    );
}
