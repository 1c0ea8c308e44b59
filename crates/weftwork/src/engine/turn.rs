//! One loop: a poller, its connections, their deadlines. It does everything that needs no handler, and
//! returns when one has to be called. It never waits but in the poller.

mod alarms;
mod bytes;
mod ending;
mod parking;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use self::alarms::Alarms;
pub(super) use self::ending::IDLE_KEPT;
use super::doors::Doors;
use super::errand::Errand;
use super::hub::{Hub, Letter, Letterbox};
use super::patience;
use super::table::{DOOR, GUEST, Table, WAKER};
use crate::conn::{Conn, Registered, Step};
use crate::message::Wakes;
use crate::transport::context::Context;
use crate::transport::listener::Listener;
use crate::transport::wheel::Wheel;
use crate::transport::{Pool, Tick};

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// So many connections are read, then served, then written to: each of the three keeps its code in the caches. One by
/// one, a keep-alive request took 4 to 6 % more CPU; 64 at once 3 % more: they push each other's bytes out.
const GROUP: usize = 16;
/// A group that has read this much is served, however few they are: what the first have sent is still in the caches then.
/// 16 bodies of 64 KiB that were read before any of them was answered: 3 to 7 % more time a request.
const GROUP_BYTES: usize = 32 << 10;
/// A connection that pipelines more than this has to let others through; so has one that is fed, after as many sends of
/// 16 KiB.
const CALLS_A_TURN: u32 = 64;
/// So many letters are read before the poller, the doors and the deadlines have their turn again: others may write as
/// fast as the loop reads. As an event costs 12 us, that is 0.8 ms, and the look in between a few microseconds.
const LETTERS_A_TURN: u32 = 64;
/// While a server drains, its loops look this often whether the last connection has gone.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// A loop may have this many connections more than the one with the fewest; the next goes there before its first call.
const UNEVEN_MAX: usize = 5;
/// If it has as many as this more, the next goes there at once.
const CROWD: usize = 64;

/// What a loop has come to.
#[derive(Debug)]
pub(super) enum Next {
    Call(Errand),
    /// The server has stopped.
    Stop,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    token: Token,
    ended: bool,
}

pub(super) struct Loop {
    pub(super) index: usize,
    /// Its leader is in a call that may block, and a thread is kept free to take over.
    pub(super) at_risk: bool,
    poll: Poll,
    events: Events,
    /// The events of this turn. The loop may change hands in the middle of them.
    batch: Vec<Ready>,
    cursor: usize,
    /// Connections that could go on at once, but have had their share of this turn.
    again: Vec<Ready>,
    /// Connections that were read from, and are to be served.
    group: Vec<Errand>,
    /// Connections that were served, and are to be written to.
    outbox: Vec<Errand>,
    letterbox: Letterbox,
    letters: Vec<Letter>,
    spare_letters: Vec<Letter>,
    letters_left: u32,
    table: Table,
    wheel: Wheel,
    alarms: Alarms,
    /// Connections that a panic has ended, in what a body owns or in a log. Their places are not free yet.
    lost: Vec<Token>,
    pool: Pool,
    doors: Doors,
    /// Where in the table it was last looked for who might make room.
    room_seen: u32,
    /// The loop that was last asked for room.
    room_asked: usize,
    /// What wakes this loop for a connection that waits for its feed.
    bell: Arc<dyn Wakes>,
    /// The guest's poller has something for its owner.
    guest_is_ready: bool,
    now: Tick,
    /// The same, exactly.
    moment: Instant,
    /// What had come by then is known: the time at the last look at the poller, before it. Nobody is late by what has come since.
    polled: Tick,
    draining: bool,
}

impl Loop {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        hub: &Hub,
        listeners: Arc<Vec<Listener>>,
        now: Tick,
    ) -> io::Result<Loop> {
        let doors = Doors::new(listeners);
        doors.register(poll.registry())?;
        Ok(Loop {
            index,
            at_risk: false,
            poll,
            events: Events::with_capacity(EVENTS),
            batch: Vec::with_capacity(EVENTS),
            cursor: 0,
            again: Vec::new(),
            group: Vec::with_capacity(GROUP),
            outbox: Vec::with_capacity(GROUP),
            letterbox: hub.letterbox(index),
            letters: Vec::new(),
            spare_letters: Vec::new(),
            letters_left: LETTERS_A_TURN,
            table: Table::default(),
            wheel: Wheel::new(now),
            alarms: Alarms::default(),
            lost: Vec::new(),
            pool: Pool::new(),
            doors,
            room_seen: 0,
            room_asked: index,
            bell: hub.bell(index),
            guest_is_ready: false,
            now,
            moment: Instant::now(),
            polled: now,
            draining: false,
        })
    }

    pub(super) fn now(&self) -> Tick {
        self.now
    }

    /// Somebody new leads: the time on the loop is that of its last turn. It may have waited long for a thread, or the process may have
    /// been stopped meanwhile.
    pub(super) fn refresh(&mut self, cx: &Context) {
        self.moment = Instant::now();
        self.now = cx.clock.at(self.moment);
    }

    /// Goes on until a handler has to be called.
    pub(super) fn next(&mut self, hub: &Hub, cx: &Context) -> Next {
        loop {
            if let Some(errand) = self.next_here(hub, cx) {
                return Next::Call(errand);
            }
            if self.is_over(cx) {
                return Next::Stop;
            }
            self.wait(hub, cx, None);
        }
    }

    /// Goes on until a handler has to be called, or there is nothing left to do without waiting.
    pub(super) fn next_here(&mut self, hub: &Hub, cx: &Context) -> Option<Errand> {
        loop {
            while let Some(errand) = self.group.pop() {
                let mut called = self.drive(errand, cx);
                if called.as_ref().is_some_and(|errand| !errand.conn.is_placed) {
                    called = called.and_then(|errand| self.place(errand, hub));
                }
                if called.is_some() {
                    return called;
                }
            }
            while let Some(errand) = self.outbox.pop() {
                let called = self.send(errand, cx);
                if called.is_some() {
                    return called;
                }
            }
            if !self.gather(hub, cx) {
                return None;
            }
        }
    }

    /// Before its first call a connection goes to the loop with the fewest, unless it ends with that call. None: it has gone.
    #[inline(never)]
    fn place(&mut self, mut errand: Errand, hub: &Hub) -> Option<Errand> {
        errand.conn.is_placed = true;
        if errand.conn.ends_with_request() {
            return Some(errand);
        }
        let Some(other) = hub.with_fewer(self.index, self.table.len(), UNEVEN_MAX) else {
            return Some(errand);
        };
        let conn = self.detach(errand);
        hub.post(other, Letter::Home(conn));
        None
    }

    /// Sends the answers that are ready. To be done before anything that may take long.
    pub(super) fn send_all(&mut self, cx: &Context) {
        while let Some(errand) = self.outbox.pop() {
            self.send_now(errand, cx).into_iter().for_each(|called| self.group.push(called));
        }
    }

    /// Has the loop's waits end when another poller has events. Whoever has asked for that must take all of
    /// them whenever [`Loop::take_guest`] says so.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn watch_guest(&self, poller: &impl AsRawFd) -> io::Result<()> {
        let fd = poller.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&fd), Token(GUEST), Interest::READABLE)
    }

    /// Whether the guest's poller has had events since the last time.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn take_guest(&mut self) -> bool {
        std::mem::take(&mut self.guest_is_ready)
    }

    /// Goes on with a connection whose handler has run. The next pipelined request may be waiting.
    pub(super) fn settle(&mut self, mut errand: Errand, cx: &Context) -> Option<Errand> {
        errand.conn.calls += 1;
        self.note_missed(&mut errand.conn);
        if errand.conn.calls >= CALLS_A_TURN {
            self.put_off(errand, cx);
            return None;
        }
        self.drive(errand, cx)
    }

    fn note_missed(&mut self, conn: &mut Conn) {
        if let Some(missed) = self.table.missed(Token(conn.token)) {
            conn.note_ready(missed.ended);
        }
    }

    /// Answers a request with 503 instead of a call.
    pub(super) fn refuse(&mut self, mut errand: Errand, refuse: fn(&mut Conn, &Context), cx: &Context) {
        errand.with_conn_here(&mut self.lost, |conn| refuse(conn, cx));
        let called = self.drive(errand, cx);
        debug_assert!(called.is_none(), "nothing is read behind a refusal");
    }

    /// Lets go of a connection: it will be served by a thread of its own for a while.
    pub(super) fn detach(&mut self, errand: Errand) -> Box<Conn> {
        let token = errand.token();
        let mut conn = errand.conn;
        if std::mem::take(&mut conn.registered) != Registered::Not {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.poll.registry().deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.release(token);
        conn
    }

    /// Takes a connection in: a new one, or one that comes back.
    pub(super) fn attach(&mut self, mut conn: Box<Conn>) -> Errand {
        conn.home = self.index as u32;
        conn.token = self.table.reserve().0;
        conn.begin_turn();
        Errand { conn }
    }

    /// Reads from a group of connections that may have something to say. False: there is none.
    #[inline(always)]
    fn gather(&mut self, hub: &Hub, cx: &Context) -> bool {
        let mut bytes = 0;
        while self.group.len() < GROUP && bytes < GROUP_BYTES {
            let errand = (self.next_event())
                .or_else(|| self.next_letter())
                .or_else(|| self.next_connection(hub, cx))
                .or_else(|| self.next_expired(cx));
            let Some(mut errand) = errand else { break };
            if errand.conn.reads_first() {
                bytes += self.read(&mut errand.conn);
            }
            self.group.push(errand);
        }
        !self.group.is_empty()
    }

    fn next_event(&mut self) -> Option<Errand> {
        while let Some(ready) = self.batch.get(self.cursor).copied() {
            self.cursor += 1;
            let Some(mut conn) = self.table.take(ready.token) else {
                self.table.miss(ready.token, ready.ended);
                continue;
            };
            conn.note_ready(ready.ended);
            conn.begin_turn();
            return Some(Errand { conn });
        }
        None
    }

    fn next_letter(&mut self) -> Option<Errand> {
        while self.letters_left > 0 {
            let Some(letter) = self.letters.pop() else {
                std::mem::swap(&mut self.letters, &mut self.spare_letters);
                self.letterbox.take_all(&mut self.letters);
                if self.letters.is_empty() {
                    return None;
                }
                self.letters.reverse();
                continue;
            };
            self.letters_left -= 1;
            match letter {
                Letter::Left(token) => self.release(token),
                Letter::Home(conn) => return Some(self.attach(conn)),
                // One that is out will look at its feed before it is parked.
                Letter::Fed(token) => {
                    if let Some(conn) = self.table.take(token) {
                        return Some(Errand { conn });
                    }
                }
                Letter::Visitors => self.doors.note_all_ready(),
                Letter::LookAround => {}
            }
        }
        None
    }

    fn next_connection(&mut self, hub: &Hub, cx: &Context) -> Option<Errand> {
        loop {
            let Some(conn) = self.doors.accept(self.now, cx) else {
                if self.doors.wants_room() {
                    self.make_room();
                    self.ask_for_room(hub);
                }
                return None;
            };
            // What ends with its first call may be long all the same: not all of that is to be one loop's.
            match hub.with_fewer(self.index, self.table.len(), CROWD) {
                None => return Some(self.attach(conn)),
                Some(other) => hub.post(other, Letter::Home(conn)),
            }
        }
    }

    fn next_expired(&mut self, cx: &Context) -> Option<Errand> {
        while let Some((due, token)) = self.alarms.next_by(self.moment) {
            // It may have had its response, and wait for another one; then this is a look in vain.
            if let Some(mut conn) = self.table.take(token) {
                conn.note_due(due);
                return Some(Errand { conn });
            }
        }
        loop {
            let entry = self.wheel.expire(&mut self.table, self.polled)?;
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            let due = conn.deadline(cx);
            if due > self.polled {
                self.wheel.arm(&mut self.table, entry, due);
            } else if let Some(conn) = self.table.take(token) {
                let mut errand = Errand { conn };
                self.expire(&mut errand, cx);
                return Some(errand);
            }
        }
    }

    /// Does what a connection asks for until it has to wait, ends, wants its handler, or has something to send.
    fn drive(&mut self, mut errand: Errand, cx: &Context) -> Option<Errand> {
        let now = self.now;
        loop {
            match errand.with_conn_here(&mut self.lost, |conn| conn.step(now, cx)) {
                Step::Call | Step::Takeover => return Some(errand),
                // What comes to it is dealt with here, and what it says may be news to all others: a read a turn. With more, one
                // client had the loop for as long as it sent faster than that, and cut off all members of its hub.
                Step::Read if errand.conn.is_fed() && errand.conn.has_read && errand.conn.is_readable() => {
                    self.put_off(errand, cx);
                }
                Step::Read if errand.conn.is_readable() => {
                    errand.conn.has_read = true;
                    self.read_more(&mut errand.conn);
                    continue;
                }
                Step::Read => self.park(errand, cx),
                // Its memory is free when it is sent. With 16 bodies of 64 KiB kept until then, the allocator gave
                // their pages back to the kernel each time: 62 us a request, not 29.
                Step::Write if errand.conn.holds_body() => return self.send_now(errand, cx),
                Step::Write if errand.conn.is_fed() && errand.conn.calls >= CALLS_A_TURN => {
                    self.put_off(errand, cx)
                }
                Step::Write => {
                    errand.conn.calls += u32::from(errand.conn.is_fed());
                    self.outbox.push(errand);
                }
                Step::Close => self.close(errand),
                Step::Wait => self.park_fed(errand, cx),
            }
            return None;
        }
    }

    /// Waits for events, for at most `patience`.
    pub(super) fn wait(&mut self, hub: &Hub, cx: &Context, patience: Option<Duration>) {
        self.release_lost();
        hub.note_load(self.index, self.table.len());
        let until = self.wait_until();
        // From now on: the turn may have been long.
        let alarm = self.alarms.first().map(|due| due.saturating_duration_since(Instant::now()));
        let left = [until.map(|until| self.now.until(until)), alarm, patience].into_iter().flatten().min();
        let busy = left == Some(Duration::ZERO)
            || !self.again.is_empty()
            || !self.outbox.is_empty()
            || !self.letters.is_empty();
        let mailbox = hub.mailbox(self.index);
        let sleeps = !busy && mailbox.inbox.try_sleep() && self.stage_is_known(cx) && !mailbox.wants_room();
        if sleeps {
            hub.watch.note_waiting(self.index);
        }
        // Behind `try_sleep`: whoever has the doors attended wakes all loops that sleep by then. How long to sleep may be another matter
        // behind a change.
        let has_changed = self.doors.attend(self.poll.registry(), hub.attends_doors(), self.now);
        self.polled = self.now;
        self.poll(if sleeps && !has_changed { left } else { Some(Duration::ZERO) });
        if sleeps {
            mailbox.inbox.wake_up();
            hub.watch.note_busy(self.index);
        }
        self.refresh(cx);
        self.doors.next_turn(self.now);
        if mailbox.is_asked_for_room() {
            self.make_room();
            // Who asks may be held up by a handler as soon as there is room.
            self.doors.note_all_ready();
        }
        self.collect();
    }

    /// When there is something to do without any event.
    fn wait_until(&self) -> Option<Tick> {
        let drain = self.draining.then(|| self.now.after(DRAIN_TICK));
        [self.wheel.next(), self.doors.retry(self.now), drain].into_iter().flatten().min()
    }

    fn poll(&mut self, mut patience: Option<Duration>) {
        if let Some(left) = patience
            && patience::is_fine(left)
        {
            patience::until_readable(self.poll.registry().as_fd(), left);
            patience = Some(Duration::ZERO);
        }
        let mut polled = self.poll.poll(&mut self.events, patience);
        if polled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            // The process may have been stopped, for longer than any deadline: what came meanwhile came in time.
            polled = self.poll.poll(&mut self.events, Some(Duration::ZERO));
        }
        if let Err(error) = polled {
            self.events.clear();
            if error.kind() != io::ErrorKind::Interrupted {
                log::error!("the poller failed: {error}");
            }
        }
    }

    fn collect(&mut self) {
        self.batch.clear();
        self.cursor = 0;
        self.letters_left = LETTERS_A_TURN;
        for event in &self.events {
            match event.token().0 {
                WAKER => {}
                GUEST => self.guest_is_ready = true,
                door if (DOOR..GUEST).contains(&door) => self.doors.note_ready(door - DOOR),
                _ => self
                    .batch
                    .push(Ready { token: event.token(), ended: event.is_read_closed() || event.is_error() }),
            }
        }
        self.batch.append(&mut self.again);
    }
}
