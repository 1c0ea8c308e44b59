//! Latencies since the start, and the quantiles of a short time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// A longer latency counts as this one.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// With one significant digit, a quantile is at most a sixteenth too long, and a histogram has 4 KiB.
const SIGNIFICANT_DIGITS: u8 = 1;

/// All latencies, in microseconds.
pub(crate) struct Latencies(Mutex<Histogram<u64>>);

/// The latencies at one time.
#[derive(Clone)]
pub(crate) struct LatencyCounts(Histogram<u64>);

impl Latencies {
    pub(super) fn record(&self, latency: Duration) {
        self.lock().saturating_record(latency.as_micros().try_into().unwrap_or(LATENCY_US_MAX));
    }

    pub(crate) fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        // cannot fail: the bounds and the digits are valid
        let counts = Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS).expect("valid bounds");
        Latencies(Mutex::new(counts))
    }
}

impl LatencyCounts {
    /// Returns these quantiles of the latencies after `earlier`, in microseconds. Without latencies, returns `None`.
    pub(crate) fn quantiles_since<const N: usize>(
        &self,
        earlier: &LatencyCounts,
        of: [f64; N],
    ) -> Option<[u64; N]> {
        let mut new = self.0.clone();
        new.subtract(&earlier.0).ok()?;
        (!new.is_empty()).then(|| of.map(|quantile| new.value_at_quantile(quantile)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_sixteenth_too_long() {
        for us in [1, 2, 3, 7, 8, 100, 999, 1_000_000, 3_599_000_000] {
            let latencies = Latencies::default();
            let earlier = latencies.counts();
            latencies.record(Duration::from_micros(us));
            let [found] = latencies.counts().quantiles_since(&earlier, [1.0]).unwrap();
            assert!(found >= us && found <= us + us.div_ceil(16), "{us}: {found}");
        }
    }

    #[test]
    fn a_latency_past_the_highest_counts_as_the_highest() {
        let latencies = Latencies::default();
        let earlier = latencies.counts();
        latencies.record(Duration::from_secs(1 << 30));
        let [found] = latencies.counts().quantiles_since(&earlier, [0.5]).unwrap();
        assert!(found >= LATENCY_US_MAX, "{found}");
    }

    #[test]
    fn quantiles_are_of_the_time_since() {
        let latencies = Latencies::default();
        latencies.record(Duration::from_secs(60));
        let earlier = latencies.counts();
        assert_eq!(latencies.counts().quantiles_since(&earlier, [0.5]), None);
        for ms in 1..=100 {
            latencies.record(Duration::from_millis(ms));
        }
        let [half, most, all] = latencies.counts().quantiles_since(&earlier, [0.5, 0.99, 1.0]).unwrap();
        assert!((50_000..54_000).contains(&half), "{half}");
        assert!((99_000..106_000).contains(&most), "{most}");
        assert!((100_000..107_000).contains(&all), "{all}");
    }
}
