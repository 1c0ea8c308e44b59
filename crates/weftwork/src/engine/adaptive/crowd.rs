//! When does a blocking call wait for a thread that is at work already, and not get one of its own?
//!
//! A thread for each blocking call is right as long as a core is soon free to run it. Where many more threads
//! are ready to run than there are cores, one more of them only waits in the kernel's queue instead of ours,
//! and brings its stack and its buffers into the caches. There the calls wait in the standby's queue, and a
//! thread that has answered takes the next one from it: one change of threads for each request, where a thread
//! for each connection needs two. To lead the loop is what they take turns in, too. With 400 connections that
//! block for 1 ms on one core, that is 1.02 of the answers of a bare loop of threads without HTTP, where a thread for
//! each gave 0.81, in the same run.
//!
//! The watcher finds out whether the cores are full: the kernel tells how long its thread was ready to run and
//! had to wait for a core. Where the kernel does not tell, each call has its thread.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::Shared;

/// So many threads at work are a crowd, if there are more than the cores can run; with half as many it is over, and so it
/// is when the cores are not full any more: those at work may all wait for something else.
const CROWD_MIN: usize = 32;
/// There are more threads than the cores can run when each waits for a core as long as this: on one full core,
/// 100 clients of a call of 1 ms come to 0.1 ms and are still served best by a thread each, 400 come to 1.3.
const CROWDED: Duration = Duration::from_millis(1);
/// In a crowd, one more thread is called only while it would wait for less than this.
const FULL: Duration = Duration::from_micros(60);
/// So many looks in a row make up the watcher's mind: one alone says little.
const LOOKS: u32 = 16;
/// After so many looks in a row at cores that are not full, a crowd is none. Where requests wait, [`CALLED_MAX`] threads
/// were called in each of them, and still the cores had room. Less than the watcher looks at nothing before it sleeps.
const CALM_LOOKS: u32 = 2 * LOOKS;
/// So many threads are called in one look, while cores are free and requests wait. Whether they were too many shows some
/// looks later, and then all of them want to run.
const CALLED_MAX: usize = 2;

/// As many looks later, at the most, the last in the queue should be taken: 400 calls of 1 ms are after 10.
const WAIT_LOOKS_MAX: u64 = 20;

/// What the watcher has found out, for those who serve.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pub(super) gathered: AtomicBool,
    /// In tests, whatever may block is taken for a crowd.
    #[cfg(test)]
    pub(super) always: AtomicBool,
    /// Calls made without the loop: where there are some, the watcher stays awake.
    calls: CachePadded<AtomicU32>,
}

/// What the watcher measures.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    waits: Option<Waits>,
    full: Majority,
    crowded: Majority,
    /// So many looks in a row found cores that are not full.
    calm: u32,
    calls: u32,
    taken: u64,
}

/// What there is to watch.
pub(super) struct Seen {
    /// Requests wait for a thread.
    pub(super) queue: bool,
    /// Threads without a loop have made calls.
    pub(super) calls: bool,
}

impl Crowd {
    /// Calls that are expected to block go to the queue.
    pub(super) fn is_gathered(&self) -> bool {
        #[cfg(test)]
        if self.always.load(Ordering::Relaxed) {
            return true;
        }
        self.gathered.load(Ordering::Relaxed)
    }

    pub(super) fn note_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Gauge {
    /// Measures the calling thread.
    pub(super) fn new() -> Gauge {
        Gauge { waits: Waits::of_this_thread(), ..Gauge::default() }
    }

    fn look(&mut self) {
        let Some(waited) = self.waits.as_mut().and_then(Waits::since_last) else { return };
        self.full.note(waited > FULL);
        self.crowded.note(waited > CROWDED);
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

/// How many threads more are called, when `queued` requests wait and `taken` were taken since the last look.
///
/// On full cores one, where those at work get on so slowly that the last in the queue would wait for too long: what
/// they wait for is not the cores.
fn called(full: bool, queued: usize, taken: u64) -> usize {
    match full {
        false => queued.min(CALLED_MAX),
        true => usize::from(queued as u64 > taken * WAIT_LOOKS_MAX),
    }
}

impl Shared {
    /// The watcher's look at the threads.
    pub(super) fn see_to_the_crowd(self: &Arc<Shared>, gauge: &mut Gauge) -> Seen {
        let muster = self.standby.muster();
        let at_work = muster.busy.saturating_sub(self.seats.len());
        if at_work >= CROWD_MIN / 2 {
            gauge.look();
        }
        let full = gauge.full.is_reached();
        gauge.calm = if full { 0 } else { gauge.calm.saturating_add(1) };
        let gathered = if self.crowd.is_gathered() {
            at_work >= CROWD_MIN / 2 && gauge.calm < CALM_LOOKS
        } else {
            at_work >= CROWD_MIN && gauge.crowded.is_reached()
        };
        self.crowd.gathered.store(gathered, Ordering::Relaxed);

        for _ in 0..called(full, muster.queued, muster.taken - gauge.taken) {
            self.call_for_queue();
        }
        let calls = self.crowd.calls.load(Ordering::Relaxed);
        let seen = Seen { queue: muster.queued > 0, calls: calls != gauge.calls };
        (gauge.taken, gauge.calls) = (muster.taken, calls);
        seen
    }
}

#[cfg(test)]
mod tests {
    //! The gauge: what the kernel says is understood, and one look is not believed.

    use super::*;

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
    fn threads_are_called_for_free_cores_and_for_slow_calls() {
        assert_eq!(called(false, 1, 0), 1);
        assert_eq!(called(false, 300, 40), CALLED_MAX);
        assert_eq!(called(true, 300, 40), 0);
        assert_eq!(called(true, 300, 1), 1);
        assert_eq!(called(true, 1, 0), 1);
        assert_eq!(called(true, 0, 0), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_thread_can_be_measured() {
        assert!(Waits::of_this_thread().is_some_and(|mut waits| waits.since_last().is_some()));
    }
}
