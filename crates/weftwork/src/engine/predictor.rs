//! Predicts which routes block, by a saturating counter for each route.
//!
//! A route starts as unknown. Quick calls count down to proven, calls that block count up.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Number of counters, which the routes share. Two routes with one counter are treated alike, which costs at most a
/// hand-off. A client cannot grow a fixed table.
const COUNTERS: usize = 1024;
/// A timed call below this is quick. Giving a call to another thread costs 5 to 10 us.
const QUICK: Duration = Duration::from_micros(75);
/// The same for a trial, which is a call beyond `threads_max`. The monitor finds an inline call stuck after this time.
const TRIAL_QUICK: Duration = Duration::from_millis(1);

/// Counter value at which a route is proven to be quick. An unknown route reaches it after [`UNKNOWN`] quick calls.
const PROVEN: u8 = 0;
const UNKNOWN: u8 = 16;
/// Counter value from which a route is predicted to block.
const BLOCKS: u8 = UNKNOWN + 4;
/// Maximum of a counter. It limits the number of quick calls after which a route is no longer predicted to block.
const MOST: u8 = UNKNOWN + 12;

const NO_CALL: u8 = 0;
/// A call beyond `threads_max`.
const TRIAL: u8 = 1;
const CALL: u8 = 2;

pub(super) struct BlockingPredictor {
    counters: Box<[AtomicU8]>,
    /// What is known of a call that may be blocked now: [`NO_CALL`], [`TRIAL`] or [`CALL`].
    in_call: Box<[AtomicU8]>,
}

impl BlockingPredictor {
    pub(super) fn new() -> BlockingPredictor {
        BlockingPredictor {
            counters: (0..COUNTERS).map(|_| AtomicU8::new(UNKNOWN)).collect(),
            in_call: (0..COUNTERS).map(|_| AtomicU8::new(NO_CALL)).collect(),
        }
    }

    /// Notes that a call has begun which may block.
    pub(super) fn note_call(&self, route: u64, is_trial: bool) {
        self.in_call[index(route)].store(if is_trial { TRIAL } else { CALL }, Ordering::Relaxed);
    }

    /// Notes that such a call has ended.
    pub(super) fn note_return(&self, route: u64) {
        self.in_call[index(route)].store(NO_CALL, Ordering::Relaxed);
    }

    /// Whether a request of the route may wait for a trial: no other call may be blocked now, except for a trial.
    pub(super) fn may_wait_for_trial(&self, route: u64) -> bool {
        self.in_call[index(route)].load(Ordering::Relaxed) != CALL
    }

    /// Whether a trial may begin.
    pub(super) fn may_try(&self, route: u64) -> bool {
        self.in_call[index(route)].load(Ordering::Relaxed) == NO_CALL && !self.predicts_blocking(route)
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
    pub(super) fn record(&self, route: u64, took: Duration, is_trial: bool) {
        self.note_return(route);
        match (took < quick_below(is_trial), is_trial) {
            (true, _) => self.record_quick(route),
            (false, false) => self.count_up(route, BLOCKS - UNKNOWN),
            (false, true) => self.record_stuck(route),
        }
    }

    /// Records a call from which the loop was retaken. The call blocked, or the machine was busy. Two such calls
    /// predict that the route blocks.
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

    fn counter(&self, route: u64) -> &AtomicU8 {
        &self.counters[index(route)]
    }
}

/// Uses the upper bits. The hash of a route is a product, and its lower bits are less random.
fn index(route: u64) -> usize {
    (route >> 54) as usize % COUNTERS
}

/// Time below which a timed call is quick.
pub(super) fn quick_below(is_trial: bool) -> Duration {
    if is_trial { TRIAL_QUICK } else { QUICK }
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
        predictor.record_stuck(ROUTE);
        assert!(!predictor.predicts_blocking(ROUTE));
        predictor.record_stuck(ROUTE);
        assert!(predictor.predicts_blocking(ROUTE));
        assert!(!predictor.predicts_blocking(!ROUTE));
    }

    #[test]
    fn a_timed_call_is_believed_at_once() {
        let predictor = BlockingPredictor::new();
        predictor.record(ROUTE, LONG, false);
        assert!(predictor.predicts_blocking(ROUTE));
    }

    #[test]
    fn quick_calls_make_a_blocking_route_quick_again() {
        let predictor = BlockingPredictor::new();
        for _ in 0..100 {
            predictor.record(ROUTE, LONG, false);
        }
        for _ in BLOCKS..=MOST {
            assert!(predictor.predicts_blocking(ROUTE));
            predictor.record(ROUTE, SHORT, false);
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
    #[test]
    fn a_route_is_tried_once_at_a_time_until_two_calls_have_blocked() {
        let predictor = BlockingPredictor::new();
        for (is_trial, may_wait) in [(true, true), (false, false)] {
            predictor.note_call(ROUTE, is_trial);
            assert_eq!((predictor.may_wait_for_trial(ROUTE), predictor.may_try(ROUTE)), (may_wait, false));
            assert!(predictor.may_try(!ROUTE));
            predictor.record(ROUTE, QUICK, true);
            assert!(predictor.may_try(ROUTE));
        }
        predictor.record(ROUTE, TRIAL_QUICK, true);
        assert!(predictor.may_try(ROUTE), "the machine may have been busy");
        predictor.record(ROUTE, TRIAL_QUICK, true);
        assert!(!predictor.may_try(ROUTE));
    }
}
