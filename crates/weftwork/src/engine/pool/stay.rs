//! What does a thread do with its connection, and where does that wait for its next request?
//!
//! At the door, as a member of the [poller](crate::engine::shared_poller) at which the threads wait for new ones: whoever
//! has nothing else to do answers it. A thread that kept its connection slept for it, and was woken for each request: with
//! 400 clients of a call of 1 ms, 0.93 of the bare threads' time, not 0.63; of a quick one, 1.65 of the bare loop's, not 1.15.
//! Who asks for nothing goes to the [porter](super::porter) after a while.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::conn::Conn;
use crate::engine::conn_thread::{ConnThread, Fate, Hand};
use crate::engine::loops::LoopMessage;
use crate::engine::shared_poller::AddResult;
use crate::engine::thread_wait::OwnedThreadWait;
use crate::transport::Tick;
use crate::transport::context::Stage;

/// How long a client that is in the middle of a request keeps its thread waiting when others wait at the door. It costs
/// them at most this; one that gets on within it costs no detour over the porter.
const KEPT: Duration = Duration::from_millis(100);

impl Shared {
    /// Serves a connection until it ends, or others wait for it. True: it is over.
    pub(super) fn serve(&self, mut conn: Box<Conn>, hand: &mut Hand) -> bool {
        let members = &self.bell.members;
        let mut may_rest = true;
        loop {
            let (fate, now);
            (conn, fate, now) = self.stay_with(conn, may_rest, hand);
            match fate {
                Fate::Rest => match self.rest(conn, now, hand) {
                    Rested::Member => return false,
                    Rested::Back(back) => conn = back,
                    Rested::Refused(back) => (conn, may_rest) = (back, false),
                },
                Fate::Park => {
                    members.leave(&mut conn);
                    self.park(conn);
                    return false;
                }
                Fate::Over => {
                    conn.reclaim(&mut hand.pool);
                    members.close(conn);
                    return true;
                }
                Fate::TakeOver => {
                    members.leave(&mut conn);
                    conn.take_over(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), || {
                        self.roster.is_pressed()
                    });
                    return true;
                }
            }
        }
    }

    fn stay_with(&self, conn: Box<Conn>, may_rest: bool, hand: &mut Hand) -> (Box<Conn>, Fate, Tick) {
        // A thread that nobody waits for may wait for its client, for a while; a server that drains has nobody to spare it
        // for, but others may bring something to its client for long.
        let patience = |conn: &Conn, stage| {
            let kept = if self.roster.is_pressed() { Duration::ZERO } else { KEPT };
            (stage == Stage::Running || conn.is_fed()).then_some(kept)
        };
        let absent = self.bell.members.absent(&conn);
        // A panic closes it before its place is free for another.
        let mut conn = conn;
        let mut solo = ConnThread::new(&self.cx, &*self.handler, hand, &patience, &self.gate);
        solo.members = may_rest.then_some(&self.bell.members);
        let fate = solo.serve(&mut conn);
        let now = solo.now();
        std::mem::forget(absent);
        (conn, fate, now)
    }

    /// A connection waits for its next request among the members, from now on.
    fn rest(&self, mut conn: Box<Conn>, now: Tick, hand: &mut Hand) -> Rested {
        conn.rest(&mut hand.pool);
        let is_first = match self.bell.members.join(&mut conn) {
            AddResult::Added { is_first } => is_first,
            AddResult::Full | AddResult::Unsupported => return Rested::Refused(conn),
        };
        let back = self.bell.members.put(conn, now);
        if is_first {
            self.loops.send(0, LoopMessage::Nop);
        }
        if let Some(back) = back {
            return Rested::Back(back);
        }
        if self.cx.stage() != Stage::Running {
            // The porter may have looked for the last time.
            self.send_members_away(Duration::ZERO);
        }
        Rested::Member
    }
}

/// What became of a connection that has nothing to do.
enum Rested {
    Member,
    /// It has something to do meanwhile.
    Back(Box<Conn>),
    /// Its thread has to wait for it.
    Refused(Box<Conn>),
}
