//! What a tools file may say, and how it is told what is wrong.

use std::path::Path;

use super::*;

mod command;
mod policy;
mod upstream;

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
