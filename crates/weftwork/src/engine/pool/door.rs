//! What does a thread do at the door, and how long does it stay there?

use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{At, Place, Shared};
use crate::conn::Conn;
use crate::engine::acceptor::{ACCEPT_BUDGET, Accepted, accept};
use crate::engine::shared_poller::PollEvent;
use crate::transport::Tick;
use crate::transport::context::Stage;

/// A thread that was not needed for this long ends, if enough others are at the door.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many wait in the queue, where a thread takes more in from outside than it serves.
pub(super) const TAKEN_IN_MAX: usize = 16;

/// What a look at the doors has brought.
pub(super) enum Look {
    Conn(Box<Conn>),
    Nobody,
    /// Nobody may come in before then.
    Shut(Tick),
}

impl Shared {
    /// Waits for a connection: one that was parked and has a request, a member that asks, or a new one. None: the thread ends.
    pub(super) fn next_at_door(&self, place: &mut Place<'_>) -> Option<Box<Conn>> {
        let mut until = self.cx.clock.now().after(PATIENCE);
        loop {
            if self.cx.stage() == Stage::Closing {
                // The stop is heard by one at least, who passes it on.
                self.bell.ring();
                return None;
            }
            // In turns: where more is asked than all threads can answer the queue is never empty, and who is not in it would
            // wait for as long as that lasts.
            if !place.owes_door
                && let Some(conn) = self.next_queued(place)
            {
                place.owes_door = true;
                place.hand_on();
                return Some(conn);
            }
            let now = self.cx.clock.now();
            let mut patience = now.until(until);
            if mem::take(&mut place.looks_first) || !place.told_of.is_empty() {
                match self.look_at_doors(now) {
                    Look::Conn(conn) => {
                        place.has_looked = place.told_of.is_empty();
                        self.take_more_in(now);
                        return Some(place.leave_with(conn));
                    }
                    // Who was told of a listener looks there again: handed on now, it would only be reported again at once.
                    // When all looked again, 600 idle clients of a full server took a core, and no thread ended.
                    Look::Shut(then) if !place.told_of.is_empty() => patience = now.until(then),
                    Look::Nobody | Look::Shut(_) => place.hand_on(),
                }
            }
            if place.owes_door || place.is_surplus && place.told_of.is_empty() {
                patience = Duration::ZERO;
            }
            match self.bell.wait(patience) {
                PollEvent::Conn(conn) => {
                    place.has_looked = false;
                    return Some(place.leave_with(conn));
                }
                PollEvent::Listener(door) if !place.told_of.contains(&door) => place.told_of.push(door),
                PollEvent::Listener(_) | PollEvent::Spurious => {}
                PollEvent::Timeout if mem::take(&mut place.owes_door) || !place.told_of.is_empty() => {}
                PollEvent::Timeout if place.is_surplus => {
                    place.sit_down()?;
                    until = self.cx.clock.now().after(PATIENCE);
                }
                PollEvent::Timeout => {
                    let now = self.cx.clock.now();
                    if now >= until {
                        place.retire()?;
                        until = now.after(PATIENCE);
                    }
                }
            }
        }
    }

    /// A request that waits for a thread, which then has left the door: the maker, who compares those who wait with
    /// those at the door, sees both or neither.
    fn next_queued(&self, place: &mut Place<'_>) -> Option<Box<Conn>> {
        let mut queue = self.lock_queue();
        let mut conn = queue.pop_front()?;
        place.leave_door();
        // Taken in for a thread that there was not, or that was long in a call: for a request it is late by now.
        let timeout = self.cx.settings.request_timeout;
        if !timeout.is_zero() && conn.is_idle_for(timeout, self.cx.clock.now()) {
            conn.queued_since.get_or_insert(conn.quiet_since());
        }
        if !queue.is_empty() {
            // Two rings may have been one to the ear: whoever takes the first calls for the next.
            self.bell.ring();
        }
        Some(conn)
    }

    pub(super) fn look_at_doors(&self, now: Tick) -> Look {
        let shut_until = Tick(self.shut_until.load(Ordering::Relaxed));
        if shut_until > now {
            return Look::Shut(shut_until);
        }
        let doors = self.doors.get();
        let mut in_vain = 0;
        for door in self.doors.in_turn(doors.len()) {
            let listener = &doors[door];
            loop {
                // Members and the queue have their turn, too.
                if in_vain == ACCEPT_BUDGET {
                    return Look::Shut(now);
                }
                in_vain += 1;
                match accept(listener, now, &self.cx) {
                    Accepted::OverLimit(conn) => self.park(conn),
                    Accepted::Conn(conn) => return Look::Conn(conn),
                    Accepted::WouldBlock => break,
                    Accepted::PeerGone => {}
                    Accepted::Backoff(then) => return self.shut(then),
                    Accepted::AtLimit(then) => {
                        self.loops.request_close_idle(0);
                        return self.shut(then);
                    }
                }
            }
        }
        Look::Nobody
    }

    /// Where nobody else is called to the door, others who wait there would have one turn for all turns of the members: with
    /// 400 that ask all the time, 200 new ones had their first answer after half a second, not 30 ms.
    fn take_more_in(&self, now: Tick) {
        if !self.roster.are_cores_full() {
            return;
        }
        // Whoever has a request already must find its place there.
        let taken_in_max = TAKEN_IN_MAX.min(self.cx.settings.queue_max / 2);
        loop {
            // Not held while somebody is refused there: a line of the log may take long.
            let taken_in = self.lock_queue().len();
            if taken_in >= taken_in_max {
                return;
            }
            let Look::Conn(conn) = self.look_at_doors(now) else { return };
            self.enqueue(conn);
        }
    }

    fn shut(&self, then: Tick) -> Look {
        self.shut_until.store(then.0, Ordering::Relaxed);
        Look::Shut(then)
    }
}

impl<'a> Place<'a> {
    /// Of a thread that is counted at the door already.
    pub(super) fn new(shared: &'a Shared) -> Place<'a> {
        Place {
            shared,
            at: At::Door,
            told_of: Vec::new(),
            owes_door: false,
            looks_first: true,
            has_looked: false,
            is_surplus: false,
        }
    }

    /// Counted in at the door again. `is_over`: so is its connection, and the next one may wait outside. In turns with the
    /// members: where somebody always does, they had none.
    pub(super) fn come_to_door(&mut self, is_over: bool) {
        self.looks_first = is_over && !(self.has_looked && self.shared.bell.members.has_anybody());
        self.is_surplus = self.shared.roster.come_to_door();
        self.at = At::Door;
    }

    fn leave_door(&mut self) {
        self.shared.roster.leave_door();
        self.at = At::Connection;
    }

    fn leave_with(&mut self, conn: Box<Conn>) -> Box<Conn> {
        let absent = self.shared.bell.members.absent(&conn);
        // Closed before its place is free, should the log panic meanwhile.
        let conn = conn;
        self.hand_on();
        self.leave_door();
        if mem::take(&mut self.owes_door) && !self.shared.lock_queue().is_empty() {
            // The ring that was for somebody in the queue may have been heard here.
            self.shared.bell.ring();
        }
        mem::forget(absent);
        conn
    }

    /// The thread makes room at the door, until it is needed there. None: it was not for long, and is counted out.
    fn sit_down(&mut self) -> Option<()> {
        self.is_surplus = false;
        let stays = self.shared.roster.sit_down(PATIENCE);
        self.ends_unless(stays)
    }

    /// None: the thread is not needed, and counted out.
    fn retire(&mut self) -> Option<()> {
        let stays = !self.shared.roster.retire();
        self.ends_unless(stays)
    }

    fn ends_unless(&mut self, stays: bool) -> Option<()> {
        if !stays {
            self.at = At::Out;
        }
        stays.then_some(())
    }

    /// Lets another thread be told of the listeners.
    pub(super) fn hand_on(&mut self) {
        if self.told_of.is_empty() {
            return;
        }
        let doors = self.shared.doors.get();
        for door in self.told_of.drain(..) {
            // Gone when the server drains.
            if let Some(listener) = doors.get(door) {
                self.shared.bell.listen_again(door, listener);
            }
        }
    }
}
