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
        self.guarded(act, |conn| hub.post(conn.home as usize, Letter::Left(Token(conn.token))))
    }

    /// The same within its loop, which frees the places of those that are lost.
    #[inline(always)]
    pub(super) fn with_conn_here<R>(&mut self, lost: &mut Vec<Token>, act: impl FnOnce(&mut Conn) -> R) -> R {
        self.guarded(act, |conn| lost.push(Token(conn.token)))
    }

    #[inline(always)]
    fn guarded<R>(&mut self, act: impl FnOnce(&mut Conn) -> R, leave: impl FnMut(&Conn)) -> R {
        let place = Place { conn: &mut self.conn, leave };
        let result = act(place.conn);
        std::mem::forget(place);
        result
    }
}

/// Dropped only by a panic.
struct Place<'a, L: FnMut(&Conn)> {
    conn: &'a mut Conn,
    leave: L,
}

impl<L: FnMut(&Conn)> Drop for Place<'_, L> {
    #[cold]
    fn drop(&mut self) {
        (self.leave)(self.conn);
    }
}
