//! Who keeps the connections that have nothing to do? The porter: one event loop without a door.
//!
//! Idle connections, slow senders and slow readers are parked here, each with its deadline, and cost no
//! thread. When a request is whole, the connection goes back to the pool's threads. The porter also sees off
//! those who were turned away at the door, so that they can read why.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Shared;
use crate::conn::Conn;
use crate::engine::contained;
use crate::engine::hub::Letter;
use crate::engine::turn::{Loop, Next};
use crate::transport::context::Stage;
use crate::transport::counters::Counters;

impl Shared {
    /// The life of the porter.
    pub(super) fn keep_parked(self: &Arc<Shared>, mut lp: Loop) {
        // A panic is a bug of ours. It costs the connection that it came upon.
        while catch_unwind(AssertUnwindSafe(|| self.keep(&mut lp))).is_err() {
            contained();
        }
    }

    fn keep(self: &Arc<Shared>, lp: &mut Loop) {
        loop {
            match lp.next(&self.hub, &self.cx) {
                Next::Stop => return,
                // A response that others have brought was promised to them, and its handler has run: it may wait in any queue.
                Next::Call(errand) if !errand.conn.awaits_response() && self.is_full() => {
                    lp.shed(errand, &self.cx);
                }
                Next::Call(errand) => {
                    let mut conn = lp.detach(errand);
                    conn.queued_since = self.roster.is_pressed().then(|| self.cx.clock.now());
                    self.enqueue(conn);
                }
            }
        }
    }

    /// The queue holds those as well for whom there is a thread that has not come yet: they do not count.
    fn is_full(&self) -> bool {
        let queue = self.lock_queue();
        queue.len() >= self.cx.settings.queue_max.saturating_add(self.roster.free())
    }

    /// Brings a connection to the porter.
    pub(super) fn park(&self, conn: Box<Conn>) {
        self.hub.post(0, Letter::Home(conn));
    }

    /// A request is whole: the next thread takes it, unless it was its turn to look at the door.
    pub(super) fn enqueue(&self, conn: Box<Conn>) {
        self.lock_queue().push_back(conn);
        if self.cx.stage() == Stage::Closing {
            // The threads may have looked for the last time.
            self.lock_queue().clear();
        }
        if self.roster.is_pressed() {
            Counters::count(&self.cx.counters.queued);
        }
        self.bell.ring();
    }
}
