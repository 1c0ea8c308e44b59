//! Registers a connection that waits for its peer, its feed or its time, and frees its slot at the end.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::{EventLoop, Ready};
use crate::conn::{Conn, Registered};
use crate::engine::active_conn::ActiveConn;
use crate::engine::conn_table::index;
use crate::transport::context::Context;

impl EventLoop {
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
        if !conn.awaits_response() || conn.awaits_output_space() {
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
    pub(super) fn wait_for_feed(&mut self, active: ActiveConn, cx: &Context) {
        if active.conn.watch_feed(&self.waker, active.conn.owner.token) {
            self.wait_for_io(active, cx);
        } else {
            self.post_next(active, cx);
        }
    }

    /// Posts a connection that could go on to the next cycle, so that others are served.
    pub(super) fn post_next(&mut self, active: ActiveConn, cx: &Context) {
        self.posted_next.push(Ready { token: active.token(), ended: false });
        self.wait_for_io(active, cx);
    }

    /// Handles a deadline that has passed.
    pub(super) fn expire(&mut self, active: &mut ActiveConn, cx: &Context) {
        let now = self.now;
        active.guarded_in_loop(&mut self.panicked, |conn| conn.on_timeout(now, cx));
    }

    pub(super) fn close(&mut self, mut active: ActiveConn) {
        self.free_slot(active.token());
        active.conn.reclaim(&mut self.pool);
    }

    #[inline]
    pub(super) fn free_panicked(&mut self) {
        while let Some(token) = self.panicked.pop() {
            self.free_slot(token);
        }
    }

    pub(super) fn free_slot(&mut self, token: Token) {
        if self.table.owns(token) {
            self.wheel.disarm(&mut self.table, index(token));
            self.table.free(token);
        }
    }
}
