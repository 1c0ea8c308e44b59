//! Reads from the connections of a loop, and sends to them.
//!
//! `read` and `send` are inlined into the loop's cycle, system call and all. `transport/stream.rs` has the reason.
//! `read_more` and `send_now` are for the other places, so that the code is not inlined again.

use super::EventLoop;
use crate::conn::{Conn, Flushed};
use crate::engine::active_conn::ActiveConn;
use crate::transport::context::Context;
use crate::transport::stream::is_would_block;

impl EventLoop {
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
    pub(super) fn read_more(&mut self, conn: &mut Conn) {
        self.read(conn);
    }

    /// Sends, and goes on with the connection.
    #[inline(always)]
    pub(super) fn send(&mut self, mut active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        let now = self.now;
        match active.guarded_in_loop(&mut self.panicked, |conn| conn.flush(now)) {
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

    #[inline(never)]
    pub(super) fn send_now(&mut self, active: ActiveConn, cx: &Context) -> Option<ActiveConn> {
        self.send(active, cx)
    }
}
