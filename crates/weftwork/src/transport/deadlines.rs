//! Until when a connection may wait: every deadline of a peer is computed here, and nowhere else.
//!
//! The peer's clock stops while our code runs: a [`Pace`] only counts the time that was spent waiting.

use std::time::Duration;

use super::clock::Tick;
use crate::settings::Settings;

/// Which deadline it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// A PROXY header was not whole in time.
    ProxyHeader,
    /// Nothing of the next request came.
    Idle,
    /// A head was not whole in time.
    Head,
    /// A body paused too long, or came too slowly.
    Body,
    /// The peer did not take the response, or took it too slowly.
    Write,
    /// The rest of an unread body did not come.
    Drain,
    /// The peer went on sending after an early answer.
    Linger,
    /// Nothing was brought to a feed and nothing came: no fault, only time to show that we live.
    Silence,
}

impl Timeout {
    /// The settings that a user turns to change it.
    pub(crate) fn knobs(self) -> &'static [&'static str] {
        match self {
            Timeout::ProxyHeader => &["proxy_header_timeout"],
            Timeout::Idle => &["idle_timeout"],
            Timeout::Head => &["head_timeout", "rate_bytes_min"],
            Timeout::Body => &["body_idle_timeout", "rate_bytes_min"],
            Timeout::Write => &["write_timeout", "rate_bytes_min"],
            Timeout::Drain => &["unread_timeout"],
            Timeout::Linger => &["linger_timeout"],
            Timeout::Silence => &["heartbeat"],
        }
    }
}

/// How a peer has been getting on with what it is doing now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) what: Timeout,
    /// When it began, moved later by the time that our own code took.
    since: Tick,
    /// When it last got on.
    progress: Tick,
    /// How far it got.
    bytes: u64,
}

impl Pace {
    pub(crate) fn start(what: Timeout, now: Tick) -> Pace {
        Pace { what, since: now, progress: now, bytes: 0 }
    }

    /// What the peer does next. A loop's clock stands still while it turns, so `now` may be behind what our
    /// code has been seen to take, here and below: that is not on the peer's clock.
    pub(crate) fn then(&self, what: Timeout, now: Tick) -> Pace {
        Pace::start(what, now.max(self.progress))
    }

    /// So much had come before.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub(crate) fn advance(&mut self, bytes: usize, now: Tick) {
        self.count(bytes);
        self.progress = now.max(self.progress);
    }

    /// Our code ran until now: the peer could do nothing meanwhile.
    pub(crate) fn resume(&mut self, now: Tick) {
        let away = now.0.saturating_sub(self.progress.0);
        self.since.0 += away;
        self.progress = now;
    }

    /// When the peer last got on: while a request waits for its handler, when the last of it came.
    pub(crate) fn progress(&self) -> Tick {
        self.progress
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Since when the peer is waited for, in what it does now.
    pub(crate) fn began(&self) -> Tick {
        self.since
    }

    /// When the peer's time is up.
    pub(crate) fn deadline(&self, settings: &Settings) -> Tick {
        match self.what {
            Timeout::ProxyHeader => self.since.after(settings.proxy_header_timeout),
            Timeout::Idle => self.since.after(settings.idle_timeout),
            Timeout::Head => {
                self.since.after(settings.head_timeout).min(self.too_slow(settings, settings.rate_grace))
            }
            Timeout::Body => {
                let pause = settings.body_idle_timeout;
                self.progress.after(pause).min(self.too_slow(settings, settings.rate_grace))
            }
            Timeout::Write => self.write_deadline(settings, settings.write_timeout),
            Timeout::Drain => self.since.after(settings.unread_timeout),
            Timeout::Linger => self.since.after(settings.linger_timeout),
            Timeout::Silence => self.progress.after(settings.heartbeat),
        }
    }

    /// When the time of a peer is up that takes what is written, and may pause this long.
    pub(crate) fn write_deadline(&self, settings: &Settings, pause: Duration) -> Tick {
        self.progress.after(pause).min(self.too_slow(settings, pause))
    }

    /// When the average falls under the least rate, if no more bytes come.
    fn too_slow(&self, settings: &Settings, grace: Duration) -> Tick {
        let enough = self.bytes.saturating_mul(1000).checked_div(settings.rate_bytes_min.0);
        let paid = enough.map_or(Duration::MAX, Duration::from_millis);
        self.since.after(paid.max(grace))
    }
}
