//! Latencies in narrow buckets, for the quantiles of a short time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets that double the latency. With eight of them, a quantile is at most 12.5 % too long.
const STEPS: usize = 8;
/// Doublings from 1 us, to more than an hour.
const DOUBLINGS: usize = 32;

/// Number of latencies in each bucket.
pub(crate) struct Latencies {
    counts: [AtomicU64; STEPS * DOUBLINGS],
}

/// The counts at one time.
#[derive(Clone)]
pub(crate) struct LatencyCounts(Vec<u64>);

impl Latencies {
    pub(super) fn record(&self, seconds: f64) {
        self.counts[bucket((seconds * 1e6) as u64)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: [const { AtomicU64::new(0) }; STEPS * DOUBLINGS] }
    }
}

impl LatencyCounts {
    /// Returns these quantiles of the latencies after `earlier`, in microseconds. Without latencies, returns `None`.
    pub(crate) fn quantiles_since<const N: usize>(
        &self,
        earlier: &LatencyCounts,
        of: [f64; N],
    ) -> Option<[u64; N]> {
        let new = || self.0.iter().zip(&earlier.0).map(|(now, then)| now - then);
        let total: u64 = new().sum();
        if total == 0 {
            return None;
        }
        Some(of.map(|quantile| {
            let rank = (total as f64 * quantile).ceil() as u64;
            let mut seen = 0;
            let found = new().position(|count| {
                seen += count;
                seen >= rank
            });
            upper_bound(found.unwrap_or(STEPS * DOUBLINGS - 1))
        }))
    }
}

/// Returns the bucket: its doubling, and the three bits after the first one of `us`.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let doubling = us.ilog2() as usize;
    let step = (us << 3 >> doubling) as usize - STEPS;
    (doubling * STEPS + step).min(STEPS * DOUBLINGS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let (doubling, step) = (bucket / STEPS, bucket % STEPS);
    (((STEPS + step + 1) << doubling) >> 3).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_an_eighth_too_long() {
        for us in [1, 2, 3, 7, 8, 100, 999, 1_000_000, 3_600_000_000] {
            let bound = upper_bound(bucket(us));
            assert!(bound >= us && bound <= us + us.div_ceil(8), "{us}: {bound}");
        }
        assert_eq!(bucket(u64::MAX >> 4), STEPS * DOUBLINGS - 1);
    }

    #[test]
    fn quantiles_are_of_the_time_since() {
        let latencies = Latencies::default();
        latencies.record(60.0);
        let earlier = latencies.counts();
        assert_eq!(latencies.counts().quantiles_since(&earlier, [0.5]), None);
        for ms in 1..=100 {
            latencies.record(f64::from(ms) / 1e3);
        }
        let [half, most, all] = latencies.counts().quantiles_since(&earlier, [0.5, 0.99, 1.0]).unwrap();
        assert!((50_000..57_000).contains(&half), "{half}");
        assert!((99_000..112_000).contains(&most), "{most}");
        assert!((100_000..113_000).contains(&all), "{all}");
    }
}
