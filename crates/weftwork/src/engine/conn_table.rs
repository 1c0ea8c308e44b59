//! The connections of one loop: by token, out for a call, and by the time of a delayed response.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use mio::Token;

use super::loops::{LoopGroup, LoopMessage};
use crate::conn::Conn;
use crate::transport::wheel::{Link, Links};

/// Tokens from here on are not connections: see [`LISTENER_0`], [`NESTED_POLLER`] and [`WAKER`].
const INDEX_MAX: u32 = 0xffff_0000;
/// The token of the first listener. The tokens of the others follow.
pub(super) const LISTENER_0: usize = INDEX_MAX as usize;
/// The token of another poller, nested in the loop's own.
pub(super) const NESTED_POLLER: usize = 0xffff_fffe;
/// The token of the loop's waker.
pub(super) const WAKER: usize = 0xffff_ffff;

#[derive(Debug, Default)]
struct Slot {
    /// Part of the token: descriptors and slots are reused, and a batch may hold events of the one before.
    generation: u32,
    link: Link,
    /// `None`: free, or out for a call of the handler.
    conn: Option<Box<Conn>>,
    /// Something happened to the socket while the connection was out, and whether the peer has ended. The poller will not
    /// repeat it.
    pending: Option<bool>,
}

#[derive(Debug, Default)]
pub(super) struct ConnTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// A token is index and generation in one word.
const _: () = assert!(usize::BITS >= 64, "weftwork needs a target with pointers of 64 bits");

pub(super) fn index(token: Token) -> u32 {
    token.0 as u32
}

fn generation(token: Token) -> u32 {
    (token.0 as u64 >> 32) as u32
}

impl ConnTable {
    /// Number of connections, including those that are out for a call.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Reserves a slot for a connection, to be filled with [`ConnTable::put`].
    pub(super) fn reserve(&mut self) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        debug_assert!(index < INDEX_MAX);
        Token(((u64::from(self.slots[index as usize].generation) << 32) | u64::from(index)) as usize)
    }

    pub(super) fn put(&mut self, token: Token, conn: Box<Conn>) {
        self.slots[index(token) as usize].conn = Some(conn);
    }

    /// Whether `token` is of the connection that has the slot now.
    pub(super) fn owns(&self, token: Token) -> bool {
        self.slots.get(index(token) as usize).is_some_and(|slot| slot.generation == generation(token))
    }

    /// Takes a connection out. `None`: it is gone, or out already.
    pub(super) fn take(&mut self, token: Token) -> Option<Box<Conn>> {
        if !self.owns(token) {
            return None;
        }
        self.slots[index(token) as usize].conn.take()
    }

    /// Keeps an event for a connection that is out until the connection is back.
    pub(super) fn note_pending(&mut self, token: Token, ended: bool) {
        if self.owns(token) {
            let pending = &mut self.slots[index(token) as usize].pending;
            *pending = Some(ended || *pending == Some(true));
        }
    }

    /// Takes the pending event of a connection that is back: whether the peer has ended.
    pub(super) fn take_pending(&mut self, token: Token) -> Option<bool> {
        self.slots[index(token) as usize].pending.take()
    }

    /// Frees the slot of a connection that was taken out, and is off the wheel.
    pub(super) fn free(&mut self, token: Token) {
        let slot = &mut self.slots[index(token) as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.pending = None;
        self.free.push(index(token));
    }

    /// The connection at `index` as it is, with its token.
    pub(super) fn peek(&self, index: u32) -> Option<(Token, &Conn)> {
        let slot = self.slots.get(index as usize)?;
        let token = Token(((u64::from(slot.generation) << 32) | u64::from(index)) as usize);
        Some((token, slot.conn.as_deref()?))
    }

    /// The indices of all slots.
    pub(super) fn indices(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }
}

impl Links for ConnTable {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.slots[entry as usize].link
    }
}

/// A connection whose request waits for the handler, or that is to be upgraded.
#[derive(Debug)]
pub(super) struct ActiveConn {
    pub(super) conn: Box<Conn>,
}

impl ActiveConn {
    /// Takes the connection out of a loop that another thread leads by now, to serve it without the loop.
    pub(super) fn leave_loop(mut self, loops: &LoopGroup) -> Box<Conn> {
        loops.deregister(&mut self.conn);
        self.conn
    }

    pub(super) fn token(&self) -> Token {
        Token(self.conn.owner.token)
    }

    /// Runs code of users. If that code panics outside of a handler, the connection's slot in its loop is freed.
    #[inline(always)]
    pub(super) fn guarded<R>(&mut self, loops: &LoopGroup, act: impl FnOnce(&mut Conn) -> R) -> R {
        let guard = PanicGuard { conn: &mut self.conn, loops };
        let result = act(guard.conn);
        std::mem::forget(guard);
        result
    }
}

/// Dropped only by a panic.
struct PanicGuard<'a> {
    conn: &'a mut Conn,
    loops: &'a LoopGroup,
}

impl Drop for PanicGuard<'_> {
    #[cold]
    fn drop(&mut self) {
        let owner = &self.conn.owner;
        self.loops.send(owner.loop_index as usize, LoopMessage::Released(Token(owner.token)));
    }
}

/// Stale timers are removed if there are this many more timers than connections need.
const STALE_MAX: usize = 64;

/// Timers of delayed responses, to the millisecond. Peer deadlines are on the coarser wheel.
#[derive(Debug, Default)]
pub(super) struct TimerHeap {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl TimerHeap {
    /// Adds a timer. `table` has the other connections. There are never more than two timers for each connection:
    /// otherwise a client that asks again and again, and is answered sooner, would make the heap grow.
    pub(super) fn set(&mut self, due: Instant, token: Token, table: &ConnTable) {
        if self.heap.len() >= 2 * table.len() + STALE_MAX {
            self.heap.retain(|Reverse((due, other))| {
                // A connection that is out will not set its timer again, except for this one: its other timers are
                // stale.
                let conn = table.peek(index(Token(*other))).map(|(_, conn)| conn);
                let is_kept = table.owns(Token(*other)) && conn.is_none_or(|conn| conn.has_alarm(*due));
                is_kept && *other != token.0
            });
        }
        self.heap.push(Reverse((due, token.0)));
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Returns a timer that is due.
    pub(super) fn next_by(&mut self, moment: Instant) -> Option<(Instant, Token)> {
        if self.first()? > moment {
            return None;
        }
        self.heap.pop().map(|Reverse((due, token))| (due, Token(token)))
    }
}

#[cfg(test)]
mod tests {
    //! Timers fire in order, and the heap stays within its bound.

    use std::time::Duration;

    use super::*;

    fn later(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn in_order_and_not_before() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let [one, two] = [0; 2].map(|_| table.reserve());
        timers.set(start + later(9), one, &table);
        timers.set(start + later(5), two, &table);
        assert_eq!((timers.first(), timers.next_by(start + later(4))), (Some(start + later(5)), None));
        let fired = [(); 3].map(|()| timers.next_by(start + later(9)));
        assert_eq!(fired, [Some((start + later(5), two)), Some((start + later(9), one)), None]);
    }

    #[test]
    fn timers_of_closed_connections_are_removed() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let out = table.reserve();
        timers.set(start, out, &table);
        for due in 1..1000 {
            let gone = table.reserve();
            timers.set(start + later(due), gone, &table);
            table.free(gone);
            assert!(timers.heap.len() <= 2 * 2 + STALE_MAX);
        }
        assert_eq!(timers.next_by(start), Some((start, out)));
    }

    /// The connection is out while its timer is set. Only the last timer counts.
    #[test]
    fn a_connection_that_sets_many_timers_keeps_one() {
        let (mut timers, mut table, start) = (TimerHeap::default(), ConnTable::default(), Instant::now());
        let token = table.reserve();
        for due in 1..1000 {
            timers.set(start + later(due), token, &table);
            assert!(timers.heap.len() <= 2 + STALE_MAX, "{}", timers.heap.len());
        }
        let fired: Vec<_> = std::iter::from_fn(|| timers.next_by(start + later(1000))).collect();
        assert_eq!(fired.last(), Some(&(start + later(999), token)));
    }
}
