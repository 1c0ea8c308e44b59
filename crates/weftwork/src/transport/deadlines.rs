//! Deadlines of peers. Every deadline is computed in this file.
//!
//! Time that the server itself uses does not count. A [`PeerTimer`] counts only the time spent waiting for the peer.

use std::time::Duration;

use super::clock::Tick;
use crate::settings::Settings;

/// Kind of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// A PROXY header did not arrive completely in time.
    ProxyHeader,
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

    /// Returns the time at which the average rate falls below the minimum if no more bytes arrive.
    fn too_slow(&self, settings: &Settings, grace: Duration) -> Tick {
        let enough = self.bytes.saturating_mul(1000).checked_div(settings.rate_bytes_min);
        let paid = enough.map_or(Duration::MAX, Duration::from_millis);
        self.since.after(paid.max(grace))
    }
}
