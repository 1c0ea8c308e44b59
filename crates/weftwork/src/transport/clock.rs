//! What time it is, in ticks of a millisecond since the server started, and as the `Date` field's text.

use std::time::{Duration, Instant, SystemTime};

use weftwork_wire::Date;

/// Milliseconds since the server's [`Clock`] started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// This far later; a duration that no clock can reach means never.
    pub(crate) fn after(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until then; zero when it has passed.
    pub(crate) fn until(self, later: Tick) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// The one clock of a server.
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

    /// The moment that a tick stands for; none where no clock can reach it.
    pub(crate) fn moment(&self, tick: Tick) -> Option<Instant> {
        self.start.checked_add(Duration::from_millis(tick.0))
    }

    /// The first tick that is no sooner than a moment.
    pub(crate) fn at_last(&self, moment: Instant) -> Tick {
        let nanos = moment.saturating_duration_since(self.start).as_nanos();
        Tick(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// The tick of a moment that was looked up already.
    pub(crate) fn at(&self, moment: Instant) -> Tick {
        Tick(moment.saturating_duration_since(self.start).as_millis() as u64)
    }
}

/// The `Date` text, formatted once a second for each thread that answers (libreactor keeps one per loop).
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
