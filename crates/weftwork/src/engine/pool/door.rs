//! What does a thread do at the door, and how long does it stay there?

use std::mem;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Place, Shared};
use crate::conn::Conn;
use crate::engine::doors::{Accepted, accept};
use crate::transport::Tick;
use crate::transport::context::Stage;

/// A thread that was not needed for this long ends, if enough others are at the door.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a look at the doors has brought.
pub(super) enum Look {
    Conn(Box<Conn>),
    Nobody,
    /// Nobody may come in before then.
    Shut(Tick),
}

impl Shared {
    /// Waits for a connection: one that was parked and has a request, or a new one. None: the thread ends.
    pub(super) fn next_at_door(&self, place: &mut Place<'_>) -> Option<Box<Conn>> {
        let mut until = self.cx.clock.now().after(PATIENCE);
        loop {
            if self.cx.stage() == Stage::Closing {
                // The stop is heard by one at least, who passes it on.
                self.bell.ring();
                return None;
            }
            let now = self.cx.clock.now();
            // In turns: where more is asked than all threads can answer the queue is never empty, and who is new would stay
            // outside for as long as that lasts.
            if mem::take(&mut place.owes_door)
                && let Look::Conn(conn) = self.look_at_doors(now)
            {
                place.hand_on();
                place.leave_door();
                // The ring that was for somebody in the queue may have been heard here.
                if !self.lock_queue().is_empty() {
                    self.bell.ring();
                }
                return Some(conn);
            }
            if let Some(conn) = self.next_queued(place) {
                place.owes_door = true;
                place.hand_on();
                return Some(conn);
            }
            let patience = match self.look_at_doors(now) {
                Look::Conn(conn) => {
                    place.hand_on();
                    place.leave_door();
                    return Some(conn);
                }
                // Who was told of a listener looks there again: handed on now, it would only be reported again at once.
                // When all looked again, 600 idle clients of a full server took a core, and no thread ended.
                Look::Shut(then) if !place.told_of.is_empty() => now.until(then),
                Look::Nobody | Look::Shut(_) => {
                    place.hand_on();
                    if now >= until {
                        if place.retire() {
                            return None;
                        }
                        until = now.after(PATIENCE);
                    }
                    now.until(until)
                }
            };
            if let Some(door) = self.bell.wait(patience)
                && !place.told_of.contains(&door)
            {
                place.told_of.push(door);
            }
        }
    }

    /// A request that waits for a thread, which then has left the door: the maker, who compares those who wait with
    /// those at the door, sees both or neither.
    fn next_queued(&self, place: &mut Place<'_>) -> Option<Box<Conn>> {
        let mut queue = self.lock_queue();
        let conn = queue.pop_front()?;
        place.leave_door();
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
        let doors = self.doors.read().unwrap_or_else(PoisonError::into_inner);
        for listener in doors.iter() {
            loop {
                match accept(listener, now, &self.cx) {
                    Accepted::Excess(conn) => self.park(conn),
                    Accepted::Conn(conn) => return Look::Conn(conn),
                    Accepted::Nobody => break,
                    Accepted::Gone => {}
                    Accepted::NotBefore(then) => return self.shut(then),
                    Accepted::Full(then) => {
                        self.hub.ask_for_room(0);
                        return self.shut(then);
                    }
                }
            }
        }
        Look::Nobody
    }

    fn shut(&self, then: Tick) -> Look {
        self.shut_until.store(then.0, Ordering::Relaxed);
        Look::Shut(then)
    }
}

impl Place<'_> {
    /// Lets another thread be told of the listeners.
    pub(super) fn hand_on(&mut self) {
        if self.told_of.is_empty() {
            return;
        }
        let doors = self.shared.doors.read().unwrap_or_else(PoisonError::into_inner);
        for door in self.told_of.drain(..) {
            // Gone when the server drains.
            if let Some(listener) = doors.get(door) {
                self.shared.bell.listen_again(door, listener);
            }
        }
    }
}
