//! Time: ticks of a millisecond since the server started, the text of the `Date` field, and the deadlines of peers. Every
//! deadline is computed in this file.
//!
//! Time that the server itself uses does not count. A [`PeerTimer`] counts only the time spent waiting for the peer.

use std::time::{Duration, Instant, SystemTime};

use weftwork_wire::Date;

use crate::settings::Settings;

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

/// Times of `write_timeout` within which a client must have read what the kernel holds. That is a few MiB at most.
const READER_PAUSES: u32 = 4;

/// Kind of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// A PROXY header did not arrive completely in time.
    ProxyHeader,
    /// A TLS handshake did not end in time.
    Handshake,
    /// No byte of the next request arrived in time.
    Idle,
    /// A head did not arrive completely in time.
    Head,
    /// A body paused for too long, or arrived too slowly.
    Body,
    /// The peer did not read the response, or read it too slowly.
    Write,
    /// The rest of an unread body did not arrive in time.
    Drain,
    /// The peer continued to send after an early response.
    Linger,
    /// Nothing was sent and nothing arrived on a long-lived connection. This is no fault. The server sends a heartbeat.
    Heartbeat,
}

impl TimeoutKind {
    /// Returns the settings that change this deadline.
    pub(crate) fn settings(self) -> &'static [&'static str] {
        match self {
            TimeoutKind::ProxyHeader => &["proxy_header_timeout"],
            TimeoutKind::Handshake => &["tls_handshake_timeout"],
            TimeoutKind::Idle => &["idle_timeout"],
            TimeoutKind::Head => &["head_timeout", "rate_bytes_min"],
            TimeoutKind::Body => &["body_idle_timeout", "rate_bytes_min"],
            TimeoutKind::Write => &["write_timeout", "rate_bytes_min"],
            TimeoutKind::Drain => &["unread_timeout"],
            TimeoutKind::Linger => &["linger_timeout"],
            TimeoutKind::Heartbeat => &["heartbeat"],
        }
    }
}

/// Progress of a peer in its current step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerTimer {
    pub(crate) kind: TimeoutKind,
    /// Start of the step, moved later by the time that the server itself used.
    since: Tick,
    /// Time of the last progress.
    progress: Tick,
    /// Number of bytes so far.
    bytes: u64,
}

impl PeerTimer {
    pub(crate) fn start(kind: TimeoutKind, now: Tick) -> PeerTimer {
        PeerTimer { kind, since: now, progress: now, bytes: 0 }
    }

    /// Starts the peer's next step. The clock of a loop stands still during a cycle, so `now` may be earlier than the
    /// time the server's code has used, here and below. That time does not count against the peer.
    pub(crate) fn then(&self, kind: TimeoutKind, now: Tick) -> PeerTimer {
        PeerTimer::start(kind, now.max(self.progress))
    }

    /// Adds bytes that arrived before the step began.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub(crate) fn advance(&mut self, bytes: usize, now: Tick) {
        self.count(bytes);
        self.progress = now.max(self.progress);
    }

    /// Excludes the time until now, in which the server's code ran and the peer could do nothing.
    pub(crate) fn resume(&mut self, now: Tick) {
        let away = now.0.saturating_sub(self.progress.0);
        self.since.0 += away;
        self.progress = now;
    }

    /// Returns the time of the peer's last progress. While a request waits for its handler, that is the arrival of its
    /// last byte.
    pub(crate) fn progress(&self) -> Tick {
        self.progress
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time since when the server waits for the peer in this step.
    pub(crate) fn began(&self) -> Tick {
        self.since
    }

    /// Returns the deadline of the peer.
    pub(crate) fn deadline(&self, settings: &Settings) -> Tick {
        match self.kind {
            TimeoutKind::ProxyHeader => self.since.after(settings.proxy_header_timeout),
            TimeoutKind::Handshake => self.since.after(settings.tls_handshake_timeout),
            TimeoutKind::Idle => self.since.after(settings.idle_timeout),
            TimeoutKind::Head => {
                self.since.after(settings.head_timeout).min(self.too_slow(settings, settings.rate_grace))
            }
            TimeoutKind::Body => {
                let pause = settings.body_idle_timeout;
                self.progress.after(pause).min(self.too_slow(settings, settings.rate_grace))
            }
            TimeoutKind::Write => self.write_deadline(settings, settings.write_timeout),
            TimeoutKind::Drain => self.since.after(settings.unread_timeout),
            TimeoutKind::Linger => self.since.after(settings.linger_timeout),
            TimeoutKind::Heartbeat => self.progress.after(settings.heartbeat),
        }
    }

    /// Returns the deadline of a peer that reads a response and may pause for this long.
    pub(crate) fn write_deadline(&self, settings: &Settings, pause: Duration) -> Tick {
        self.progress.after(pause).min(self.too_slow(settings, pause))
    }

    /// Returns the deadline of a client of HTTP/2 that may still read, and of which only small frames arrive meanwhile.
    pub(crate) fn reader_deadline(&self, settings: &Settings) -> Tick {
        let pause = settings.write_timeout;
        self.progress.after(pause).min(self.since.after(pause.saturating_mul(READER_PAUSES)))
    }

    /// Returns the time at which the average rate falls below the minimum if no more bytes arrive.
    fn too_slow(&self, settings: &Settings, grace: Duration) -> Tick {
        let enough = self.bytes.saturating_mul(1000).checked_div(settings.rate_bytes_min);
        let paid = enough.map_or(Duration::MAX, Duration::from_millis);
        self.since.after(paid.max(grace))
    }
}

#[cfg(test)]
mod date_tests {
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
