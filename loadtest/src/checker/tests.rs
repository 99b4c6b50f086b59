//! Every rule, broken once and caught as that rule alone; and honest histories, which break none.

mod breaks;
mod honest;

use super::{Violation, check};
use honest::{Fate, Tale};

/// What a correct system may do, in many orders, breaks no rule.
#[test]
fn honest_histories_break_nothing() {
    for seed in 0..400 {
        let tale = Tale::random(seed);
        let found = check(&tale.events, &tale.lines);
        assert!(found.is_empty(), "seed {seed}: {}", told(&found, &tale));
    }
}

#[test]
fn every_fate_breaks_nothing() {
    for fate in Fate::ALL {
        for seed in 0..20 {
            let tale = Tale::of(fate, seed);
            let found = check(&tale.events, &tale.lines);
            assert!(found.is_empty(), "{fate:?} {seed}: {}", told(&found, &tale));
        }
    }
}

fn told(found: &[Violation], tale: &Tale) -> String {
    let told: Vec<String> = found
        .iter()
        .map(|violation| crate::timeline::of(violation, &tale.events, &tale.lines))
        .collect();
    told.join("\n")
}
