//! Pages for people: commands are run by a test or say why not, and every page is in the index.

use mcp_tasks_tidy::{files, root, shown, text};

/// What blocks hold that are no commands.
const NO_COMMANDS: &[&str] = &[
    "http", "ini", "json", "mermaid", "promql", "python", "rust", "sql", "text", "toml", "yaml",
];
/// What holds commands, as `.ci/docs` runs them.
const COMMANDS: &[&str] = &["", "bash", "console", "sh"];

/// Blocks of a page: what stands right above, the language, the first line and the text.
fn blocks(page: &str) -> Vec<(usize, &str, &str, String)> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let bare = lines[at].trim_start();
        if let Some(language) = bare.strip_prefix("```") {
            let above = if at == 0 { "" } else { lines[at - 1].trim() };
            let body = lines[at + 1..].iter();
            let body: Vec<&str> = body
                .take_while(|line| !line.trim_start().starts_with("```"))
                .copied()
                .collect();
            let end = at + 1 + body.len();
            found.push((at + 1, above, language.trim(), body.join("\n")));
            at = end;
        }
        at += 1;
    }
    found
}

#[test]
fn every_command_is_run_or_says_why_not() {
    let mut count = 0;
    for file in files(&root(), ".md") {
        let page = text(&file);
        for (line, above, language, body) in blocks(&page) {
            let place = format!("{}:{line}", shown(&file));
            // Drawings have no language; what is typed begins with a prompt there.
            let is_command = match language {
                "" => body.lines().any(|line| line.starts_with("$ ")),
                other => COMMANDS.contains(&other),
            };
            assert!(
                is_command || language.is_empty() || NO_COMMANDS.contains(&language),
                "{place}: a block of {language:?}: say sh, console, or what else it is"
            );
            let run = above == "<!-- run -->" || above.starts_with("<!-- run: ");
            let reason = above
                .strip_prefix("<!-- not run: ")
                .and_then(|rest| rest.strip_suffix(" -->"));
            if !is_command {
                assert!(!run && reason.is_none(), "{place}: nothing to run here");
                continue;
            }
            count += 1;
            assert!(
                run || reason.is_some_and(|reason| reason.len() >= 5),
                "{place}: commands that nothing runs. Write `<!-- run -->` right above the block, and \
                 `.ci/docs` runs it against a stack of its own (`<!-- run: `text` -->`: and looks for \
                 that in what it prints), or `<!-- not run: why -->`"
            );
        }
    }
    assert!(count >= 15, "only {count} blocks of commands");
}

#[test]
fn every_page_is_in_the_index() {
    let index = text(&root().join("docs/index.md"));
    for entry in std::fs::read_dir(root().join("docs")).expect("docs can be read") {
        let name = entry.expect("docs can be read").file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".md") && name != "index.md" {
            let link = [format!("]({name})"), format!("]({name}#")];
            assert!(
                link.iter().any(|link| index.contains(link)),
                "docs/index.md leads nobody to docs/{name}: add it where its reader looks"
            );
        }
    }
}

/// Places within pages are found by what their headings are called.
#[test]
fn links_into_pages_lead_to_headings() {
    let anchor = |heading: &str| -> String {
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    for file in files(&root(), ".md") {
        let page = text(&file);
        let links = page.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let Some((target, place)) = link.split_once('#') else {
                continue;
            };
            if target.contains("://") || place.is_empty() {
                continue;
            }
            let dir = file.parent().expect("a file lies in a folder");
            let other = if target.is_empty() {
                page.clone()
            } else {
                text(&dir.join(target))
            };
            let headings = other.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
            assert!(
                anchors.any(|found| found == place),
                "{}: {link}: no heading is called so",
                shown(&file)
            );
        }
    }
}
