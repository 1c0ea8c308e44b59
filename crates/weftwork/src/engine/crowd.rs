//! Do so many threads wait for their core that each had better yield behind its answer?
//!
//! A read right behind the answer finds nothing yet: it sets a timer, its thread sleeps in it, and has to be woken. In a crowd
//! others may as well run first: when this thread is next, its client's request is there, and is read without any of that. One
//! core, calls that block for 1 ms, 400 clients: 1.1 to 1.4 of the requests/s, and p99 7 to 12 ms for 16 to 22.
//!
//! What all threads of an engine do is decided for all of them: one that yields among others that sleep is put behind them again
//! and again (where each connection decided for itself, that p99 was 100 ms). And there are three reasons not to:
//!
//! - A thread whose turn comes late begins its next call late. Where calls block and the core is not full, that is lost: 0.85 of
//!   the requests/s with 100 clients. Where they do not block, whoever slept when the others began to yield may wait for 0.3 s.
//! - The request is not there even so: its client is far away, or thinks.
//! - Another program has threads that sleep a lot, on the same cores: those who yield wait for longer than before.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::transport::Tick;

/// So long waits are summed up before it is decided anew.
const WINDOW: Duration = Duration::from_millis(250);
/// Fewer do not begin it, and [`SAMPLES_TO_END`] end it.
const SAMPLES_LEAST: u32 = 64;
const SAMPLES_TO_END: u32 = 16;
/// Where yielding was no good, it is not tried again for so long. A neighbour that sleeps a lot costs a window every 10 s.
const PAUSE: Duration = Duration::from_secs(10);
/// What takes less is quick.
const BLOCKS: Duration = Duration::from_millis(1);
/// What takes longer counts as if it took so long.
const MOST: Duration = Duration::from_secs(1);

/// Whether the threads of an engine that have answered yield before they read on.
pub(super) struct Crowd {
    is_here: AtomicBool,
    sums: Sums,
}

/// Written by all; a line of its own keeps that from those who only ask.
#[derive(Default)]
#[repr(align(64))]
struct Sums {
    /// When it is decided next, a [`Tick`]; 0 before anything was seen.
    due: AtomicU64,
    samples: AtomicU32,
    in_vain: AtomicU32,
    /// Behind calls that were not quick.
    blocked: AtomicU32,
    waited_ms: AtomicU32,
    called_ms: AtomicU32,
    /// The mean wait before the threads began to yield.
    before_us: AtomicU32,
}

/// How a thread came by its client's next request.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// What the call before took.
    pub(super) call: Duration,
    /// From the end of that call until its thread went on.
    pub(super) wait: Duration,
    pub(super) way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Slept,
    Yielded,
    /// The thread had yielded, and still there was no request.
    InVain,
}

impl Crowd {
    pub(super) fn new() -> Crowd {
        Crowd { is_here: AtomicBool::new(false), sums: Sums::default() }
    }

    #[cfg(test)]
    pub(super) fn samples(&self) -> u32 {
        self.sums.samples.load(Ordering::Relaxed)
    }

    /// And does not go away.
    #[cfg(test)]
    pub(super) fn come(&self) {
        self.sums.due.store(u64::MAX, Ordering::Relaxed);
        self.is_here.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Relaxed)
    }

    /// This writes to what all threads share: let it know of one request in many.
    #[cold]
    pub(super) fn note(&self, sample: Sample, now: Tick) {
        let is_here = self.is_here();
        if sample.way == Way::Slept && is_here {
            // It lay down before the others began to yield.
            return;
        }
        let sums = &self.sums;
        let add = |sum: &AtomicU32, more: u32| sum.fetch_add(more, Ordering::Relaxed) + more;
        add(&sums.in_vain, (sample.way == Way::InVain).into());
        add(&sums.blocked, (sample.call >= BLOCKS).into());
        add(&sums.waited_ms, millis(sample.wait));
        add(&sums.called_ms, millis(sample.call));
        let samples = add(&sums.samples, 1);
        let least = if is_here { SAMPLES_TO_END } else { SAMPLES_LEAST };
        let due = sums.due.load(Ordering::Relaxed);
        let is_first = due == 0;
        if !is_first && (samples < least || now < Tick(due)) {
            return;
        }
        let next = now.after(WINDOW).0;
        let is_ours = sums.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours && !is_first {
            self.decide(now);
        }
    }

    /// What others add meanwhile counts for this window or the next: these are tendencies, not sums.
    fn decide(&self, now: Tick) {
        let sums = &self.sums;
        let take = |sum: &AtomicU32| u64::from(sum.swap(0, Ordering::Relaxed));
        let (samples, in_vain) = (take(&sums.samples).max(1), take(&sums.in_vain));
        let (waited_ms, called_ms) = (take(&sums.waited_ms), take(&sums.called_ms));
        let wait_us = waited_ms * 1000 / samples;
        let blocks = take(&sums.blocked) * 2 >= samples;
        // With 200 clients one is as good as the other: threads that sleep wait for 0.68 of what calls take (a call includes its own
        // wait for the core), and threads that yield for 0.54; with 150 for 0.40 and 0.47, with 300 for 1.0 and 0.74.
        if !self.is_here() {
            if blocks && waited_ms * 3 > called_ms * 2 {
                sums.before_us.store(u32::try_from(wait_us).unwrap_or(u32::MAX), Ordering::Relaxed);
                self.is_here.store(true, Ordering::Relaxed);
            }
            return;
        }
        // Twice as long may be twice as many clients, or slower cores: those need not end it.
        let before_us = u64::from(sums.before_us.load(Ordering::Relaxed));
        let is_no_good = in_vain * 4 > samples || wait_us > before_us * 2;
        if is_no_good {
            sums.due.store(now.after(PAUSE).0, Ordering::Relaxed);
        }
        if is_no_good || !blocks || waited_ms * 2 < called_ms {
            self.is_here.store(false, Ordering::Relaxed);
        }
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.min(MOST).as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    //! One window after the other, each of samples that are all alike.

    use super::*;

    const CALL: Duration = Duration::from_millis(2);
    const SLEPT: Sample = Sample { call: CALL, wait: Duration::from_millis(4), way: Way::Slept };
    const YIELDED: Sample = Sample { way: Way::Yielded, ..SLEPT };

    /// Ends with a sample for which it is decided.
    fn window(crowd: &Crowd, sample: Sample, from: Tick) -> Tick {
        let end = from.after(WINDOW);
        for _ in 1..SAMPLES_LEAST {
            crowd.note(sample, from);
        }
        crowd.note(sample, end);
        end
    }

    fn crowded() -> (Crowd, Tick) {
        let crowd = Crowd::new();
        let now = window(&crowd, SLEPT, Tick(1));
        assert!(crowd.is_here());
        (crowd, now)
    }

    #[test]
    fn waits_as_long_as_calls_make_a_crowd_after_a_window_of_enough_samples() {
        let crowd = Crowd::new();
        for _ in 0..2 * SAMPLES_LEAST {
            crowd.note(SLEPT, Tick(1));
        }
        assert!(!crowd.is_here(), "before its time");

        let crowd = Crowd::new();
        for _ in 1..SAMPLES_LEAST {
            crowd.note(SLEPT, Tick(1));
        }
        assert!(!crowd.is_here());
        crowd.note(SLEPT, Tick(1).after(WINDOW));
        assert!(crowd.is_here());

        let crowd = Crowd::new();
        for second in 1..u64::from(SAMPLES_LEAST) {
            crowd.note(SLEPT, Tick(1000 * second));
        }
        assert!(!crowd.is_here(), "of too few samples");
    }

    #[test]
    fn it_is_over_when_calls_outlast_waits() {
        let (crowd, now) = crowded();
        let now = window(&crowd, YIELDED, now);
        assert!(crowd.is_here());
        // Those who yield wait less than those who sleep, and are a crowd for as long.
        let between = Duration::from_millis(1);
        let now = window(&crowd, Sample { wait: between, ..YIELDED }, now);
        assert!(crowd.is_here());
        let now = window(&crowd, Sample { wait: Duration::ZERO, ..YIELDED }, now);
        assert!(!crowd.is_here());
        let now = window(&crowd, Sample { wait: between, ..SLEPT }, now);
        assert!(!crowd.is_here());
        window(&crowd, SLEPT, now);
        assert!(crowd.is_here(), "and comes again at once");
    }

    #[test]
    fn quick_calls_make_none() {
        let quick = Duration::ZERO;
        let crowd = Crowd::new();
        window(&crowd, Sample { call: quick, ..SLEPT }, Tick(1));
        assert!(!crowd.is_here());
        let (crowd, now) = crowded();
        window(&crowd, Sample { call: quick, ..YIELDED }, now);
        assert!(!crowd.is_here());
    }

    /// However long those take: who begins to yield makes quick ones wait.
    #[test]
    fn a_few_long_calls_among_quick_ones_make_none() {
        let crowd = Crowd::new();
        let long = Sample { call: MOST, wait: MOST, ..SLEPT };
        let quick = Sample { call: Duration::ZERO, ..SLEPT };
        for _ in 0..SAMPLES_LEAST {
            [quick, quick, long].iter().for_each(|&sample| crowd.note(sample, Tick(1)));
        }
        crowd.note(quick, Tick(1).after(WINDOW));
        assert!(!crowd.is_here());
    }

    #[test]
    fn who_slept_before_the_others_began_to_yield_does_not_count() {
        let (crowd, now) = crowded();
        let now = window(&crowd, Sample { wait: MOST, ..SLEPT }, now);
        window(&crowd, YIELDED, now);
        assert!(crowd.is_here());
    }

    #[test]
    fn where_yielding_is_no_good_it_is_not_tried_for_a_while() {
        let slower = Sample { wait: SLEPT.wait * 3, ..YIELDED };
        let slowest = Sample { wait: MOST * 10, ..YIELDED };
        for no_good in [Sample { way: Way::InVain, ..YIELDED }, slower, slowest] {
            let (crowd, now) = crowded();
            let since = window(&crowd, no_good, now);
            assert!(!crowd.is_here());
            let mut now = since;
            while now.after(WINDOW) < since.after(PAUSE) {
                now = window(&crowd, SLEPT, now);
                assert!(!crowd.is_here(), "{now:?}");
            }
            window(&crowd, SLEPT, now);
            assert!(crowd.is_here());
        }
    }
}
