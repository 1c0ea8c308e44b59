//! TLS handshakes of a loop. They have a share of each cycle, so that established clients do not wait behind a storm of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mio::Token;

use super::EventLoop;
use crate::engine::conn_table::ActiveConn;
use crate::transport::context::Context;

/// CPU time for handshakes in a cycle: three with an ECDSA key, or one with an RSA key. The rest waits for the next cycle,
/// behind the connections that have events then.
const CYCLE_BUDGET: Duration = Duration::from_micros(500);

/// Connections whose handshakes can go on, the first one to come first.
#[derive(Debug, Default)]
pub(super) struct HandshakeQueue {
    waiting: VecDeque<Token>,
    spent: Duration,
}

impl HandshakeQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn next_cycle(&mut self) {
        self.spent = Duration::ZERO;
    }
}

impl EventLoop {
    #[cold]
    pub(super) fn queue_handshake(&mut self, active: ActiveConn, cx: &Context) {
        self.handshakes.waiting.push_back(active.token());
        self.wait_for_io(active, cx);
    }

    /// Goes on with a handshake, if the cycle has time for it.
    #[inline]
    pub(super) fn next_handshake(&mut self, cx: &Context) -> Option<ActiveConn> {
        if self.handshakes.is_empty() { None } else { self.advance_handshake(cx) }
    }

    #[cold]
    fn advance_handshake(&mut self, cx: &Context) -> Option<ActiveConn> {
        while self.handshakes.spent < CYCLE_BUDGET {
            let token = self.handshakes.waiting.pop_front()?;
            // The connection may have ended, or be twice in the queue.
            let Some(conn) = self.table.take(token) else { continue };
            let (mut active, now, begun) = (ActiveConn { conn }, self.now, Instant::now());
            active.conn.begin_cycle();
            active.guarded(&self.loops, |conn| conn.advance_handshake(now, cx));
            self.handshakes.spent += begun.elapsed();
            return Some(active);
        }
        None
    }
}
