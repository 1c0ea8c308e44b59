//! Advances one connection of a loop: reads and sends, waits for its peer, its feed or its time, and frees its slot at the
//! end.
//!
//! `read` and `send` are inlined into the loop's cycle, system call and all. `transport/stream.rs` has the reason.
//! `read_more` and `send_now` are for the other places, so that the code is not inlined again.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::{EventLoop, Ready};
use crate::conn::{Conn, Flushed, Registered, Step};
use crate::engine::conn_table::{ActiveConn, index};
use crate::engine::loops::LoopMessage;
use crate::transport::context::Context;
use crate::transport::stream::is_would_block;

/// Maximum number of pipelined requests before other connections are served.
const CALL_BUDGET: u32 = 64;
/// Maximum number of connections that a loop may have more than the emptiest loop. Beyond it, a connection moves
/// there before its first call.
const UNEVEN_MAX: usize = 5;

impl EventLoop {
    /// Adds a connection: a new one, or one that comes back.
    pub(in crate::engine) fn insert(&mut self, mut conn: Box<Conn>) -> ActiveConn {
        conn.owner.loop_index = self.index as u32;
        conn.owner.token = self.table.reserve().0;
        if conn.is_stream() {
            // Its connection wakes it, and no poller.
            conn.owner.registered = Registered::ReadWrite;
        }
        conn.begin_cycle();
        ActiveConn { conn }
    }

    /// Advances a connection until it waits, ends, needs its handler, or has something to send.
    pub(super) fn advance(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        let now = self.now;
        if active.conn.has_streams() {
            active.conn.take_buffers(&mut self.pool);
        }
        loop {
            match active.guarded(&self.loops, |conn| conn.step(now, cx)) {
                Step::Call | Step::Upgrade => return Some(active),
                // What a member of a feed sends may go to all others, so it gets one read a cycle. With more, a
                // client that sent fast enough held the loop, and its other members timed out.
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
                Step::Write if active.conn.is_fed() && self.feeds.ends_turn(&active.conn) => {
                    self.post_next(active, cx);
                }
                // Sending frees the body's memory. When 16 bodies of 64 KiB were kept until the end of the batch, the
                // allocator returned their pages to the kernel each time: 62 us a request instead of 29 us.
                Step::Write if active.conn.holds_body() || active.conn.is_stream() => {
                    self.note_send(&mut active.conn);
                    return self.send_now(active, cx);
                }
                Step::Write => {
                    self.note_send(&mut active.conn);
                    self.to_flush.push(active);
                }
                Step::Close => self.close(active),
                Step::Stream => self.read_stream(active, cx),
                Step::Handshake => self.queue_handshake(active, cx),
                Step::WaitFeed => self.wait_for_feed(active, cx),
            }
            return None;
        }
    }

    /// Serves the next request of an HTTP/2 connection, and then the connection again. Its requests stay in its loop, so the
    /// connection moves before the first one.
    #[inline(never)]
    fn read_stream(&mut self, active: ActiveConn, cx: &Context) {
        let balanced = if active.conn.owner.is_balanced { Some(active) } else { self.rebalance(active) };
        let Some(mut active) = balanced else { return };
        let (now, pool) = (self.now, &mut self.pool);
        let stream = active.guarded(&self.loops, |conn| conn.read_frames(now, cx, pool));
        self.to_serve.push(active);
        if let Some(stream) = stream {
            let stream = self.insert(stream);
            self.to_serve.push(stream);
        }
    }

    /// Moves a connection to the loop with the fewest before its first call, unless it ends with that call. `None`:
    /// it has moved.
    #[inline(never)]
    pub(super) fn rebalance(&mut self, mut active: ActiveConn) -> Option<ActiveConn> {
        active.conn.owner.is_balanced = true;
        if active.conn.ends_with_request() && !active.conn.has_streams() {
            return Some(active);
        }
        let Some(other) = self.loops.less_loaded(self.index, self.table.len(), UNEVEN_MAX) else {
            return Some(active);
        };
        let conn = self.remove(active);
        self.loops.send(other, LoopMessage::Adopt(conn));
        None
    }

    /// Goes on with a connection whose handler has run. The next pipelined request may be waiting.
    pub(in crate::engine) fn resume(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        active.conn.owner.budget_used += 1;
        if let Some(ended) = self.table.take_pending(active.token()) {
            active.conn.note_ready(ended);
        }
        if active.conn.owner.budget_used >= CALL_BUDGET {
            self.post_next(active, cx);
            return None;
        }
        self.advance(active, cx)
    }

    /// Answers a request with 503 instead of a call.
    pub(in crate::engine) fn refuse(
        &mut self,
        mut active: ActiveConn,
        refuse: fn(&mut Conn, &Context),
        cx: &Context,
    ) {
        active.guarded(&self.loops, |conn| refuse(conn, cx));
        let called = self.advance(active, cx);
        debug_assert!(called.is_none(), "nothing is read behind a refusal");
    }

    /// Removes a connection that a thread without the loop will serve.
    pub(in crate::engine) fn remove(&mut self, active: ActiveConn) -> Box<Conn> {
        let token = active.token();
        let mut conn = active.conn;
        if std::mem::take(&mut conn.owner.registered) != Registered::Not && !conn.is_stream() {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.poll.registry().deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.free_slot(token);
        conn
    }

    /// Returns how many bytes were read.
    #[inline(always)]
    pub(super) fn read(&mut self, conn: &mut Conn) -> usize {
        match conn.fill(self.now, &mut self.pool) {
            Ok(count @ 1..) => return count,
            Err(error) if is_would_block(&error) => {}
            Ok(0) => conn.on_eof(),
            Err(_) => conn.on_reset(),
        }
        0
    }

    #[inline(never)]
    fn read_more(&mut self, conn: &mut Conn) {
        self.read(conn);
    }

    /// Sends, and goes on with the connection.
    #[inline(always)]
    pub(super) fn send(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        let (now, may_wait) = (self.now, self.sends_slow_files);
        let flushed = active.guarded(&self.loops, |conn| conn.flush_with(now, may_wait));
        self.go_on(active, flushed, cx)
    }

    /// Goes on with a connection that was sent to.
    #[inline(always)]
    fn go_on(
        &mut self,
        active: ActiveConn,
        flushed: io::Result<Flushed>,
        cx: &Context,
    ) -> Option<ActiveConn> {
        match flushed {
            Ok(Flushed::SlowFile) => return Some(active),
            Ok(Flushed::All) => return self.advance(active, cx),
            // A feed may cut off a client that reads nothing, so the connection must be woken for that.
            Ok(Flushed::WouldBlock) if !active.conn.watch_cut(&self.waker, active.conn.owner.token) => {
                self.post_next(active, cx)
            }
            Ok(Flushed::WouldBlock) => self.wait_for_io(active, cx),
            Ok(Flushed::BudgetSpent) => self.post_next(active, cx),
            Err(_) => self.close(active),
        }
        None
    }

    #[cold]
    pub(in crate::engine) fn go_on_after_file(
        &mut self,
        active: ActiveConn,
        flushed: io::Result<Flushed>,
        cx: &Context,
    ) -> Option<ActiveConn> {
        self.go_on(active, flushed, cx)
    }

    #[inline(never)]
    fn send_now(&mut self, active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        self.send(active, cx)
    }

    /// Sends the responses that are ready. To be called before anything that may take long.
    pub(in crate::engine) fn flush_batch(&mut self, cx: &Context) {
        while let Some(active) = self.to_flush.pop() {
            self.send_now(active, cx).into_iter().for_each(|called| self.to_serve.push(called));
        }
    }

    /// Makes the connection wait for the poller and for its deadline.
    pub(super) fn wait_for_io(&mut self, mut active: ActiveConn, cx: &Context) {
        let token = active.token();
        active.conn.release_buffers(&mut self.pool);
        // If the connection was just added, its bytes are not known before the next look at the poller.
        let was_watched = active.conn.owner.registered != Registered::Not;
        if let Err(error) = self.register(&mut active.conn, token) {
            self.close(active);
            return cx.warn_resources(format_args!(
                "a connection was dropped, the poller would not watch it: {error}"
            ));
        }
        let due = active.conn.deadline(cx);
        if was_watched && due <= self.polled {
            // The deadline passed while the connection was out for bytes. Bytes must not put off its end.
            self.expire(&mut active, cx);
            self.posted_next.push(Ready { token, ended: false });
        }
        let mut conn = active.conn;
        if let Some(due) = conn.take_alarm() {
            self.timers.set(due, token, &self.table);
        } else if conn.awaits_response() && conn.note_due_by(self.moment) {
            // Its timer fired while it was out, and fires no more.
            self.posted_next.push(Ready { token, ended: false });
        }
        if conn.is_stream() && !conn.watch_stream(&self.waker, token.0) {
            conn.note_woken();
            self.posted_next.push(Ready { token, ended: false });
        }
        if !conn.awaits_response() || conn.awaits_output_space() || conn.passes_body() {
            self.wheel.arm(&mut self.table, index(token), due);
        }
        self.table.put(token, conn);
    }

    /// Asks for write events only when needed. A new socket is writable at once, which cost every new connection a
    /// wait and a read without effect.
    fn register(&self, conn: &mut Conn, token: Token) -> io::Result<()> {
        let wanted = if conn.awaits_output_space() { Registered::ReadWrite } else { Registered::Read };
        if conn.owner.registered >= wanted {
            return Ok(());
        }
        let interest = match wanted {
            Registered::ReadWrite => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let fd = conn.as_fd().as_raw_fd();
        if conn.owner.registered == Registered::Not {
            self.poll.registry().register(&mut SourceFd(&fd), token, interest)?;
        } else {
            self.poll.registry().reregister(&mut SourceFd(&fd), token, interest)?;
        }
        conn.owner.registered = wanted;
        Ok(())
    }

    /// Makes the connection wait for its feed, or for its peer to close.
    fn wait_for_feed(&mut self, active: ActiveConn, cx: &Context) {
        if active.conn.watch_feed(&self.waker, active.conn.owner.token) {
            self.wait_for_io(active, cx);
        } else {
            self.post_next(active, cx);
        }
    }

    /// Posts a connection that could go on to a later cycle, so that others are served.
    fn post_next(&mut self, active: ActiveConn, cx: &Context) {
        match active.conn.is_fed() {
            true => self.feeds.push(active.token()),
            false => self.posted_next.push(Ready { token: active.token(), ended: false }),
        }
        self.wait_for_io(active, cx);
    }

    /// Handles a deadline that has passed.
    pub(super) fn expire(&mut self, active: &mut ActiveConn, cx: &Context) {
        let now = self.now;
        active.guarded(&self.loops, |conn| conn.on_timeout(now, cx));
    }

    fn close(&mut self, mut active: ActiveConn) {
        self.free_slot(active.token());
        active.conn.reclaim(&mut self.pool);
    }

    pub(super) fn free_slot(&mut self, token: Token) {
        if self.table.owns(token) {
            self.wheel.disarm(&mut self.table, index(token));
            self.table.free(token);
        }
    }
}
