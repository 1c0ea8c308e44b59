//! Closes connections: idle ones when the cap is reached, all of them when the server drains.

use std::time::Duration;

use super::{EventLoop, LoopGroup, Ready};
use crate::transport::context::{Context, Stage};

/// Who has asked for nothing for so long gives its place to somebody who waits for one: 1 s, in which a page and what
/// belongs to it have come.
pub(in crate::engine) const IDLE_KEPT: Duration = Duration::from_secs(1);
/// So many connections are looked at each time somebody was not let in, every 2 ms at most: those of a loop
/// with 15,000 within half a second.
const ROOM_LOOKS: u32 = 64;

impl EventLoop {
    /// Somebody waits outside. Of the next few connections, those that are idle end, or else who holds all places with a
    /// request a minute would keep everybody out.
    pub(super) fn close_idle(&mut self) {
        let slots = self.table.indices().end;
        for _ in 0..ROOM_LOOKS.min(slots) {
            self.idle_cursor = (self.idle_cursor + 1) % slots;
            let Some((token, conn)) = self.table.peek(self.idle_cursor) else { continue };
            if conn.is_idle_for(IDLE_KEPT, self.now)
                && let Some(mut conn) = self.table.take(token)
            {
                // A request may have come since the last look: there is one more, and then the connection ends.
                conn.end_when_idle(self.now);
                self.posted_next.push(Ready { token, ended: false });
                self.table.put(token, conn);
            }
        }
    }

    /// The others, one at a time: each asks the next while somebody waits.
    pub(super) fn request_close_idle(&mut self, loops: &LoopGroup) {
        self.idle_peer = (self.idle_peer + 1) % loops.len();
        if self.idle_peer == self.index {
            self.idle_peer = (self.idle_peer + 1) % loops.len();
        }
        if self.idle_peer != self.index {
            loops.request_close_idle(self.idle_peer);
        }
    }

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
                    self.doors.close(self.poll.registry());
                    self.drop_idle();
                }
                !cx.counters.has_clients()
            }
            Stage::Closing => true,
        }
    }

    /// Connections with nothing in progress end at once, except fresh ones. Those that wait for a feed are told.
    fn drop_idle(&mut self) {
        for entry in self.table.indices() {
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            // A request may have come since the last look: there is one more, and then the connection ends.
            if conn.is_idle() || conn.is_fed() {
                self.posted_next.push(Ready { token, ended: false });
            }
        }
    }
}
