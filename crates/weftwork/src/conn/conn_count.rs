//! Counts open connections, and their states.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::transport::events::{ConnState, Counters};

/// Counts an open connection while it lives.
#[derive(Debug)]
pub(super) struct CountGuard {
    counters: Arc<Counters>,
    state: ConnState,
    /// It is one request of a connection, which is counted itself.
    is_stream: bool,
}

impl CountGuard {
    pub(super) fn new(counters: &Arc<Counters>) -> CountGuard {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        CountGuard { counters: counters.clone(), state: ConnState::Idle, is_stream: false }
    }

    /// Counts the states of one request of a connection.
    pub(super) fn of_stream(counters: &Arc<Counters>) -> CountGuard {
        CountGuard { counters: counters.clone(), state: ConnState::Idle, is_stream: true }
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
        if !self.is_stream {
            self.counters.connections.fetch_sub(1, Ordering::Release);
        }
    }
}
