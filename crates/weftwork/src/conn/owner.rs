//! Fields of a connection that its owner, an engine, keeps with it.

use crate::transport::Tick;

/// Interest of a connection, as its owner's poller knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Registered {
    /// Registered with the threads that share the connection, and not with a loop. The token is its slot there.
    Shared,
    #[default]
    Not,
    /// Readable.
    Read,
    /// Readable or writable.
    ReadWrite,
}

/// Fields that only the owner uses, apart from the state of the protocol.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Loop to which the connection belongs.
    pub(crate) loop_index: u32,
    /// Calls, and sends of a feed, in this cycle of the loop.
    pub(crate) budget_used: u32,
    /// Whether it was read in this cycle, if that counts.
    pub(crate) has_read: bool,
    /// Whether it is in the loop in which it stays.
    pub(crate) is_balanced: bool,
    /// Token in the loop or in the shared poller.
    pub(crate) token: usize,
    /// What the poller waits for.
    pub(crate) registered: Registered,
    /// Time since when it has waited for a thread. See [`drop_if_abandoned`](super::Conn::drop_if_abandoned).
    pub(crate) queued_since: Option<Tick>,
    /// Time by which its request had arrived, if that was known before it was read.
    pub(crate) arrived: Option<Tick>,
}
