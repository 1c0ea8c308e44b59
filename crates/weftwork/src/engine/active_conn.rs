//! A connection taken out of its loop for a call. If the call panics, its slot is freed.

use mio::Token;

use super::loops::{LoopGroup, LoopMessage};
use crate::conn::Conn;

/// A connection whose request waits for the handler, or that is to be upgraded.
#[derive(Debug)]
pub(super) struct ActiveConn {
    pub(super) conn: Box<Conn>,
}

impl ActiveConn {
    /// Takes the connection out of a loop that another thread leads by now, to serve it without the loop.
    pub(super) fn leave_loop(mut self, loops: &LoopGroup) -> Box<Conn> {
        let token = self.token();
        loops.deregister(&mut self.conn, token);
        self.conn
    }

    pub(super) fn token(&self) -> Token {
        Token(self.conn.owner.token)
    }

    /// Runs code of users. If that code panics outside of a handler, the connection's slot in its loop is freed.
    #[inline]
    pub(super) fn guarded<R>(&mut self, loops: &LoopGroup, act: impl FnOnce(&mut Conn) -> R) -> R {
        self.call_guarded(act, |conn| {
            loops.send(conn.owner.loop_index as usize, LoopMessage::Released(Token(conn.owner.token)))
        })
    }

    /// As [`guarded`](ActiveConn::guarded), for the leader of the loop. The loop frees the slots of connections in
    /// `panicked`.
    #[inline(always)]
    pub(super) fn guarded_in_loop<R>(
        &mut self,
        panicked: &mut Vec<Token>,
        act: impl FnOnce(&mut Conn) -> R,
    ) -> R {
        self.call_guarded(act, |conn| panicked.push(Token(conn.owner.token)))
    }

    #[inline(always)]
    fn call_guarded<R>(&mut self, act: impl FnOnce(&mut Conn) -> R, leave: impl FnMut(&Conn)) -> R {
        let guard = PanicGuard { conn: &mut self.conn, leave };
        let result = act(guard.conn);
        std::mem::forget(guard);
        result
    }
}

/// Dropped only by a panic.
struct PanicGuard<'a, L: FnMut(&Conn)> {
    conn: &'a mut Conn,
    leave: L,
}

impl<L: FnMut(&Conn)> Drop for PanicGuard<'_, L> {
    #[cold]
    fn drop(&mut self) {
        (self.leave)(self.conn);
    }
}
