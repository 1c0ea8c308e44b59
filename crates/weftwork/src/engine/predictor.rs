//! Which routes are known to block: learned by watching, forgotten when they turn quick.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Routes share this many places. Two that meet in one are treated alike, which costs a hand-off, no more;
/// a fixed table is one that no client can grow.
const PLACES: usize = 1024;
/// Below this a call counts as quick. A hand-over costs 5 to 10 us, so it pays from some 100 us on.
pub(super) const QUICK: Duration = Duration::from_micros(150);
/// From this score on a route is expected to block.
const BLOCKS: u8 = 4;
/// So many quick calls in a row make a blocking route a quick one again.
const MOST: u8 = 12;

/// After this many calls that did not block, a route is proven to be quick.
const PROVEN: u8 = 16;

/// What was seen of each route.
pub(super) struct BlockingPredictor {
    scores: Box<[AtomicU8]>,
    quick: Box<[AtomicU8]>,
}

impl BlockingPredictor {
    pub(super) fn new() -> BlockingPredictor {
        let zeros = || (0..PLACES).map(|_| AtomicU8::new(0)).collect();
        BlockingPredictor { scores: zeros(), quick: zeros() }
    }

    /// A call ended before anybody found it blocking.
    pub(super) fn record_quick(&self, route: u64) {
        let place = &self.quick[index(route)];
        let calls = place.load(Ordering::Relaxed);
        if calls < PROVEN {
            place.store(calls + 1, Ordering::Relaxed);
        }
    }

    /// Never seen to block in enough calls: the last free thread may run it.
    pub(super) fn is_proven(&self, route: u64) -> bool {
        self.quick[index(route)].load(Ordering::Relaxed) >= PROVEN && !self.blocks(route)
    }

    pub(super) fn blocks(&self, route: u64) -> bool {
        self.place(route).load(Ordering::Relaxed) >= BLOCKS
    }

    /// A call was timed.
    pub(super) fn record(&self, route: u64, took: Duration) {
        let place = self.place(route);
        let score = place.load(Ordering::Relaxed);
        // Two threads that count at once may lose one of the two: it is a tendency, not a sum.
        let score = if took < QUICK { score.saturating_sub(1) } else { (score + BLOCKS).min(MOST) };
        place.store(score, Ordering::Relaxed);
    }

    /// The loop was taken from a call: it blocked, or the machine was busy elsewhere. Two such make a habit.
    pub(super) fn record_stuck(&self, route: u64) {
        let place = self.place(route);
        let score = place.load(Ordering::Relaxed);
        place.store((score + BLOCKS / 2).min(MOST), Ordering::Relaxed);
    }

    fn place(&self, route: u64) -> &AtomicU8 {
        &self.scores[index(route)]
    }
}

/// The upper bits: the hash of a route is a product, whose lower ones say less.
fn index(route: u64) -> usize {
    (route >> 54) as usize % PLACES
}

#[cfg(test)]
mod tests {
    //! A route is learned after two long calls and unlearned after a run of quick ones.

    use super::*;

    const ROUTE: u64 = 0xdead_beef_0000_0000;
    const LONG: Duration = Duration::from_millis(1);
    const SHORT: Duration = Duration::from_micros(5);

    #[test]
    fn one_stuck_call_is_chance_and_two_are_a_habit() {
        let predictor = BlockingPredictor::new();
        predictor.record_stuck(ROUTE);
        assert!(!predictor.blocks(ROUTE));
        predictor.record_stuck(ROUTE);
        assert!(predictor.blocks(ROUTE));
        assert!(!predictor.blocks(!ROUTE));
    }

    #[test]
    fn a_timed_call_is_believed_at_once() {
        let predictor = BlockingPredictor::new();
        predictor.record(ROUTE, LONG);
        assert!(predictor.blocks(ROUTE));
    }

    #[test]
    fn quick_calls_make_it_quick_again() {
        let predictor = BlockingPredictor::new();
        for _ in 0..100 {
            predictor.record(ROUTE, LONG);
        }
        for _ in BLOCKS..=MOST {
            assert!(predictor.blocks(ROUTE));
            predictor.record(ROUTE, SHORT);
        }
        assert!(!predictor.blocks(ROUTE));
    }
}
