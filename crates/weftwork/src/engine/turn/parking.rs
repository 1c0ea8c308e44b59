//! How a connection waits for its peer, its feed or its time without anybody, and how its place gets free.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::{Loop, Ready};
use crate::conn::{Conn, Registered};
use crate::engine::errand::Errand;
use crate::engine::table::index;
use crate::transport::context::Context;

impl Loop {
    /// The connection waits: for the poller, and for its deadline.
    pub(super) fn park(&mut self, mut errand: Errand, cx: &Context) {
        let token = errand.token();
        errand.conn.rest(&mut self.pool);
        // What is there of one that has come back is not known before the next look at the poller.
        let was_watched = errand.conn.registered != Registered::Not;
        if let Err(error) = self.register(&mut errand.conn, token) {
            self.close(errand);
            return cx.warn_of_want(format_args!(
                "a connection was dropped, the poller would not watch it: {error}"
            ));
        }
        let due = errand.conn.deadline(cx);
        if was_watched && due <= self.polled {
            // Its slot came up while it was out for bytes, and would again: they must not put off its end.
            self.expire(&mut errand, cx);
            self.again.push(Ready { token, ended: false });
        }
        let mut conn = errand.conn;
        if let Some(due) = conn.take_alarm() {
            self.alarms.set(due, token, &self.table);
        } else if conn.awaits_response() && conn.note_due_by(self.moment) {
            // Its alarm has rung while it was out, and rings no more.
            self.again.push(Ready { token, ended: false });
        }
        if !conn.awaits_response() || conn.awaits_room() {
            self.wheel.arm(&mut self.table, index(token), due);
        }
        self.table.put(token, conn);
    }

    /// Not for room before it is wanted: a socket has room from its start on, and to be told so cost every fresh connection a
    /// wait and a read in vain.
    fn register(&self, conn: &mut Conn, token: Token) -> io::Result<()> {
        let wanted = if conn.awaits_room() { Registered::ForRoom } else { Registered::ForBytes };
        if conn.registered >= wanted {
            return Ok(());
        }
        let interest = match wanted {
            Registered::ForRoom => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let fd = conn.as_fd().as_raw_fd();
        if conn.registered == Registered::Not {
            self.poll.registry().register(&mut SourceFd(&fd), token, interest)?;
        } else {
            self.poll.registry().reregister(&mut SourceFd(&fd), token, interest)?;
        }
        conn.registered = wanted;
        Ok(())
    }

    /// The connection waits for its feed, or for its peer to go.
    pub(super) fn park_fed(&mut self, errand: Errand, cx: &Context) {
        if errand.conn.watch_feed(&self.bell, errand.conn.token) {
            self.park(errand, cx);
        } else {
            self.put_off(errand, cx);
        }
    }

    /// The connection could go on, but it is the turn of others.
    pub(super) fn put_off(&mut self, errand: Errand, cx: &Context) {
        self.again.push(Ready { token: errand.token(), ended: false });
        self.park(errand, cx);
    }

    /// The connection's time is up.
    pub(super) fn expire(&mut self, errand: &mut Errand, cx: &Context) {
        let now = self.now;
        errand.with_conn_here(&mut self.lost, |conn| conn.expire(now, cx));
    }

    pub(super) fn close(&mut self, mut errand: Errand) {
        self.release(errand.token());
        errand.conn.reclaim(&mut self.pool);
    }

    #[inline]
    pub(super) fn release_lost(&mut self) {
        while let Some(token) = self.lost.pop() {
            self.release(token);
        }
    }

    pub(super) fn release(&mut self, token: Token) {
        if self.table.owns(token) {
            self.wheel.disarm(&mut self.table, index(token));
            self.table.free(token);
        }
    }
}
