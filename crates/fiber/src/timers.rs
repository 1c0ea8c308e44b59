//! The timers of one thread.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::slab::Key;

/// Key of a timer, ordered by its deadline.
pub(crate) type TimerKey = (Instant, u64);

/// The effect of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerEntry {
    pub(crate) fiber: Key,
    /// The `timeout` that has elapsed. `None` for a wake-up.
    pub(crate) scope: Option<u64>,
}

/// The timers of one thread. This is an ordered map instead of a heap, because nearly every timer guards a read
/// and is removed before it fires. A heap would keep thirty seconds of dead entries.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pending: BTreeMap<TimerKey, TimerEntry>,
    next_id: u64,
}

impl Timers {
    pub(crate) fn insert(&mut self, at: Instant, entry: TimerEntry) -> TimerKey {
        self.next_id += 1;
        let key = (at, self.next_id);
        self.pending.insert(key, entry);
        key
    }

    /// Removes a timer. Returns false if it has fired.
    pub(crate) fn remove(&mut self, key: TimerKey) -> bool {
        self.pending.remove(&key).is_some()
    }

    pub(crate) fn is_pending(&self, key: TimerKey) -> bool {
        self.pending.contains_key(&key)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes the earliest timer that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<TimerEntry> {
        let first = self.pending.first_entry()?;
        if first.key().0 > now { None } else { Some(first.remove()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::slab::Slab;

    #[test]
    fn alarms_come_in_order_of_their_deadlines_and_not_early() {
        let mut fibers = Slab::new();
        let mut timers = Timers::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut entry = || TimerEntry { fiber: fibers.insert(()), scope: None };
        let (late, early, same) = (entry(), entry(), entry());
        timers.insert(after(20), late);
        timers.insert(after(10), early);
        timers.insert(after(10), same);

        assert_eq!(timers.next_deadline(), Some(after(10)));
        assert_eq!(timers.pop(after(9)), None);
        assert_eq!(timers.pop(after(10)), Some(early));
        assert_eq!(timers.pop(after(10)), Some(same));
        assert_eq!(timers.pop(after(10)), None);
        assert_eq!(timers.pop(after(99)), Some(late));
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn a_timer_taken_back_does_not_fire() {
        let mut fibers = Slab::new();
        let mut timers = Timers::default();
        let now = Instant::now();
        let key = timers.insert(now, TimerEntry { fiber: fibers.insert(()), scope: None });
        assert!(timers.is_pending(key) && timers.remove(key) && !timers.is_pending(key));
        assert_eq!((timers.remove(key), timers.pop(now)), (false, None));
    }
}
