//! What a tools file may say of a program.

use super::*;

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
