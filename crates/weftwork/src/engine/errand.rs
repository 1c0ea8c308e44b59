//! What is a connection that is out of its loop, and what becomes of its place there?

use mio::Token;

use super::hub::{Hub, Letter};
use crate::conn::Conn;

/// A connection whose request waits for the handler, or that is to be taken over.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) conn: Box<Conn>,
}

impl Errand {
    /// The loop is somebody else's by now: the connection leaves it, and is served without.
    pub(super) fn part(mut self, hub: &Hub) -> Box<Conn> {
        let token = self.token();
        hub.part(&mut self.conn, token);
        self.conn
    }

    pub(super) fn token(&self) -> Token {
        Token(self.conn.token)
    }

    /// Does what runs code of users. If that panics outside of a handler, the connection is lost, and its place in its
    /// loop is free for others.
    #[inline]
    pub(super) fn with_conn<R>(&mut self, hub: &Hub, act: impl FnOnce(&mut Conn) -> R) -> R {
        let place = Place { conn: &mut self.conn, hub };
        let result = act(place.conn);
        std::mem::forget(place);
        result
    }
}

/// Dropped only by a panic.
struct Place<'a> {
    conn: &'a mut Conn,
    hub: &'a Hub,
}

impl Drop for Place<'_> {
    #[cold]
    fn drop(&mut self) {
        self.hub.post(self.conn.home as usize, Letter::Left(Token(self.conn.token)));
    }
}
