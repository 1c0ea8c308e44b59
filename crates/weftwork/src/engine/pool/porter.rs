//! Who keeps the connections that have nothing to do? The porter: one event loop without a door.
//!
//! Idle connections, slow senders and slow readers are parked here, each with its deadline, and cost no
//! thread. When a request is whole, the connection goes back to the pool's threads. The porter also sees off
//! those who were turned away at the door, so that they can read why.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::conn::Conn;
use crate::engine::active_conn::ActiveConn;
use crate::engine::cpu_pressure::CpuPressure;
use crate::engine::event_loop::EventLoop;
use crate::engine::log_caught_panic;
use crate::engine::loops::LoopMessage;
use crate::transport::Tick;
use crate::transport::context::Stage;
use crate::transport::counters::Counters;

/// How often the members are looked at while one of them waits for a thread, and while none does.
const TICK: Duration = Duration::from_millis(1);
const QUIET_TICK: Duration = Duration::from_millis(4);
/// How often it looks for members that are quiet.
pub(super) const QUIET_LOOK: Duration = Duration::from_millis(100);

/// When the porter has looked last.
pub(super) struct Looks {
    pub(super) members: Tick,
    /// For those that are quiet.
    pub(super) quiet: Tick,
    /// So many connections had been taken from the door then.
    pub(super) taken: u32,
}

impl Shared {
    /// The life of the porter.
    pub(super) fn keep_parked(self: &Arc<Shared>, mut lp: EventLoop) {
        // A panic is a bug of ours. It costs the connection that it came upon.
        while catch_unwind(AssertUnwindSafe(|| self.keep(&mut lp))).is_err() {
            log_caught_panic();
        }
    }

    fn keep(self: &Arc<Shared>, lp: &mut EventLoop) {
        let now = self.cx.clock.now();
        // Calls that end often help one who waits, and not a hundred: only full cores keep threads from being called. With
        // 400 clients of a call of 1 ms and two cores, half of the requests/s otherwise, and cores at rest.
        let mut gauge = CpuPressure::new(u64::MAX);
        let mut looks = Looks { members: now, quiet: now, taken: 0 };
        loop {
            while let Some(active) = lp.poll_ready(&self.loops, &self.cx) {
                self.pass_on(active, lp);
            }
            let patience = self.see_to_members(&mut gauge, &mut looks);
            if lp.is_over(&self.cx) {
                // With the loop they are dropped. Whoever joins from now on sees that the server is at its end.
                return self.send_members_away(Duration::ZERO);
            }
            lp.wait(&self.loops, &self.cx, patience);
        }
    }

    fn pass_on(self: &Arc<Shared>, active: ActiveConn, lp: &mut EventLoop) {
        // A response that others have brought was promised to them, and its handler has run: it may wait in any queue.
        if !active.conn.awaits_response() && self.is_full() {
            lp.refuse(active, Conn::refuse_overload, &self.cx);
        } else {
            let mut conn = lp.remove(active);
            conn.queued_since = self.roster.is_pressed().then(|| self.cx.clock.now());
            self.enqueue(conn);
        }
    }

    /// Has threads come for members that ask, and takes those over that do not. When to look again.
    pub(super) fn see_to_members(&self, gauge: &mut CpuPressure, looks: &mut Looks) -> Option<Duration> {
        let members = &self.bell.members;
        if members.members() == 0 {
            self.roster.set_cores_full(false);
            return None;
        }
        let now = self.cx.clock.now();
        let is_over = self.cx.stage() != Stage::Running;
        // The gauge counts in milliseconds, and events of the porter's may come sooner.
        if !is_over && looks.members == now {
            return Some(TICK);
        }
        looks.members = now;
        if is_over || looks.quiet.after(QUIET_LOOK) <= now {
            looks.quiet = now;
            self.send_members_away(if is_over { Duration::ZERO } else { self.cx.settings.idle_timeout });
        }
        let count = self.roster.count();
        if !members.has_anybody() && count.taken == looks.taken {
            // All are in long calls. Whoever comes in has a thread without being counted here.
            self.roster.set_cores_full(false);
            return Some(QUIET_LOOK);
        }
        looks.taken = count.taken;
        gauge.look(count.threads - count.at_door - count.on_bench, count.taken, now);
        self.roster.set_cores_full(gauge.is_served_soon());
        let is_short = count.at_door == 0 && members.has_news();
        if gauge.called(is_short) > 0 && !self.roster.call() {
            // The porter has them wait in the queue, which is bounded.
            self.send_members_away(Duration::ZERO);
        }
        Some(if is_short { TICK } else { QUIET_TICK })
    }

    /// The porter has the members that have been quiet for so long, and are not out.
    pub(super) fn send_members_away(&self, quiet: Duration) {
        self.bell.members.send_away(quiet, self.cx.clock.now(), |conn| self.park(conn));
    }

    /// The queue holds those as well for whom there is a thread that has not come yet: they do not count.
    fn is_full(&self) -> bool {
        let queue = self.lock_queue();
        queue.len() >= self.cx.settings.queue_max.saturating_add(self.roster.free())
    }

    /// Brings a connection to the porter.
    pub(super) fn park(&self, conn: Box<Conn>) {
        self.loops.send(0, LoopMessage::Adopt(conn));
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
