//! Runs one event loop: a poller, its connections and their deadlines. The loop does everything that needs no
//! handler, and returns when a handler must be called. It waits only in the poller.

mod advance;
mod drain;
mod feeds;
mod handshakes;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

pub(super) use self::drain::{IDLE_KEPT, LINGER_KEPT};
use self::feeds::FeedQueue;
use self::handshakes::HandshakeQueue;
use super::acceptor::Acceptor;
use super::conn_table::{ActiveConn, ConnTable, LISTENER_0, NESTED_POLLER, TimerHeap, WAKER};
use super::loops::{LoopGroup, LoopHandle, LoopMessage};
use crate::message::WakeConn;
use crate::transport::context::Context;
use crate::transport::listener::Listener;
use crate::transport::log_queue::log_line;
use crate::transport::wheel::Wheel;
use crate::transport::{BufferPool, Tick};

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// Connections per batch. A batch is read, then served, then written, so that each phase stays in the instruction
/// cache. A batch of 1 costs 4 to 6 % more CPU a request, a batch of 64 costs 3 % more.
const GROUP: usize = 16;
/// A batch that has read this much is served, however few its connections are: the first bytes are still in the
/// caches then. Reading 16 bodies of 64 KiB before serving any took 3 to 7 % more time a request.
const GROUP_BYTES: usize = 32 << 10;
/// While a server drains, its loops check this often whether the last connection has gone.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// Maximum number of connections that a loop may have more than the emptiest loop when it accepts one. A connection that ends
/// with its first call is not moved before it.
const UNEVEN_AT_ACCEPT_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Ready {
    token: Token,
    ended: bool,
}

pub(super) struct EventLoop {
    pub(super) index: usize,
    /// The leader is in a call that may block, and a thread that can lead is reserved.
    pub(super) has_reserve: bool,
    /// Whether the loop itself sends files that may have to be read from a disk.
    pub(super) sends_slow_files: bool,
    /// The route that the leader calls, if it is to be learned.
    pub(super) route: Option<u64>,
    poll: Poll,
    events: Events,
    /// The events of this cycle. The loop may change threads in the middle of them.
    batch: Vec<Ready>,
    cursor: usize,
    /// Connections that could go on at once, and have used their share of this cycle.
    posted_next: Vec<Ready>,
    /// Connections that were read from, and are to be served.
    to_serve: Vec<ActiveConn>,
    /// Connections that were served, and are to be written to.
    to_flush: Vec<ActiveConn>,
    feeds: FeedQueue,
    handshakes: HandshakeQueue,
    loops: Arc<LoopGroup>,
    messages: Vec<LoopMessage>,
    table: ConnTable,
    wheel: Wheel,
    timers: TimerHeap,
    pool: BufferPool,
    acceptor: Acceptor,
    /// Slot at which the search for idle connections continues.
    idle_cursor: u32,
    /// Wakes this loop for a connection that waits for its feed.
    waker: Arc<dyn WakeConn>,
    /// The nested poller has events for its owner.
    poller_ready: bool,
    now: Tick,
    /// The same, exactly.
    moment: Instant,
    /// Time of the last look at the poller. Bytes that came before are known, so a deadline up to this time has
    /// really passed.
    polled: Tick,
    draining: bool,
}

impl EventLoop {
    pub(super) fn waker(&self) -> Arc<dyn WakeConn> {
        self.waker.clone()
    }

    /// Opens the loops of a server.
    pub(super) fn open_all(
        count: usize,
        listeners: &Arc<Vec<Listener>>,
        now: Tick,
    ) -> io::Result<(Arc<LoopGroup>, Vec<EventLoop>)> {
        let polls = (0..count).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let loops = LoopGroup::new(&polls)?;
        let polls = polls.into_iter().enumerate();
        let opened = polls.map(|(index, poll)| EventLoop::new(index, poll, &loops, listeners.clone(), now));
        let opened = opened.collect::<io::Result<_>>()?;
        Ok((loops, opened))
    }

    fn new(
        index: usize,
        poll: Poll,
        loops: &Arc<LoopGroup>,
        listeners: Arc<Vec<Listener>>,
        now: Tick,
    ) -> io::Result<EventLoop> {
        let acceptor = Acceptor::new(listeners);
        acceptor.register(poll.registry())?;
        Ok(EventLoop {
            index,
            has_reserve: false,
            sends_slow_files: true,
            route: None,
            poll,
            events: Events::with_capacity(EVENTS),
            batch: Vec::with_capacity(EVENTS),
            cursor: 0,
            posted_next: Vec::new(),
            to_serve: Vec::with_capacity(GROUP),
            to_flush: Vec::with_capacity(GROUP),
            feeds: FeedQueue::default(),
            handshakes: HandshakeQueue::default(),
            loops: loops.clone(),
            messages: Vec::new(),
            table: ConnTable::default(),
            wheel: Wheel::new(now),
            timers: TimerHeap::default(),
            pool: BufferPool::new(),
            acceptor,
            idle_cursor: 0,
            waker: loops.waker(index),
            poller_ready: false,
            now,
            moment: Instant::now(),
            polled: now,
            draining: false,
        })
    }

    fn handle(&self) -> &LoopHandle {
        self.loops.handle(self.index)
    }

    pub(super) fn now(&self) -> Tick {
        self.now
    }

    /// Updates the loop's time for a new leader. The loop may have waited long for a thread, or the process may have
    /// been stopped.
    pub(super) fn refresh(&mut self, cx: &Context) {
        self.moment = Instant::now();
        self.now = cx.clock.at(self.moment);
    }

    /// Runs until a handler must be called. `None`: the server has stopped.
    pub(super) fn run_until_call(&mut self, cx: &Context) -> Option<ActiveConn> {
        loop {
            let called = self.poll_ready(cx);
            if called.is_some() || self.is_over(cx) {
                return called;
            }
            self.wait(cx, None);
        }
    }

    /// Runs until a handler must be called, or until there is nothing left to do without waiting.
    pub(super) fn poll_ready(&mut self, cx: &Context) -> Option<ActiveConn> {
        loop {
            while let Some(active) = self.to_serve.pop() {
                let mut called = self.advance(active, cx);
                if called.as_ref().is_some_and(|active| !active.conn.owner.is_balanced) {
                    called = called.and_then(|active| self.rebalance(active));
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
            if !self.read_batch(cx) {
                return None;
            }
        }
    }

    /// Goes on once without a wait. Returns connections whose handlers must be called.
    pub(super) fn turn(&mut self, cx: &Context) -> Vec<ActiveConn> {
        self.refresh(cx);
        let mut called: Vec<_> = std::iter::from_fn(|| self.poll_ready(cx)).collect();
        self.wait(cx, Some(Duration::ZERO));
        called.extend(std::iter::from_fn(|| self.poll_ready(cx)));
        called
    }

    /// Ends the loop's waits when another poller has events. The caller must take all of them whenever
    /// [`EventLoop::take_poller_ready`] returns true.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn watch_poller(&self, poller: &impl AsRawFd) -> io::Result<()> {
        let fd = poller.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&fd), Token(NESTED_POLLER), Interest::READABLE)
    }

    /// Whether the nested poller has had events since the last call.
    #[cfg_attr(not(feature = "fibers"), allow(dead_code))]
    pub(super) fn take_poller_ready(&mut self) -> bool {
        std::mem::take(&mut self.poller_ready)
    }

    /// Reads from a batch of connections that may have bytes. False: no connection has.
    #[inline(always)]
    fn read_batch(&mut self, cx: &Context) -> bool {
        let mut bytes = 0;
        while self.to_serve.len() < GROUP && bytes < GROUP_BYTES {
            let active = (self.next_feed())
                .or_else(|| self.next_event())
                .or_else(|| self.next_message())
                .or_else(|| self.next_connection(cx))
                .or_else(|| self.next_expired(cx))
                .or_else(|| self.next_handshake(cx));
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
                // The connection may be out for a call, or had its turn in the queue of feeds just now.
                match self.to_serve.iter_mut().find(|active| active.token() == ready.token) {
                    Some(active) => active.conn.note_ready(ready.ended),
                    None => self.table.note_pending(ready.token, ready.ended),
                }
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
                LoopMessage::Wake(token) if self.feeds.is_spent() => self.feeds.push(token),
                // A connection that is out checks its feed before it waits again.
                LoopMessage::Wake(token) => {
                    if let Some(mut conn) = self.table.take(token) {
                        conn.note_woken();
                        return Some(ActiveConn { conn });
                    }
                }
            }
        }
        None
    }

    fn next_connection(&mut self, cx: &Context) -> Option<ActiveConn> {
        loop {
            let Some(conn) = self.acceptor.accept(self.now, cx) else {
                if self.acceptor.take_at_limit() {
                    self.close_idle();
                    self.loops.request_close_idle(self.index);
                }
                return None;
            };
            // Connections that end with their first call may take long, too. They must not all stay on one loop.
            match self.loops.less_loaded(self.index, self.table.len(), UNEVEN_AT_ACCEPT_MAX) {
                None => return Some(self.insert(conn)),
                Some(other) => self.loops.send(other, LoopMessage::Adopt(conn)),
            }
        }
    }

    fn next_expired(&mut self, cx: &Context) -> Option<ActiveConn> {
        while let Some((due, token)) = self.timers.next_by(self.moment) {
            // The connection may have had its response, and wait for another. Then there is nothing to do.
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

    /// Waits for events, for at most `timeout`.
    pub(super) fn wait(&mut self, cx: &Context, timeout: Option<Duration>) {
        self.loops.note_load(self.index, self.table.len());
        let until = self.wait_until();
        // Counted from now: the cycle may have been long.
        let alarm = self.timers.first().map(|due| due.saturating_duration_since(Instant::now()));
        let left = [until.map(|until| self.now.until(until)), alarm, timeout].into_iter().flatten().min();
        let busy = left == Some(Duration::ZERO)
            || !self.posted_next.is_empty()
            || !self.to_flush.is_empty()
            || !self.messages.is_empty()
            || !self.feeds.is_empty()
            || !self.handshakes.is_empty();
        let handle = self.handle();
        let sleeps =
            !busy && handle.inbox.prepare_park() && self.stage_is_known(cx) && !handle.close_idle_wanted();
        if sleeps {
            self.loops.set_idle(self.index);
        }
        self.polled = self.now;
        self.poll(if sleeps { left } else { Some(Duration::ZERO) });
        if sleeps {
            self.handle().inbox.unpark();
            self.loops.set_busy(self.index);
        }
        self.refresh(cx);
        self.acceptor.next_cycle(self.now);
        if self.handle().take_close_idle() {
            self.close_idle();
            // The loop that asked may be in a handler when a slot gets free.
            self.acceptor.note_all_ready();
        }
        self.collect();
    }

    /// When the loop must go on without an event.
    fn wait_until(&self) -> Option<Tick> {
        let drain = self.draining.then(|| self.now.after(DRAIN_TICK));
        [self.wheel.next(), self.acceptor.retry(self.now), drain].into_iter().flatten().min()
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        let mut polled = self.poll.poll(&mut self.events, timeout);
        if polled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            // The process may have been stopped, for longer than any deadline. Bytes that came meanwhile are in time.
            polled = self.poll.poll(&mut self.events, Some(Duration::ZERO));
        }
        if let Err(error) = polled {
            self.events.clear();
            if error.kind() != io::ErrorKind::Interrupted {
                log_line!(Error, "the poller failed: {error}");
            }
        }
    }

    fn collect(&mut self) {
        self.batch.clear();
        self.cursor = 0;
        self.feeds.next_cycle();
        self.handshakes.next_cycle();
        // Once a cycle: other threads may send as fast as the loop reads. Messages are taken from the end, so they
        // are reversed.
        if self.messages.is_empty() {
            self.loops.handle(self.index).inbox.take_all(&mut self.messages);
            self.messages.reverse();
        }
        for event in &self.events {
            match event.token().0 {
                WAKER => {}
                NESTED_POLLER => self.poller_ready = true,
                token if (LISTENER_0..NESTED_POLLER).contains(&token) => {
                    self.acceptor.note_ready(token - LISTENER_0)
                }
                _ => self
                    .batch
                    .push(Ready { token: event.token(), ended: event.is_read_closed() || event.is_error() }),
            }
        }
        self.batch.append(&mut self.posted_next);
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.loops.close(self.index);
    }
}
