//! Predicts which routes block, by a saturating counter for each route.
//!
//! A route starts as unknown. Quick calls count down to proven, calls that block count up.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Number of counters, which the routes share. Two routes with one counter are treated alike, which costs at most a
/// hand-off. A client cannot grow a fixed table.
const COUNTERS: usize = 1024;
/// A timed call below this is quick. Giving a call to another thread costs 5 to 10 us.
pub(super) const QUICK: Duration = Duration::from_micros(75);

/// Counter value at which a route is proven to be quick. An unknown route reaches it after [`UNKNOWN`] quick calls.
const PROVEN: u8 = 0;
const UNKNOWN: u8 = 16;
/// Counter value from which a route is predicted to block.
const BLOCKS: u8 = UNKNOWN + 4;
/// What a stuck call of a route counts that is not known to be quick.
const STUCK: u8 = (BLOCKS - UNKNOWN) / 2;
/// Maximum of a counter. It limits the number of quick calls after which a route is no longer predicted to block.
const MOST: u8 = UNKNOWN + 12;

pub(super) struct BlockingPredictor {
    counters: Box<[AtomicU8]>,
}

impl BlockingPredictor {
    pub(super) fn new() -> BlockingPredictor {
        BlockingPredictor { counters: (0..COUNTERS).map(|_| AtomicU8::new(UNKNOWN)).collect() }
    }

    /// Records an untimed call that ended before it was found to block.
    pub(super) fn record_quick(&self, route: u64) {
        let counter = self.counter(route);
        let score = counter.load(Ordering::Relaxed);
        if score != PROVEN {
            // Two threads that count at once may lose one update. The value is an estimate.
            counter.store(score - 1, Ordering::Relaxed);
        }
    }

    /// Records a timed call.
    pub(super) fn record(&self, route: u64, took: Duration) {
        match took < QUICK {
            true => self.record_quick(route),
            false => self.count_up(route, BLOCKS - UNKNOWN),
        }
    }

    /// Records a call from which the loop was retaken. The call blocked, or the machine was busy. Two such calls of an
    /// unknown route predict that the route blocks. A proven route needs two to become unknown, except if no thread is free.
    /// The next call could then keep the loop.
    pub(super) fn record_stuck(&self, route: u64, has_thread: bool) {
        let counter = self.counter(route);
        let score = counter.load(Ordering::Relaxed);
        match score < UNKNOWN && has_thread {
            true => counter.store((score + UNKNOWN / 2).min(UNKNOWN + STUCK), Ordering::Relaxed),
            false => self.count_up(route, STUCK),
        }
    }

    fn count_up(&self, route: u64, by: u8) {
        let counter = self.counter(route);
        let score = counter.load(Ordering::Relaxed).max(UNKNOWN);
        counter.store((score + by).min(MOST), Ordering::Relaxed);
    }

    pub(super) fn predicts_blocking(&self, route: u64) -> bool {
        self.counter(route).load(Ordering::Relaxed) >= BLOCKS
    }

    /// Returns whether the latest calls were quick, and there was at least one.
    pub(super) fn was_quick(&self, route: u64) -> bool {
        self.counter(route).load(Ordering::Relaxed) < UNKNOWN
    }

    pub(super) fn is_proven_quick(&self, route: u64) -> bool {
        self.counter(route).load(Ordering::Relaxed) == PROVEN
    }

    /// Uses the upper bits. The hash of a route is a product, and its lower bits are less random.
    fn counter(&self, route: u64) -> &AtomicU8 {
        &self.counters[(route >> 54) as usize % COUNTERS]
    }
}

#[cfg(test)]
mod tests {
    //! Tests that a route is learned after two long calls, and unlearned after a run of quick calls.

    use super::*;

    const ROUTE: u64 = 0xdead_beef_0000_0000;
    const LONG: Duration = Duration::from_millis(1);
    const SHORT: Duration = Duration::from_micros(5);

    #[test]
    fn one_stuck_call_is_chance_and_two_are_a_prediction() {
        let predictor = BlockingPredictor::new();
        predictor.record_stuck(ROUTE, true);
        assert!(!predictor.predicts_blocking(ROUTE));
        predictor.record_stuck(ROUTE, true);
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
        assert!(!predictor.was_quick(ROUTE));
        for _ in 0..UNKNOWN {
            assert!(!predictor.is_proven_quick(ROUTE));
            predictor.record_quick(ROUTE);
            assert!(predictor.was_quick(ROUTE));
        }
        assert!(predictor.is_proven_quick(ROUTE));
    }

    /// A quick call may lose its core.
    #[test]
    fn one_stuck_call_of_a_proven_route_does_not_make_it_unknown() {
        let predictor = BlockingPredictor::new();
        (0..UNKNOWN).for_each(|_| predictor.record_quick(ROUTE));
        predictor.record_stuck(ROUTE, true);
        assert!(!predictor.is_proven_quick(ROUTE) && predictor.was_quick(ROUTE));
        predictor.record_stuck(ROUTE, true);
        assert!(!predictor.was_quick(ROUTE) && !predictor.predicts_blocking(ROUTE));
        (0..2).for_each(|_| predictor.record_stuck(ROUTE, true));
        assert!(predictor.predicts_blocking(ROUTE));
    }

    #[test]
    fn without_a_free_thread_one_stuck_call_makes_it_unknown() {
        let predictor = BlockingPredictor::new();
        (0..UNKNOWN).for_each(|_| predictor.record_quick(ROUTE));
        predictor.record_stuck(ROUTE, false);
        assert!(!predictor.was_quick(ROUTE) && !predictor.predicts_blocking(ROUTE));
    }

    #[test]
    fn a_stuck_call_after_one_quick_call_is_no_prediction() {
        let predictor = BlockingPredictor::new();
        predictor.record_quick(ROUTE);
        predictor.record_stuck(ROUTE, true);
        assert!(!predictor.predicts_blocking(ROUTE));
    }
}
