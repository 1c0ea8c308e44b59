//! Holds which streams of a connection have changed, and whom to wake for that.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Mutex, lock};
use crate::message::WakeConn;
use crate::transport::open_count::OpenCount;
use crate::transport::stream::Duplex;

/// What the streams of a connection tell it.
#[derive(Debug, Default)]
pub(crate) struct StreamHub {
    state: Mutex<HubState>,
    pub(crate) local_addr: Option<SocketAddr>,
    /// The connection, if it has no socket. It may stand for one with TLS.
    #[cfg_attr(not(feature = "_tls"), allow(dead_code))]
    pub(super) memory: Option<Arc<dyn Duplex>>,
    /// Counts the connection. Each of its requests holds the hub.
    pub(super) open: Option<Arc<OpenCount>>,
}

#[derive(Default)]
struct HubState {
    /// Streams with something new for the connection.
    changed: Vec<u32>,
    waiter: Option<(Arc<dyn WakeConn>, usize)>,
}

impl fmt::Debug for HubState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubState").field("changed", &self.changed).finish_non_exhaustive()
    }
}

impl StreamHub {
    pub(crate) fn new(local_addr: Option<SocketAddr>, open: Option<Arc<OpenCount>>) -> Arc<StreamHub> {
        Arc::new(StreamHub { state: Mutex::default(), local_addr, memory: None, open })
    }

    /// The hub of a connection without a socket.
    pub(crate) fn in_memory(memory: Arc<dyn Duplex>, open: Option<Arc<OpenCount>>) -> Arc<StreamHub> {
        let local_addr = memory.local_addr();
        Arc::new(StreamHub { state: Mutex::default(), local_addr, memory: Some(memory), open })
    }

    /// Wakes the connection at the next change. Returns false if there is one already.
    pub(crate) fn watch(&self, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut state = lock(&self.state);
        let nothing = state.changed.is_empty();
        if nothing {
            state.waiter = Some((wakes.clone(), key));
        }
        nothing
    }

    pub(crate) fn has_changes(&self) -> bool {
        !lock(&self.state).changed.is_empty()
    }

    /// Takes the streams that have changed. `into` must be empty.
    pub(crate) fn take_changed(&self, into: &mut Vec<u32>) {
        let mut state = lock(&self.state);
        state.waiter = None;
        std::mem::swap(&mut state.changed, into);
    }

    pub(super) fn note(&self, stream: u32) {
        let mut state = lock(&self.state);
        state.changed.push(stream);
        let waiter = state.waiter.take();
        drop(state);
        if let Some((wakes, key)) = waiter {
            wakes.wake(key);
        }
    }
}
