//! Random choices that a seed decides: the same seed gives the same schedule on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014): small, fast, and good enough to choose faults.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Choices that follow from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Choices of its own for one part of a run, so that parts do not depend on each other's pace.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Rng {
        let mut rng = Rng(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.bits();
        rng
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from `low` up to, but not including, `high`; `low` if there is none.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            Some(span @ 1..) => low + self.bits() % span,
            _ => low,
        }
    }

    /// A position in a list of `len`, which must not be empty.
    pub fn below(&mut self, len: usize) -> usize {
        let at = self.between(0, len as u64);
        usize::try_from(at).expect("smaller than a length")
    }

    /// True so many times out of a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.between(0, 100) < chance
    }

    /// One of them.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// One of the values, each as often as its weight says.
    ///
    /// # Panics
    /// If there is none with a weight.
    pub fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut at = self.between(0, of.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in of {
            match at.checked_sub(*weight) {
                None => return *value,
                Some(rest) => at = rest,
            }
        }
        unreachable!("a number below the sum of all weights falls on one of them")
    }

    /// Mixes the order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            let other = self.below(at + 1);
            all.swap(at, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.between(10, 20)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(9).iter().all(|n| (10..20).contains(n)));
    }

    #[test]
    fn weights_are_kept() {
        let mut rng = Rng::new(1);
        let drawn: Vec<char> = (0..1000)
            .map(|_| rng.weighted(&[(9, 'a'), (1, 'b'), (0, 'c')]))
            .collect();
        let count = |which| drawn.iter().filter(|c| **c == which).count();
        assert!((850..950).contains(&count('a')), "{}", count('a'));
        assert_eq!(count('c'), 0);
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut all: Vec<u32> = (0..50).collect();
        Rng::new(3).shuffle(&mut all);
        assert_ne!(all, (0..50).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<_>>());
    }
}
