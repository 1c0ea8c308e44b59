//! Closes connections: idle ones when the cap is reached, all of them when the server drains.

use std::time::Duration;

use super::{EventLoop, Ready};
use crate::transport::context::{Context, Stage};

/// A connection that is idle for this long may be closed for one that waits. A page and its parts load within 1 s.
pub(in crate::engine) const IDLE_KEPT: Duration = Duration::from_secs(1);
/// The same for a connection that only lingers. All of its response was sent.
pub(in crate::engine) const LINGER_KEPT: Duration = Duration::from_millis(50);
/// Connections that are checked each time the cap keeps one out, at most every 2 ms. A loop with 15,000 is through
/// within half a second.
const IDLE_LOOKS: u32 = 64;

impl EventLoop {
    pub(super) fn stage_is_known(&self, cx: &Context) -> bool {
        match cx.stage() {
            Stage::Running => true,
            Stage::Draining => self.draining,
            Stage::Closing => false,
        }
    }

    /// Follows the server into draining and closing.
    pub(in crate::engine) fn is_over(&mut self, cx: &Context) -> bool {
        match cx.stage() {
            Stage::Running => false,
            Stage::Draining => {
                if !std::mem::replace(&mut self.draining, true) {
                    self.drain();
                    self.handle().stop_accepting();
                }
                !cx.counters.has_clients()
            }
            Stage::Closing => {
                self.cut_off(cx);
                true
            }
        }
    }

    /// Closes the idle and lingering ones among the next few connections: the cap is reached, and a connection waits. Otherwise
    /// clients that send a request a minute could hold all slots.
    pub(super) fn close_idle(&mut self) {
        let slots = self.table.indices().end;
        for _ in 0..IDLE_LOOKS.min(slots) {
            self.idle_cursor = (self.idle_cursor + 1) % slots;
            let Some((token, conn)) = self.table.peek(self.idle_cursor) else { continue };
            if (conn.is_idle_for(IDLE_KEPT, self.now) || conn.is_lingering_for(LINGER_KEPT, self.now))
                && let Some(mut conn) = self.table.take(token)
            {
                // A request may have come since the last look: there is one more, and then the connection ends.
                conn.end_when_idle(self.now);
                self.posted_next.push(Ready { token, ended: false });
                self.table.put(token, conn);
            }
        }
    }

    /// Resets the connections whose request or response is in progress.
    pub(super) fn cut_off(&mut self, cx: &Context) {
        // Requests of HTTP/2 are told by their connections, which must still find them.
        for has_streams in [true, false] {
            for entry in self.table.indices() {
                let found = self.table.peek(entry).filter(|(_, conn)| conn.has_streams() == has_streams);
                let token = found.map(|(token, _)| token);
                let Some(mut conn) = token.and_then(|token| self.table.take(token)) else { continue };
                match has_streams {
                    true => conn.cut_off_http2(self.now, cx),
                    false => conn.cut_off(),
                }
            }
        }
    }

    /// Accepts no more, and ends connections with nothing in progress, except fresh ones. Connections that wait for a feed are
    /// told.
    pub(super) fn drain(&mut self) {
        self.acceptor.close(self.poll.registry());
        for entry in self.table.indices() {
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            // A request may have come since the last look: there is one more, and then the connection ends.
            if conn.is_idle() || conn.is_fed() {
                self.posted_next.push(Ready { token, ended: false });
            }
        }
    }
}
