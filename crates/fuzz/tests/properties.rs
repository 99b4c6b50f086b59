//! The short run: every file of the corpora, then changes of them and bytes at random, the same ones
//! each time. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` ask for others; what fails is kept in
//! `tests/properties.proptest-regressions` and belongs into the target's corpus.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use mcp_tasks_fuzz::{TARGETS, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner};

/// Inputs of each target.
const CASES: u32 = 1_500;
/// Of those that take longer: an exchange over a socket, ciphers and regular expressions without an
/// optimiser.
const CASES_OF_SLOW_ONES: u32 = 300;
const SLOW_ONES: [&str; 3] = ["http_entry", "sealed", "template"];
const SEED: u64 = 1;

/// What parsers stumble over.
const WORDS: &[&str] = &[
    "\0",
    "\n",
    "\r\n",
    "\r",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "1e999",
    "-0",
    "18446744073709551616",
    "\u{feff}",
    "=?base64?",
    "?=",
    "{}",
    "{+x}",
    "..",
    "%00",
    "%2e",
    "\"id\":null",
    "\"_meta\":{}",
    "\"jsonrpc\":\"2.0\"",
    "data: ",
    "id: ",
    "[[command]]",
    "policy",
    "=",
    "\u{202e}",
    "Content-Length: 2\r\n",
    "Transfer-Encoding: chunked\r\n",
    "HTTP/1.1",
    "2026-07-28",
];

/// One change of an input.
#[derive(Clone, Debug)]
enum Edit {
    Flip(usize, u8),
    Word(usize, usize),
    Bytes(usize, Vec<u8>),
    Cut(usize, usize),
    Repeat(usize, usize),
    Join(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<usize>();
    prop_oneof![
        (place, 1..=u8::MAX).prop_map(|(at, bits)| Edit::Flip(at, bits)),
        (place, 0..WORDS.len()).prop_map(|(at, word)| Edit::Word(at, word)),
        (place, prop::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Edit::Bytes(at, bytes)),
        (place, 1..32_usize).prop_map(|(at, length)| Edit::Cut(at, length)),
        (place, 1..32_usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
        place.prop_map(Edit::Join),
    ]
}

fn apply(data: &mut Vec<u8>, edit: &Edit, corpus: &[Vec<u8>]) {
    let end = data.len();
    let within = |at: &usize| at % (end + 1);
    let span = |at: &usize, length: &usize| {
        let from = within(at);
        from..(from + length).min(end)
    };
    match edit {
        Edit::Flip(at, bits) => {
            if let Some(byte) = data.get_mut(within(at)) {
                *byte ^= bits;
            }
        }
        Edit::Word(at, word) => drop(data.splice(within(at)..within(at), WORDS[*word].bytes())),
        Edit::Bytes(at, bytes) => drop(data.splice(within(at)..within(at), bytes.iter().copied())),
        Edit::Cut(at, length) => drop(data.drain(span(at, length))),
        Edit::Repeat(at, length) => {
            let again = data[span(at, length)].to_vec();
            drop(data.splice(within(at)..within(at), again));
        }
        Edit::Join(at) => data.extend_from_slice(&corpus[at % corpus.len()]),
    }
}

fn input(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed = (any::<usize>(), prop::collection::vec(edit(), 0..6));
    let changed = changed.prop_map(move |(at, edits)| {
        let mut data = corpus[at % corpus.len()].clone();
        for edit in &edits {
            apply(&mut data, edit, &corpus);
        }
        data
    });
    prop_oneof![
        4 => changed,
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name)
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(folder(target)).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

#[test]
fn every_target_has_a_corpus_and_a_program_for_libfuzzer() {
    let manifest = include_str!("../fuzz/Cargo.toml");
    for target in TARGETS {
        assert!(corpus(target).len() >= 5, "{}", target.name);
        let named = format!("name = \"{}\"", target.name);
        assert!(manifest.contains(&named), "{}", target.name);
    }
    let programs = manifest.matches("[[bin]]").count();
    assert_eq!(programs, TARGETS.len());
}

#[test]
fn corpora_hold() {
    for target in TARGETS {
        for data in corpus(target) {
            (target.run)(&data);
        }
    }
}

#[test]
fn what_must_hold_does() {
    for target in TARGETS {
        let asked = Config::default();
        let is_slow = SLOW_ONES.contains(&target.name);
        let usual = if is_slow { CASES_OF_SLOW_ONES } else { CASES };
        let config = Config {
            cases: if asked.cases == 256 {
                usual
            } else {
                asked.cases
            },
            rng_seed: match asked.rng_seed {
                RngSeed::Random => RngSeed::Fixed(SEED),
                fixed @ RngSeed::Fixed(_) => fixed,
            },
            failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
                "proptest-regressions",
            ))),
            source_file: Some(file!()),
            test_name: Some(target.name),
            ..asked
        };
        let (cases, seed) = (config.cases, format!("{:?}", config.rng_seed));
        let begun = Instant::now();
        let mut runner = TestRunner::new(config);
        let held = runner.run(&input(corpus(target)), |data| {
            (target.run)(&data);
            Ok(())
        });
        if let Err(error) = held {
            panic!("{} ({seed}): {error}", target.name);
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{:17} {cases} inputs in {seconds:.1} s, {seed}",
            target.name
        );
    }
}
