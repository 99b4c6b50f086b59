//! Who may depend on whom, and which library belongs to which crate.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Ours: a crate and what it may use of ours in the product.
const OURS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("telemetry", &[]),
    ("store", &["protocol", "telemetry"]),
    ("queue", &["protocol", "telemetry"]),
    ("gateway", &["protocol", "store", "queue", "telemetry"]),
    ("worker", &["protocol", "store", "queue", "telemetry"]),
    ("tools", &["worker", "protocol"]),
    ("fixtures", &["worker", "protocol"]),
    ("cron", &["protocol", "store", "queue", "telemetry"]),
    (
        "fuzz",
        &[
            "protocol",
            "gateway",
            "tools",
            "store",
            "queue",
            "telemetry",
        ],
    ),
    ("harness", &["protocol"]),
    ("tidy", &[]),
];

/// Walls: a library and the crates that may use it in the product.
const WALLS: &[(&str, &[&str])] = &[
    ("tokio-postgres", &["store", "harness"]),
    ("tokio-postgres-rustls", &["store"]),
    ("deadpool-postgres", &["store"]),
    ("redis", &["queue", "harness"]),
    ("hyper", &["gateway", "telemetry", "harness"]),
    ("hyper-rustls", &["cron", "gateway", "tools"]),
    ("jsonschema", &["gateway", "tools"]),
    ("rmcp", &[]),
    ("tower", &["gateway"]),
    ("tower-http", &["gateway"]),
    ("prometheus", &["telemetry"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
    ("opentelemetry-otlp", &["telemetry"]),
    ("tracing-opentelemetry", &["telemetry"]),
    ("clap", &["mcp-tasks"]),
];

fn product_dependencies() -> BTreeMap<String, Vec<String>> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    let short = |name: &str| name.strip_prefix("mcp-tasks-").unwrap_or(name).to_owned();
    metadata
        .packages
        .iter()
        .map(|package| {
            let used = package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind == DependencyKind::Normal)
                .map(|dependency| short(&dependency.name))
                .collect();
            (short(&package.name), used)
        })
        .collect()
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let all = product_dependencies();
    for (name, used) in &all {
        let Some((_, allowed)) = OURS.iter().find(|(ours, _)| ours == name) else {
            assert!(
                ["mcp-tasks", "loadtest"].contains(&name.as_str()),
                "{name}: add it to the table of crates"
            );
            continue;
        };
        for dependency in used.iter().filter(|used| all.contains_key(*used)) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}; it may use {allowed:?}"
            );
        }
    }
}

#[test]
fn libraries_stay_behind_their_walls() {
    for (name, used) in product_dependencies() {
        for (library, allowed) in WALLS {
            assert!(
                !used.iter().any(|used| used == library)
                    || allowed.contains(&name.as_str())
                    || name == "loadtest",
                "{name} must not use {library}; only {allowed:?} may"
            );
        }
    }
}

#[test]
fn there_are_no_cargo_features_of_ours() {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    for package in &metadata.packages {
        assert!(
            package.features.is_empty(),
            "{}: no cargo features",
            package.name
        );
    }
}

/// Where a request of ours may go is decided here and not by a library: each of these follows redirects
/// by itself, to wherever an answer says.
#[test]
fn no_client_follows_redirects_by_itself() {
    let clients = [
        "reqwest",
        "ureq",
        "curl",
        "isahc",
        "surf",
        "attohttpc",
        "minreq",
    ];
    for (name, dependencies) in product_dependencies() {
        let found = dependencies
            .iter()
            .find(|dependency| clients.contains(&dependency.as_str()));
        assert_eq!(found, None, "{name}");
    }
}
