//! Would one more thread help? What their watcher finds out for the [threads that share connections](super::shared_poller).
//!
//! A thread more is of use to a request that waits for one, unless the cores are full: then it only waits in the kernel's
//! queue instead, and brings its stack into the caches; or unless threads come back from their calls so often that one of
//! them has the request sooner than another could be woken for it.
//!
//! The kernel tells how long the watcher's thread was ready to run and had to wait for a core. Where it does not tell,
//! cores are never full.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::transport::Tick;

/// The cores are full when a thread that could run waits for one as long as this.
const FULL: Duration = Duration::from_micros(60);
/// So many looks in a row make up the watcher's mind: one alone says little.
const LOOKS: u32 = 16;
/// Whoever waits for a thread to come back waits no longer than this: as long as where 400 share a core.
const SOON: Duration = Duration::from_millis(10);
/// Below this many threads at work the cores are not asked: whatever they do, they are few.
const AT_WORK_MIN: usize = 16;
/// So many threads are called in one look, at the most: meanwhile the watcher sees no stuck loop, and each of them calls the
/// next where that is needed.
const CALLED_MAX: usize = 4;

/// What the watcher measures.
#[derive(Debug)]
pub(super) struct CpuPressure {
    /// So many calls in each millisecond are often enough.
    brisk: u64,
    waits: Option<Waits>,
    full: Majority,
    /// Calls that have ended, ever, at the last look, and when that was.
    calls: u32,
    at: Tick,
    /// Calls in each millisecond since the look before.
    pace: u64,
    /// Looks in a row that have found requests waiting.
    short: u32,
}

impl CpuPressure {
    /// Measures the calling thread. Where `brisk` calls end in each millisecond, no thread is called.
    pub(super) fn new(brisk: u64) -> CpuPressure {
        CpuPressure {
            brisk,
            waits: Waits::of_this_thread(),
            full: Majority::default(),
            calls: 0,
            at: Tick::default(),
            pace: 0,
            short: 0,
        }
    }

    /// One look: so many threads are at work, and so many calls have ended, ever.
    pub(super) fn look(&mut self, at_work: usize, calls: u32, now: Tick) {
        self.pace =
            u64::from(calls.wrapping_sub(self.calls)).div_ceil(now.0.saturating_sub(self.at.0).max(1));
        (self.calls, self.at) = (calls, now);
        if at_work < AT_WORK_MIN {
            self.full = Majority::default();
        } else if let Some(waited) = self.waits.as_mut().and_then(Waits::since_last) {
            self.full.note(waited > FULL);
        }
    }

    /// Who has asked need not have a thread called.
    pub(super) fn is_served_soon(&self) -> bool {
        self.pace >= self.brisk || self.has_full_cores()
    }

    fn has_full_cores(&self) -> bool {
        self.full.is_reached()
    }

    /// On full cores: how many may wait for threads that come back from their calls, and have one within [`SOON`].
    pub(super) fn asking_max(&self) -> usize {
        let in_time = self.pace.saturating_mul(SOON.as_millis() as u64);
        if self.has_full_cores() { usize::try_from(in_time).unwrap_or(usize::MAX) } else { 0 }
    }

    /// How many threads are to be called, where requests wait for one or not. Twice as many as at the last look; and on full
    /// cores one, if no call has ended since: what those at work wait for is not the cores.
    pub(super) fn called(&mut self, is_short: bool) -> usize {
        self.short = if is_short { self.short + 1 } else { 0 };
        match self.short.checked_sub(1) {
            None => 0,
            Some(_) if self.is_served_soon() => usize::from(self.pace == 0),
            Some(before) => (1 << before.min(16)).min(CALLED_MAX),
        }
    }
}

/// Whether most of the last looks found something.
#[derive(Debug, Default)]
struct Majority(u32);

impl Majority {
    fn note(&mut self, found: bool) {
        self.0 = if found { (self.0 + 1).min(LOOKS) } else { self.0.saturating_sub(1) };
    }

    fn is_reached(&self) -> bool {
        self.0 > LOOKS / 2
    }
}

/// How long a thread was ready to run and waited for a core: the second figure of its `schedstat` (proc(5)).
#[derive(Debug)]
struct Waits {
    schedstat: File,
    before: Duration,
}

impl Waits {
    fn of_this_thread() -> Option<Waits> {
        let schedstat = File::open("/proc/thread-self/schedstat").ok()?;
        let mut waits = Waits { schedstat, before: Duration::ZERO };
        waits.since_last()?;
        Some(waits)
    }

    fn since_last(&mut self) -> Option<Duration> {
        let mut text = [0; 80];
        let count = self.schedstat.read_at(&mut text, 0).ok()?;
        let waited = second_figure(text.get(..count)?)?;
        let before = std::mem::replace(&mut self.before, waited);
        Some(waited.saturating_sub(before))
    }
}

fn second_figure(schedstat: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let nanos = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    //! The gauge: what the kernel says is understood, one look is not believed, and threads are called where they help.

    use super::*;

    /// A gauge that the kernel tells nothing, after a look a millisecond with so many calls in each.
    fn gauge(paces: &[u32]) -> CpuPressure {
        let mut gauge = CpuPressure { waits: None, ..CpuPressure::new(10) };
        let mut calls = 0;
        for (tick, pace) in paces.iter().enumerate() {
            calls += pace;
            gauge.look(AT_WORK_MIN, calls, Tick(tick as u64 + 1));
        }
        gauge
    }

    #[test]
    fn the_wait_is_the_second_figure() {
        assert_eq!(second_figure(b"3 73399 1\n"), Some(Duration::from_nanos(73_399)));
        for other in [&b""[..], b"3", b"3 x 1", b"\xff \xff"] {
            assert_eq!(second_figure(other), None);
        }
    }

    #[test]
    fn a_majority_of_looks_decides() {
        let mut majority = Majority::default();
        majority.note(true);
        assert!(!majority.is_reached());
        (0..LOOKS * 2).for_each(|_| majority.note(true));
        assert!(majority.is_reached());
        (0..LOOKS / 2).for_each(|_| majority.note(false));
        assert!(!majority.is_reached());
    }

    #[test]
    fn where_requests_wait_threads_are_called_twice_as_many_each_time() {
        let mut gauge = gauge(&[]);
        let called = [true, true, true, false, true].map(|short| gauge.called(short));
        assert_eq!(called, [1, 2, 4, 0, 1]);
        assert_eq!((0..100).map(|_| gauge.called(true)).max(), Some(CALLED_MAX));
    }

    #[test]
    fn none_is_called_where_threads_come_back_often_enough() {
        let mut brisk = gauge(&[5, 10]);
        assert!(brisk.is_served_soon());
        assert_eq!(brisk.called(true), 0);
        assert!(!gauge(&[10, 5]).is_served_soon(), "the last look counts");
    }

    /// Calls that end often help the first who waits, and not the hundredth.
    #[test]
    fn where_calls_do_not_count_only_full_cores_do() {
        let mut gauge = CpuPressure { waits: None, ..CpuPressure::new(u64::MAX) };
        gauge.look(AT_WORK_MIN, 1000, Tick(1));
        assert_eq!((gauge.is_served_soon(), gauge.called(true)), (false, 1));
        gauge.full = Majority(LOOKS);
        assert_eq!((gauge.is_served_soon(), gauge.called(true)), (true, 0));
    }

    #[test]
    fn on_full_cores_one_is_called_where_nothing_gets_on() {
        for (pace, called) in [(1, 0), (0, 1)] {
            let mut gauge = gauge(&[1, pace]);
            gauge.full = Majority(LOOKS);
            assert_eq!((gauge.is_served_soon(), gauge.called(true)), (true, called));
            gauge.look(AT_WORK_MIN - 1, 0, Tick(9));
            assert!(!gauge.full.is_reached(), "few threads fill no core for long");
        }
    }

    /// What is not served soon has threads of its own, which then come back more often.
    #[test]
    fn on_full_cores_as_many_wait_as_are_served_soon() {
        for (pace, most) in [(0, 0), (5, 50), (50, 500)] {
            let mut gauge = gauge(&[1, pace]);
            assert_eq!(gauge.asking_max(), 0, "there are cores for more threads");
            gauge.full = Majority(LOOKS);
            assert_eq!(gauge.asking_max(), most);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_thread_can_be_measured() {
        assert!(Waits::of_this_thread().is_some_and(|mut waits| waits.since_last().is_some()));
    }
}
