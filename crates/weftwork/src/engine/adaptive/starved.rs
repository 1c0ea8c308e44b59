//! How is it told that work waits since every thread is taken, and how often?
//!
//! From outside it looks like a server that hangs: what holds the threads may be connections that were upgraded, which are
//! no requests in progress and which nothing else tells of.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Shared;
use crate::transport::Tick;

/// The second of the last line, counted from 1.
#[derive(Debug, Default)]
pub(super) struct Starved(AtomicU64);

impl Starved {
    fn was_told(&self, now: Tick) -> bool {
        self.0.load(Ordering::Relaxed) > now.0 / 1000
    }

    /// One of those who ask within the same second.
    fn may_tell(&self, now: Tick) -> bool {
        let second = now.0 / 1000 + 1;
        self.0.fetch_max(second, Ordering::Relaxed) < second
    }
}

impl Shared {
    /// Something that wants a thread got none: once a second the log says so, if it is for want of `threads_max`.
    #[cold]
    pub(super) fn note_starved(&self, now: Tick) {
        if self.starved.was_told(now) || !self.standby.is_at_limit() || !self.starved.may_tell(now) {
            return;
        }
        let upgrades = self.cx.counters.taken_over.load(Ordering::Relaxed);
        let knobs = self.cx.settings.show(&["threads_max"]);
        log::warn!(
            "requests wait, or are refused: all threads are taken ({knobs}), {upgrades} of them by upgraded connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_a_second() {
        let starved = Starved::default();
        for (now, tells) in
            [(0, true), (999, false), (1000, true), (1001, false), (9500, true), (9400, false)]
        {
            assert_eq!((starved.was_told(Tick(now)), starved.may_tell(Tick(now))), (!tells, tells), "{now}");
        }
    }
}
