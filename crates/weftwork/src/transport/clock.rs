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
    second: u64,
    date: Date,
}

impl DateCache {
    pub(crate) fn new(now: Tick) -> DateCache {
        DateCache { second: now.0 / 1000, date: Date::at(SystemTime::now()) }
    }

    pub(crate) fn at(&mut self, now: Tick) -> &Date {
        if now.0 / 1000 != self.second {
            *self = DateCache::new(now);
        }
        &self.date
    }
}
