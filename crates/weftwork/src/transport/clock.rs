//! Time in ticks of a millisecond since the server started, and the text of the `Date` field.

use std::time::{Duration, Instant, SystemTime};

use weftwork_wire::Date;

/// Milliseconds since the server's [`Clock`] started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// Returns the tick after this duration. A duration beyond the range of the clock means never.
    pub(crate) fn after(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the duration until then, or zero if it has passed.
    pub(crate) fn until(self, later: Tick) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Clock of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Tick {
        self.at(Instant::now())
    }

    /// Returns the instant of a tick, unless the clock cannot reach it.
    pub(crate) fn moment(&self, tick: Tick) -> Option<Instant> {
        self.start.checked_add(Duration::from_millis(tick.0))
    }

    /// Returns the first tick that is not before an instant.
    pub(crate) fn at_last(&self, moment: Instant) -> Tick {
        let nanos = moment.saturating_duration_since(self.start).as_nanos();
        Tick(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Returns the tick of an instant that was already read from the clock.
    pub(crate) fn at(&self, moment: Instant) -> Tick {
        Tick(moment.saturating_duration_since(self.start).as_millis() as u64)
    }
}

/// `Date` text, formatted once a second for each thread that responds (libreactor keeps one per loop).
#[derive(Clone, Debug)]
pub(crate) struct DateCache {
    /// Tick at which the text was formatted.
    since: Tick,
    /// Number of ticks until the next second of the time of day begins.
    valid_for: u64,
    date: Date,
}

impl DateCache {
    pub(crate) fn new(now: Tick) -> DateCache {
        DateCache::of(now, SystemTime::now())
    }

    fn of(now: Tick, time: SystemTime) -> DateCache {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        DateCache { since: now, valid_for: 1000 - u64::from(since.subsec_millis()), date: Date::at(time) }
    }

    pub(crate) fn at(&mut self, now: Tick) -> &Date {
        if !self.is_valid(now) {
            *self = DateCache::new(now);
        }
        &self.date
    }

    /// Returns false for an earlier tick too. A thread may have read the clock before another thread filled the cache.
    fn is_valid(&self, now: Tick) -> bool {
        now.0.wrapping_sub(self.since.0) < self.valid_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The date follows the time of day, not the second in which the server started.
    #[test]
    fn a_date_is_formatted_again_when_the_next_second_begins() {
        for (millis, valid_for) in [(0, 1000), (1, 999), (400, 600), (999, 1)] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_000 + millis);
            let dates = DateCache::of(Tick(5000), time);
            assert_eq!(dates.date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
            assert!(dates.is_valid(Tick(5000)) && dates.is_valid(Tick(4999 + valid_for)), "{millis}");
            assert!(!dates.is_valid(Tick(5000 + valid_for)) && !dates.is_valid(Tick(4999)), "{millis}");
        }
    }
}
