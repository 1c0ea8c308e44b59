//! How does a loop follow the server into draining and closing?

use std::sync::atomic::Ordering;

use super::{Loop, Ready};
use crate::transport::context::{Context, Stage};

impl Loop {
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
                cx.counters.connections.load(Ordering::Acquire) == 0
            }
            Stage::Closing => true,
        }
    }

    /// Connections with nothing in progress end at once, those that were never used among them; those that wait
    /// for others are told.
    fn drop_idle(&mut self) {
        for entry in self.table.indices() {
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            // A request may have come since the last look: there is one more, and then the connection ends.
            if conn.is_between_requests() || conn.is_fed() {
                self.again.push(Ready { token, ended: false });
            } else if conn.is_idle() {
                drop(self.table.take(token));
                self.release(token);
            }
        }
    }
}
