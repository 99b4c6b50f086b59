//! What is remembered of tokens: bounded, by the token's hash, so that the memory holds none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

/// SHA-256 of a token.
pub(super) type Hash = [u8; 32];

/// The hash of a token.
pub(super) fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// Remembers at least the `max / 2` entries used last, and never more than `max`.
pub(super) struct Cache<T> {
    generations: Mutex<Generations<T>>,
    half: usize,
}

struct Generations<T> {
    /// Used since the last turn.
    young: HashMap<Hash, T>,
    /// Used before; whatever is used again moves to the young.
    old: HashMap<Hash, T>,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            generations: Mutex::new(Generations {
                young: HashMap::new(),
                old: HashMap::new(),
            }),
            half: max.div_ceil(2),
        }
    }

    pub(super) fn get(&self, hash: &Hash) -> Option<T> {
        let mut generations = self.lock();
        if let Some(entry) = generations.young.get(hash) {
            return Some(entry.clone());
        }
        let entry = generations.old.remove(hash)?;
        self.insert(&mut generations, *hash, entry.clone());
        Some(entry)
    }

    pub(super) fn put(&self, hash: Hash, entry: T) {
        let mut generations = self.lock();
        generations.old.remove(&hash);
        self.insert(&mut generations, hash, entry);
    }

    pub(super) fn forget(&self, hash: &Hash) {
        let mut generations = self.lock();
        generations.young.remove(hash);
        generations.old.remove(hash);
    }

    fn insert(&self, generations: &mut Generations<T>, hash: Hash, entry: T) {
        if generations.young.len() >= self.half && !generations.young.contains_key(&hash) {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(hash, entry);
    }

    fn lock(&self) -> MutexGuard<'_, Generations<T>> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Hash {
        [n; 32]
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        let cache = Cache::new(10);
        for n in 0..100 {
            cache.put(key(n), n);
            let generations = cache.lock();
            assert!(generations.young.len() + generations.old.len() <= 10);
        }
        assert_eq!(cache.get(&key(99)), Some(99));
        assert_eq!(cache.get(&key(0)), None);
    }

    #[test]
    fn what_is_used_stays() {
        let cache = Cache::new(10);
        cache.put(key(200), 200);
        for n in 0..100 {
            cache.put(key(n), n);
            assert_eq!(cache.get(&key(200)), Some(200), "{n}");
        }
        cache.forget(&key(200));
        assert_eq!(cache.get(&key(200)), None);
    }
}
