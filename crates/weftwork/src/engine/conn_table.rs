//! The connections of one loop, by token.

use mio::Token;

use crate::conn::Conn;
use crate::transport::wheel::{Link, Links};

/// Tokens from here on are not connections: see [`LISTENER_0`], [`NESTED_POLLER`] and [`WAKER`].
const INDEX_MAX: u32 = 0xffff_0000;
/// The token of the first listener; the others follow.
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
    /// The event for the connection while it was out. The poller will not repeat it.
    pending: Option<Pending>,
}

/// Something happened to a socket whose connection was out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) ended: bool,
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
    /// Connections here, those that are out for a call included.
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
            let ended = ended || pending.is_some_and(|pending| pending.ended);
            *pending = Some(Pending { ended });
        }
    }

    /// Takes the pending event of a connection that is back.
    pub(super) fn take_pending(&mut self, token: Token) -> Option<Pending> {
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
