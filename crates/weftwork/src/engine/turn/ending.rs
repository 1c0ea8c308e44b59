//! Which connections does a loop end: as the server drains or closes, and where others wait for their places?

use std::time::Duration;

use super::{Hub, Loop, Ready};
use crate::transport::context::{Context, Stage};

/// Who has asked for nothing for so long gives its place to somebody who waits for one: 1 s, in which a page and what
/// belongs to it have come.
pub(in crate::engine) const IDLE_KEPT: Duration = Duration::from_secs(1);
/// So many connections are looked at each time somebody was not let in, every 2 ms at most: those of a loop
/// with 15,000 within half a second.
const ROOM_LOOKS: u32 = 64;

impl Loop {
    /// Somebody waits outside. Of the next few connections, those that are idle end, or else who holds all places with a
    /// request a minute would keep everybody out.
    pub(super) fn make_room(&mut self) {
        let slots = self.table.indices().end;
        for _ in 0..ROOM_LOOKS.min(slots) {
            self.room_seen = (self.room_seen + 1) % slots;
            let Some((token, conn)) = self.table.peek(self.room_seen) else { continue };
            if conn.is_idle_for(IDLE_KEPT, self.now)
                && let Some(mut conn) = self.table.take(token)
            {
                // A request may have come since the last look: there is one more, and then the connection ends.
                conn.end_when_idle(self.now);
                self.again.push(Ready { token, ended: false });
                self.table.put(token, conn);
            }
        }
    }

    /// The others, one at a time: each asks the next while somebody waits.
    pub(super) fn ask_for_room(&mut self, hub: &Hub) {
        self.room_asked = (self.room_asked + 1) % hub.len();
        if self.room_asked == self.index {
            self.room_asked = (self.room_asked + 1) % hub.len();
        }
        if self.room_asked != self.index {
            hub.ask_for_room(self.room_asked);
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

    /// Connections with nothing in progress end at once, but for fresh ones; those that wait for others are told.
    fn drop_idle(&mut self) {
        for entry in self.table.indices() {
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            // A request may have come since the last look: there is one more, and then the connection ends.
            if conn.is_idle() || conn.is_fed() {
                self.again.push(Ready { token, ended: false });
            }
        }
    }
}
