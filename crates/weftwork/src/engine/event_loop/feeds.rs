//! Sends of feeds and of HTTP/2 in a cycle of a loop. They have a share of each cycle, so that no other client waits until all of
//! them have sent all that they have.

use std::collections::VecDeque;

use mio::Token;

use super::EventLoop;
use crate::conn::Conn;
use crate::engine::conn_table::ActiveConn;

/// Sends of at most 16 KiB in a cycle. If many connections wait, at least a sixteenth of them goes on, so that looks at the poller cost
/// little.
const CYCLE_SENDS: usize = 64;
const WAITING_SHARE: usize = 16;
/// Maximum number of sends of one connection in a cycle.
const CONN_SENDS: u32 = 64;

/// Connections that could go on, the first one to come first.
#[derive(Debug, Default)]
pub(super) struct FeedQueue {
    waiting: VecDeque<Token>,
    /// Number of connections that may go on in this cycle. Those that came later wait for the next one.
    turns: usize,
    sends_left: usize,
}

impl FeedQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn next_cycle(&mut self) {
        self.turns = self.waiting.len();
        self.sends_left = CYCLE_SENDS.max(self.turns / WAITING_SHARE);
    }

    pub(super) fn push(&mut self, token: Token) {
        self.waiting.push_back(token);
    }

    /// Returns whether further connections have to wait for a later cycle.
    pub(super) fn is_spent(&self) -> bool {
        self.sends_left == 0
    }

    /// Returns whether the connection has to wait for a later cycle before it sends. The first send is always allowed.
    pub(super) fn ends_turn(&self, conn: &Conn) -> bool {
        let sends = conn.owner.budget_used;
        sends >= CONN_SENDS || sends > 0 && self.is_spent()
    }

    pub(super) fn note_send(&mut self, conn: &mut Conn) {
        conn.owner.budget_used += 1;
        self.sends_left = self.sends_left.saturating_sub(1);
    }

    fn next(&mut self) -> Option<Token> {
        if self.turns == 0 || self.is_spent() {
            return None;
        }
        self.turns -= 1;
        self.waiting.pop_front()
    }
}

impl EventLoop {
    #[inline(always)]
    pub(super) fn note_send(&mut self, conn: &mut Conn) {
        if conn.is_fed() {
            self.feeds.note_send(conn);
        }
    }

    /// Goes on with a connection of the queue, if the cycle has a send for it.
    #[inline]
    pub(super) fn next_feed(&mut self) -> Option<ActiveConn> {
        while let Some(token) = self.feeds.next() {
            // The connection may have ended, or be twice in the queue. One that is out checks its feed before it waits again.
            let Some(mut conn) = self.table.take(token) else { continue };
            conn.note_woken();
            conn.begin_cycle();
            return Some(ActiveConn { conn });
        }
        None
    }
}
