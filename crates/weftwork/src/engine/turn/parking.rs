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
    pub(super) fn park(&mut self, errand: Errand, cx: &Context) {
        let token = errand.token();
        let mut conn = errand.conn;
        conn.rest(&mut self.pool);
        // What is there of one that has come back is not known before the next look at the poller.
        let was_watched = conn.registered != Registered::Not;
        if let Err(error) = self.register(&mut conn, token) {
            log::warn!("a connection was dropped, the poller would not watch it: {error}");
            return self.close(Errand { conn });
        }
        let due = conn.deadline(cx);
        if was_watched && due <= self.polled {
            // Its slot came up while it was out for bytes, and would again: they must not put off its end.
            conn.expire(self.now, cx);
            self.again.push(Ready { token, ended: false });
        }
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

    pub(super) fn close(&mut self, mut errand: Errand) {
        errand.conn.reclaim(&mut self.pool);
        self.release(errand.token());
    }

    pub(super) fn release(&mut self, token: Token) {
        if self.table.owns(token) {
            self.wheel.disarm(&mut self.table, index(token));
            self.table.free(token);
        }
    }
}
