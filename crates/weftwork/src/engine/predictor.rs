//! Predicts which routes block, by a saturating counter for each route.
//!
//! A route starts as unknown. Quick calls count down to proven, calls that block count up.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Counters that the routes share. Two routes with one counter are treated alike, which costs a hand-off and no more. A fixed
/// table is one that no client can grow.
const COUNTERS: usize = 1024;
/// A timed call below this is quick. To give a call to another thread costs 5 to 10 us.
pub(super) const QUICK: Duration = Duration::from_micros(75);

/// No call was blocking in so many: the route is proven to be quick.
const PROVEN: u8 = 0;
const UNKNOWN: u8 = 16;
/// From here on the route is predicted to block.
const BLOCKS: u8 = UNKNOWN + 4;
/// The route is unknown again after so many quick calls more than this is above [`BLOCKS`].
const MOST: u8 = UNKNOWN + 12;

pub(super) struct BlockingPredictor {
    counters: Box<[AtomicU8]>,
}

impl BlockingPredictor {
    pub(super) fn new() -> BlockingPredictor {
        BlockingPredictor { counters: (0..COUNTERS).map(|_| AtomicU8::new(UNKNOWN)).collect() }
    }

    /// An untimed call has ended before it was found to block.
    pub(super) fn record_quick(&self, route: u64) {
        let counter = self.counter(route);
        let score = counter.load(Ordering::Relaxed);
        if score != PROVEN {
            // Two threads that count at once may lose one of the two: it is a tendency, not a sum.
            counter.store(score - 1, Ordering::Relaxed);
        }
    }

    /// A call was timed.
    pub(super) fn record(&self, route: u64, took: Duration) {
        match took < QUICK {
            true => self.record_quick(route),
            false => self.count_up(route, BLOCKS - UNKNOWN),
        }
    }

    /// The loop was retaken from a call: it blocked, or the machine was busy elsewhere. Two such calls are a prediction.
    pub(super) fn record_stuck(&self, route: u64) {
        self.count_up(route, (BLOCKS - UNKNOWN) / 2);
    }

    fn count_up(&self, route: u64, by: u8) {
        let counter = self.counter(route);
        let score = counter.load(Ordering::Relaxed).max(UNKNOWN);
        counter.store((score + by).min(MOST), Ordering::Relaxed);
    }

    pub(super) fn predicts_blocking(&self, route: u64) -> bool {
        self.counter(route).load(Ordering::Relaxed) >= BLOCKS
    }

    pub(super) fn is_proven_quick(&self, route: u64) -> bool {
        self.counter(route).load(Ordering::Relaxed) == PROVEN
    }

    /// By the upper bits: the hash of a route is a product, whose lower bits say less.
    fn counter(&self, route: u64) -> &AtomicU8 {
        &self.counters[(route >> 54) as usize % COUNTERS]
    }
}

#[cfg(test)]
mod tests {
    //! A route is learned after two long calls, and unlearned after a run of quick calls.

    use super::*;

    const ROUTE: u64 = 0xdead_beef_0000_0000;
    const LONG: Duration = Duration::from_millis(1);
    const SHORT: Duration = Duration::from_micros(5);

    #[test]
    fn one_stuck_call_is_chance_and_two_are_a_prediction() {
        let predictor = BlockingPredictor::new();
        predictor.record_stuck(ROUTE);
        assert!(!predictor.predicts_blocking(ROUTE));
        predictor.record_stuck(ROUTE);
        assert!(predictor.predicts_blocking(ROUTE));
        assert!(!predictor.predicts_blocking(!ROUTE));
    }

    #[test]
    fn a_timed_call_is_believed_at_once() {
        let predictor = BlockingPredictor::new();
        predictor.record(ROUTE, LONG);
        assert!(predictor.predicts_blocking(ROUTE));
    }

    #[test]
    fn quick_calls_make_a_blocking_route_quick_again() {
        let predictor = BlockingPredictor::new();
        for _ in 0..100 {
            predictor.record(ROUTE, LONG);
        }
        for _ in BLOCKS..=MOST {
            assert!(predictor.predicts_blocking(ROUTE));
            predictor.record(ROUTE, SHORT);
        }
        assert!(!predictor.predicts_blocking(ROUTE));
    }

    #[test]
    fn a_route_is_proven_by_quick_calls_alone() {
        let predictor = BlockingPredictor::new();
        for _ in 0..UNKNOWN {
            assert!(!predictor.is_proven_quick(ROUTE));
            predictor.record_quick(ROUTE);
        }
        assert!(predictor.is_proven_quick(ROUTE));
        predictor.record_stuck(ROUTE);
        assert!(!predictor.is_proven_quick(ROUTE));
    }
}
