//! Policies and effects: what they are, and where it is said.

use super::*;

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

#[test]
fn every_mistake_in_a_policy_is_told() {
    let found = problems(&with("policy = { priority = 200, queue = \"a b\" }"));
    assert_eq!(found.len(), 2, "{found:?}");
    for key in ["policy.priority", "policy.queue"] {
        assert!(found.iter().any(|one| one.contains(key)), "{found:?}");
    }
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
