//! One loop: a poller, its connections, their deadlines. It does everything that needs no handler, and
//! returns when one has to be called. It never waits but in the poller.

mod drain;
mod read_write;
mod register;
#[cfg(test)]
mod tests;
mod timers;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

pub(super) use self::drain::IDLE_KEPT;
use self::timers::TimerHeap;
use super::acceptor::Acceptor;
use super::active_conn::ActiveConn;
use super::conn_table::{ConnTable, LISTENER_0, NESTED_POLLER, WAKER};
use super::loops::{InboxReceiver, LoopGroup, LoopMessage};
use crate::conn::{Conn, Registered, Step};
use crate::message::WakeConn;
use crate::transport::context::Context;
use crate::transport::listener::Listener;
use crate::transport::wheel::Wheel;
use crate::transport::{BufferPool, Tick};

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
const CALL_BUDGET: u32 = 64;
/// While a server drains, its loops look this often whether the last connection has gone.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// A loop may have this many connections more than the one with the fewest; the next goes there before its first call.
const UNEVEN_MAX: usize = 5;
/// If it has as many as this more, the next goes there at once.
const CROWD: usize = 64;

/// What a loop has come to.
#[derive(Debug)]
pub(super) enum LoopEvent {
    Call(ActiveConn),
    /// The server has stopped.
    Stop,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    token: Token,
    ended: bool,
}

pub(super) struct EventLoop {
    pub(super) index: usize,
    /// Its leader is in a call that may block, and a thread is reserved that can lead.
    pub(super) has_reserve: bool,
    poll: Poll,
    events: Events,
    /// The events of this turn. The loop may change hands in the middle of them.
    batch: Vec<Ready>,
    cursor: usize,
    /// Connections that could go on at once, but have had their share of this turn.
    posted_next: Vec<Ready>,
    /// Connections that were read from, and are to be served.
    to_serve: Vec<ActiveConn>,
    /// Connections that were served, and are to be written to.
    to_flush: Vec<ActiveConn>,
    receiver: InboxReceiver,
    messages: Vec<LoopMessage>,
    table: ConnTable,
    wheel: Wheel,
    timers: TimerHeap,
    /// Connections that a panic has ended, in what a body owns or in a log. Their places are not free yet.
    panicked: Vec<Token>,
    pool: BufferPool,
    doors: Acceptor,
    /// Where in the table it was last looked for who might make room.
    idle_cursor: u32,
    /// The loop that was last asked for room.
    idle_peer: usize,
    /// What wakes this loop for a connection that waits for its feed.
    bell: Arc<dyn WakeConn>,
    /// The guest's poller has something for its owner.
    poller_ready: bool,
    now: Tick,
    /// The same, exactly.
    moment: Instant,
    /// What had come by then is known: the time at the last look at the poller, before it. Nobody is late by what has come since.
    polled: Tick,
    draining: bool,
}

impl EventLoop {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        loops: &LoopGroup,
        listeners: Arc<Vec<Listener>>,
        now: Tick,
    ) -> io::Result<EventLoop> {
        let doors = Acceptor::new(listeners);
        doors.register(poll.registry())?;
        Ok(EventLoop {
            index,
            has_reserve: false,
            poll,
            events: Events::with_capacity(EVENTS),
            batch: Vec::with_capacity(EVENTS),
            cursor: 0,
            posted_next: Vec::new(),
            to_serve: Vec::with_capacity(GROUP),
            to_flush: Vec::with_capacity(GROUP),
            receiver: loops.receiver(index),
            messages: Vec::new(),
            table: ConnTable::default(),
            wheel: Wheel::new(now),
            timers: TimerHeap::default(),
            panicked: Vec::new(),
            pool: BufferPool::new(),
            doors,
            idle_cursor: 0,
            idle_peer: index,
            bell: loops.waker(index),
            poller_ready: false,
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
    pub(super) fn run_until_call(&mut self, loops: &LoopGroup, cx: &Context) -> LoopEvent {
        loop {
            if let Some(active) = self.poll_ready(loops, cx) {
                return LoopEvent::Call(active);
            }
            if self.is_over(cx) {
                return LoopEvent::Stop;
            }
            self.wait(loops, cx, None);
        }
    }

    /// Goes on until a handler has to be called, or there is nothing left to do without waiting.
    pub(super) fn poll_ready(&mut self, loops: &LoopGroup, cx: &Context) -> Option<ActiveConn> {
        loop {
            while let Some(active) = self.to_serve.pop() {
                let mut called = self.advance(active, cx);
                if called.as_ref().is_some_and(|active| !active.conn.owner.is_balanced) {
                    called = called.and_then(|active| self.rebalance(active, loops));
                }
                if called.is_some() {
                    return called;
                }
            }
            while let Some(active) = self.to_flush.pop() {
                let called = self.send(active, cx);
                if called.is_some() {
                    return called;
                }
            }
            if !self.read_batch(loops, cx) {
                return None;
            }
        }
    }

    /// Before its first call a connection goes to the loop with the fewest, unless it ends with that call. None: it has gone.
    #[inline(never)]
    fn rebalance(&mut self, mut active: ActiveConn, loops: &LoopGroup) -> Option<ActiveConn> {
        active.conn.owner.is_balanced = true;
        if active.conn.ends_with_request() {
            return Some(active);
        }
        let Some(other) = loops.less_loaded(self.index, self.table.len(), UNEVEN_MAX) else {
            return Some(active);
        };
        let conn = self.remove(active);
        loops.send(other, LoopMessage::Adopt(conn));
        None
    }

    /// Sends the answers that are ready. To be done before anything that may take long.
    pub(super) fn flush_batch(&mut self, cx: &Context) {
        while let Some(active) = self.to_flush.pop() {
            self.send_now(active, cx).into_iter().for_each(|called| self.to_serve.push(called));
        }
    }

    /// Has the loop's waits end when another poller has events. The caller must take all of
    /// them whenever [`EventLoop::take_poller_ready`] says so.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn watch_poller(&self, poller: &impl AsRawFd) -> io::Result<()> {
        let fd = poller.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&fd), Token(NESTED_POLLER), Interest::READABLE)
    }

    /// Whether the guest's poller has had events since the last time.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn take_poller_ready(&mut self) -> bool {
        std::mem::take(&mut self.poller_ready)
    }

    /// Goes on with a connection whose handler has run. The next pipelined request may be waiting.
    pub(super) fn resume(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        active.conn.owner.budget_used += 1;
        self.note_pending(&mut active.conn);
        if active.conn.owner.budget_used >= CALL_BUDGET {
            self.post_next(active, cx);
            return None;
        }
        self.advance(active, cx)
    }

    fn note_pending(&mut self, conn: &mut Conn) {
        if let Some(missed) = self.table.take_pending(Token(conn.owner.token)) {
            conn.note_ready(missed.ended);
        }
    }

    /// Answers a request with 503 instead of a call.
    pub(super) fn refuse(&mut self, mut active: ActiveConn, refuse: fn(&mut Conn, &Context), cx: &Context) {
        active.guarded_in_loop(&mut self.panicked, |conn| refuse(conn, cx));
        let called = self.advance(active, cx);
        debug_assert!(called.is_none(), "nothing is read behind a refusal");
    }

    /// Lets go of a connection: it will be served by a thread of its own for a while.
    pub(super) fn remove(&mut self, active: ActiveConn) -> Box<Conn> {
        let token = active.token();
        let mut conn = active.conn;
        if std::mem::take(&mut conn.owner.registered) != Registered::Not {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.poll.registry().deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.free_slot(token);
        conn
    }

    /// Takes a connection in: a new one, or one that comes back.
    pub(super) fn insert(&mut self, mut conn: Box<Conn>) -> ActiveConn {
        conn.owner.loop_index = self.index as u32;
        conn.owner.token = self.table.reserve().0;
        conn.begin_cycle();
        ActiveConn { conn }
    }

    /// Reads from a group of connections that may have something to say. False: no connection has.
    #[inline(always)]
    fn read_batch(&mut self, loops: &LoopGroup, cx: &Context) -> bool {
        let mut bytes = 0;
        while self.to_serve.len() < GROUP && bytes < GROUP_BYTES {
            let active = (self.next_event())
                .or_else(|| self.next_message())
                .or_else(|| self.next_connection(loops, cx))
                .or_else(|| self.next_expired(cx));
            let Some(mut active) = active else { break };
            if active.conn.reads_first() {
                bytes += self.read(&mut active.conn);
            }
            self.to_serve.push(active);
        }
        !self.to_serve.is_empty()
    }

    fn next_event(&mut self) -> Option<ActiveConn> {
        while let Some(ready) = self.batch.get(self.cursor).copied() {
            self.cursor += 1;
            let Some(mut conn) = self.table.take(ready.token) else {
                self.table.note_pending(ready.token, ready.ended);
                continue;
            };
            conn.note_ready(ready.ended);
            conn.begin_cycle();
            return Some(ActiveConn { conn });
        }
        None
    }

    fn next_message(&mut self) -> Option<ActiveConn> {
        while let Some(message) = self.messages.pop() {
            match message {
                LoopMessage::Released(token) => self.free_slot(token),
                LoopMessage::Adopt(conn) => return Some(self.insert(conn)),
                // A connection that is out will look at its feed before it waits again.
                LoopMessage::Wake(token) => {
                    if let Some(conn) = self.table.take(token) {
                        return Some(ActiveConn { conn });
                    }
                }
            }
        }
        None
    }

    fn next_connection(&mut self, loops: &LoopGroup, cx: &Context) -> Option<ActiveConn> {
        loop {
            let Some(conn) = self.doors.accept(self.now, cx) else {
                if self.doors.wants_room() {
                    self.close_idle();
                    self.request_close_idle(loops);
                }
                return None;
            };
            // What ends with its first call may be long all the same: not all of that is to be one loop's.
            match loops.less_loaded(self.index, self.table.len(), CROWD) {
                None => return Some(self.insert(conn)),
                Some(other) => loops.send(other, LoopMessage::Adopt(conn)),
            }
        }
    }

    fn next_expired(&mut self, cx: &Context) -> Option<ActiveConn> {
        while let Some((due, token)) = self.timers.next_by(self.moment) {
            // It may have had its response, and wait for another one. Then there is nothing to do.
            if let Some(mut conn) = self.table.take(token) {
                conn.note_due(due);
                return Some(ActiveConn { conn });
            }
        }
        loop {
            let entry = self.wheel.expire(&mut self.table, self.polled)?;
            let Some((token, conn)) = self.table.peek(entry) else { continue };
            let due = conn.deadline(cx);
            if due > self.polled {
                self.wheel.arm(&mut self.table, entry, due);
            } else if let Some(conn) = self.table.take(token) {
                let mut active = ActiveConn { conn };
                self.expire(&mut active, cx);
                return Some(active);
            }
        }
    }

    /// Does what a connection asks for until it has to wait, ends, wants its handler, or has something to send.
    fn advance(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        let now = self.now;
        loop {
            match active.guarded_in_loop(&mut self.panicked, |conn| conn.step(now, cx)) {
                Step::Call | Step::Upgrade => return Some(active),
                // What comes to it is dealt with here, and what it says may be news to all others: a read a turn. With more, one
                // client had the loop for as long as it sent faster than that, and cut off all members of its loops.
                Step::Read
                    if active.conn.is_fed() && active.conn.owner.has_read && active.conn.is_read_ready() =>
                {
                    self.post_next(active, cx);
                }
                Step::Read if active.conn.is_read_ready() => {
                    active.conn.owner.has_read = true;
                    self.read_more(&mut active.conn);
                    continue;
                }
                Step::Read => self.wait_for_io(active, cx),
                // Its memory is free when it is sent. With 16 bodies of 64 KiB kept until then, the allocator gave
                // their pages back to the kernel each time: 62 us a request, not 29.
                Step::Write if active.conn.holds_body() => return self.send_now(active, cx),
                Step::Write if active.conn.is_fed() && active.conn.owner.budget_used >= CALL_BUDGET => {
                    self.post_next(active, cx)
                }
                Step::Write => {
                    active.conn.owner.budget_used += u32::from(active.conn.is_fed());
                    self.to_flush.push(active);
                }
                Step::Close => self.close(active),
                Step::WaitFeed => self.wait_for_feed(active, cx),
            }
            return None;
        }
    }

    /// Waits for events, for at most `patience`.
    pub(super) fn wait(&mut self, loops: &LoopGroup, cx: &Context, patience: Option<Duration>) {
        self.free_panicked();
        loops.note_load(self.index, self.table.len());
        let until = self.wait_until();
        // From now on: the turn may have been long.
        let alarm = self.timers.first().map(|due| due.saturating_duration_since(Instant::now()));
        let left = [until.map(|until| self.now.until(until)), alarm, patience].into_iter().flatten().min();
        let busy = left == Some(Duration::ZERO)
            || !self.posted_next.is_empty()
            || !self.to_flush.is_empty()
            || !self.messages.is_empty();
        let handle = loops.handle(self.index);
        let sleeps =
            !busy && handle.inbox.prepare_park() && self.stage_is_known(cx) && !handle.close_idle_wanted();
        if sleeps {
            loops.watch.set_idle(self.index);
        }
        self.polled = self.now;
        self.poll(if sleeps { left } else { Some(Duration::ZERO) });
        if sleeps {
            handle.inbox.unpark();
            loops.watch.set_busy(self.index);
        }
        self.refresh(cx);
        self.doors.next_turn(self.now);
        if handle.take_close_idle() {
            self.close_idle();
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

    fn poll(&mut self, patience: Option<Duration>) {
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
        // Once a cycle: other threads may send as fast as the loop reads. The last one is read first, so they are turned round.
        if self.messages.is_empty() {
            self.receiver.take_all(&mut self.messages);
            self.messages.reverse();
        }
        for event in &self.events {
            match event.token().0 {
                WAKER => {}
                NESTED_POLLER => self.poller_ready = true,
                door if (LISTENER_0..NESTED_POLLER).contains(&door) => {
                    self.doors.note_ready(door - LISTENER_0)
                }
                _ => self
                    .batch
                    .push(Ready { token: event.token(), ended: event.is_read_closed() || event.is_error() }),
            }
        }
        self.batch.append(&mut self.posted_next);
    }
}
