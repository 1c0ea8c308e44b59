//! Counts open connections, and their states.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::transport::events::{ConnState, Counters};
use crate::transport::open_count::OpenCount;

/// Counts an open connection while it lives.
#[derive(Debug)]
pub(super) struct CountGuard {
    counters: Arc<Counters>,
    state: ConnState,
    /// Another value counts it, or it is one request of a connection that is counted.
    is_counted_elsewhere: bool,
    /// The count that the requests of the connection share. The end of a connection may come after all of them.
    shared: Option<Arc<OpenCount>>,
}

impl CountGuard {
    pub(super) fn new(counters: &Arc<Counters>) -> CountGuard {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        CountGuard {
            counters: counters.clone(),
            state: ConnState::Idle,
            is_counted_elsewhere: false,
            shared: None,
        }
    }

    /// Shares the count with the requests of the connection.
    pub(super) fn share(&mut self) -> Arc<OpenCount> {
        self.is_counted_elsewhere = true;
        let open = OpenCount::new(self.counters.clone());
        self.shared.insert(Arc::new(open)).clone()
    }

    /// Counts the states of one request of a connection.
    pub(super) fn of_stream(counters: &Arc<Counters>) -> CountGuard {
        CountGuard {
            counters: counters.clone(),
            state: ConnState::Idle,
            is_counted_elsewhere: true,
            shared: None,
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Records the state of the connection. A connection that only lingers, or was upgraded, stays in that state.
    #[inline]
    pub(super) fn enter(&mut self, state: ConnState) {
        if self.state != state {
            self.change(state);
        }
    }

    /// Records whether a connection of HTTP/2 that was told to end has nothing in progress.
    #[cold]
    pub(super) fn linger_if(&mut self, lingers: bool) {
        if lingers {
            self.enter(ConnState::Lingering);
        } else if self.state == ConnState::Lingering {
            self.counters.states[self.state as usize].fetch_sub(1, Ordering::Relaxed);
            self.state = ConnState::Idle;
        }
    }

    #[cold]
    fn change(&mut self, state: ConnState) {
        if matches!(self.state, ConnState::Lingering | ConnState::Upgraded) {
            return;
        }
        if self.state != ConnState::Idle {
            self.counters.states[self.state as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if state != ConnState::Idle {
            self.counters.states[state as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.state = state;
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if self.state != ConnState::Idle {
            self.counters.states[self.state as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if !self.is_counted_elsewhere {
            self.counters.connections.fetch_sub(1, Ordering::Release);
        }
    }
}
