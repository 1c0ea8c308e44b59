//! A table with one number for each key and a fixed size. If it is full, the least significant number is
//! forgotten first.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, PoisonError};

/// Number of buckets that share a set. Keys whose hashes agree in some bits are in one set.
const WAYS: usize = 8;

/// The time at which the bucket of a key is full again, in nanoseconds. A past time means a full bucket, which
/// is the same as no bucket.
#[derive(Clone, Copy, Default)]
struct Bucket {
    key: u64,
    full_at: u64,
}

pub(super) struct Table {
    sets: Box<[Mutex<[Bucket; WAYS]>]>,
    state: RandomState,
}

impl Table {
    pub(super) fn new(keys_max: usize) -> Table {
        let sets = keys_max.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two();
        Table { sets: (0..sets).map(|_| Mutex::default()).collect(), state: RandomState::new() }
    }

    pub(super) fn hash(&self, key: &impl Hash) -> u64 {
        self.state.hash_one(key)
    }

    /// Calls `change` with the number of `key`, or with 0 if the key is unknown, and stores the result.
    pub(super) fn update<R>(&self, key: u64, now: u64, change: impl FnOnce(u64) -> (u64, R)) -> R {
        // Cannot fail: the number of sets is a power of two and above zero.
        let set = &self.sets[key as usize & (self.sets.len() - 1)];
        let mut buckets = set.lock().unwrap_or_else(PoisonError::into_inner);
        let known = buckets.iter().position(|bucket| bucket.key == key && bucket.full_at > now);
        let at = known.unwrap_or_else(|| {
            let fullest = (0..WAYS).min_by_key(|&at| buckets[at].full_at).unwrap_or(0);
            buckets[fullest] = Bucket { key, full_at: 0 };
            fullest
        });
        let (full_at, result) = change(buckets[at].full_at);
        buckets[at].full_at = full_at;
        result
    }
}

#[cfg(test)]
mod tests {
    //! Tests that entries are kept by key, that the least useful one is evicted first, and that the table never grows.

    use super::*;

    fn put(table: &Table, key: u64, full_at: u64) -> u64 {
        table.update(key, 0, |before| (full_at, before))
    }

    #[test]
    fn each_key_has_its_number() {
        let table = Table::new(64);
        for key in 0..64 {
            assert_eq!(put(&table, key, key + 1), 0);
        }
        for key in 0..64 {
            assert_eq!(put(&table, key, 1), key + 1);
        }
    }

    #[test]
    fn the_fullest_bucket_is_forgotten_first() {
        let table = Table::new(1);
        for key in 1..=8 {
            put(&table, key, key * 10);
        }
        put(&table, 9, 90);
        assert_eq!(put(&table, 8, 80), 80);
        assert_eq!(put(&table, 1, 10), 0, "was forgotten");
    }

    #[test]
    fn a_full_bucket_is_as_good_as_none() {
        let table = Table::new(1);
        put(&table, 1, 10);
        assert_eq!(table.update(1, 10, |before| (20, before)), 0);
    }

    #[test]
    fn any_number_of_keys_fits() {
        let table = Table::new(100);
        assert_eq!(table.sets.len() * WAYS, 128);
        for key in 0..100_000_u64 {
            put(&table, table.hash(&key), key + 1);
        }
        assert_ne!(Table::new(1).hash(&1), table.hash(&1), "each has keys of its own");
    }
}
