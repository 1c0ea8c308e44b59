//! The receiver of another protocol: gets the bytes of its client while it has room for them.

use std::io;
use std::task::Poll;

use bytes::Bytes;

use crate::error::panic_message;
use crate::message::drop_caught::caught;
use crate::message::{Feed, IdlePolicy, UpgradeHandler, UpgradePanic};
use crate::transport::Tick;
use crate::transport::context::Context;

/// Bytes that a receiver may leave to be passed again. A receiver that needs more must keep them itself, within its own
/// limit.
const LEFT_BYTES_MAX: usize = 64 << 10;

/// A receiver and its progress.
pub(super) struct Receiver {
    handler: Box<dyn UpgradeHandler>,
    idle_policy: IdlePolicy,
    /// Time of the last bytes, or of the end of a pause.
    last_read: Tick,
    /// Number of bytes that it has seen and not consumed.
    left: usize,
    readiness: Readiness,
}

/// Whether the receiver has room for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// It was not asked since its last bytes.
    Unknown,
    Ready,
    /// It waits until the receiver's waker is called.
    Pending,
}

impl Receiver {
    pub(super) fn new(handler: Box<dyn UpgradeHandler>, idle_policy: IdlePolicy, now: Tick) -> Receiver {
        Receiver { handler, idle_policy, last_read: now, left: 0, readiness: Readiness::Unknown }
    }

    /// Passes bytes on, as far as there is room. Returns how many bytes are done.
    pub(super) fn on_data(&mut self, bytes: &[u8], feed: &Feed, now: Tick) -> io::Result<usize> {
        let mut used = 0;
        // If a line without an end were searched again for each message, its cost would depend on the client.
        while self.asks_for_room(feed, now)? && bytes.len() - used > self.left {
            let rest = &bytes[used..];
            let count = contained(|| self.handler.on_data(rest))?.min(rest.len());
            used += count;
            (self.last_read, self.left, self.readiness) = (now, rest.len() - count, Readiness::Unknown);
            if self.left > LEFT_BYTES_MAX {
                return Err(io::Error::other("its receiver leaves more than 64 KiB to be passed again"));
            }
        }
        Ok(used)
    }

    fn asks_for_room(&mut self, feed: &Feed, now: Tick) -> io::Result<bool> {
        if self.readiness == Readiness::Unknown || self.is_woken(feed) {
            let handler = &mut self.handler;
            let has_room = feed.ask_for_room(|cx| {
                contained(|| match handler.poll_ready(cx) {
                    Poll::Ready(ready) => ready.map(|()| true),
                    Poll::Pending => Ok(false),
                })
            })?;
            if has_room && self.readiness == Readiness::Pending {
                // Its rest is passed again. The client could not show meanwhile that it is alive.
                (self.left, self.last_read) = (0, now);
            }
            self.readiness = if has_room { Readiness::Ready } else { Readiness::Pending };
        }
        Ok(self.has_room())
    }

    pub(super) fn has_room(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// Returns whether its room is to be asked for again.
    pub(super) fn is_woken(&self, feed: &Feed) -> bool {
        self.readiness == Readiness::Pending && !feed.awaits_room()
    }

    /// Handles a silence of the setting `heartbeat`. While nothing is read, the client is not silent.
    pub(super) fn on_idle(&mut self, now: Tick, cx: &Context) -> io::Result<()> {
        if self.readiness == Readiness::Pending {
            return Ok(());
        }
        let timeout = cx.settings.upgrade_idle_timeout;
        if self.idle_policy == IdlePolicy::Bounded
            && !timeout.is_zero()
            && now >= self.last_read.after(timeout)
        {
            let setting = cx.settings.show(&["upgrade_idle_timeout"]);
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("its client was silent for too long ({setting})"),
            ));
        }
        contained(|| self.handler.on_idle())
    }

    /// Returns whether it goes on after the server has begun to stop.
    pub(super) fn on_shutdown(&mut self) -> bool {
        contained(|| Ok(self.handler.on_shutdown())).unwrap_or_default()
    }
}

/// Contains panics of a receiver, because it runs on the thread of a loop.
fn contained<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(call, |panic| {
        let final_message = Bytes::new();
        Err(io::Error::other(UpgradePanic { message: panic_message(panic).to_owned(), final_message }))
    })
}
