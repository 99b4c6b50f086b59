//! What reads bytes of strangers, and what must hold whatever they are: one function a target, which
//! panics when something does not hold.
//!
//! Two runners share them: `cargo test -p mcp-tasks-fuzz` (corpora, then random bytes, on stable, a
//! part of `make test`) and libFuzzer (`make fuzz`, guided by coverage). `fuzz/` is laid out as
//! cargo-fuzz wants it. Corpora are in `corpus/<target>`; what once failed stays there.
//!
//! Architecture invariant: nothing links this crate.

mod headers;
mod http_entry;
mod json;
mod jsonrpc;
mod lines;
mod sealed;
mod sse;
mod template;
mod tokens;
mod tools_file;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and its corpus'.
    pub name: &'static str,
    /// Reads bytes; panics when what must hold does not.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "callback_bodies",
        run: sealed::callback_body,
    },
    Target {
        name: "digests",
        run: json::digests,
    },
    Target {
        name: "headers",
        run: headers::run,
    },
    Target {
        name: "http_entry",
        run: http_entry::run,
    },
    Target {
        name: "jsonrpc",
        run: jsonrpc::run,
    },
    Target {
        name: "lines",
        run: lines::run,
    },
    Target {
        name: "sealed",
        run: sealed::run,
    },
    Target {
        name: "sse",
        run: sse::run,
    },
    Target {
        name: "template",
        run: template::uri,
    },
    Target {
        name: "tokens",
        run: tokens::run,
    },
    Target {
        name: "tools_file",
        run: tools_file::run,
    },
    Target {
        name: "upstream_message",
        run: json::upstream_message,
    },
    Target {
        name: "url",
        run: template::url,
    },
];

/// Runs one target by name.
///
/// # Panics
/// If there is none, or what must hold does not.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target of the table").run)(data);
}

/// Pieces of the rest, as long as the first bytes say.
fn pieces(data: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let Some((sizes, rest)) = data.split_at_checked(4) else {
        return (vec![data], data);
    };
    let (mut pieces, mut left, mut at) = (Vec::new(), rest, 0);
    while !left.is_empty() {
        let size = usize::from(sizes[at % sizes.len()] % 32).max(1);
        let (piece, after) = left.split_at(size.min(left.len()));
        pieces.push(piece);
        (left, at) = (after, at + 1);
    }
    (pieces, rest)
}
