//! Counts open connections, and those of them that have sent everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::transport::counters::Counters;

/// Counts an open connection while it lives.
#[derive(Debug)]
pub(super) struct CountGuard {
    counters: Arc<Counters>,
    lingers: bool,
}

impl CountGuard {
    pub(super) fn new(counters: &Arc<Counters>) -> CountGuard {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        CountGuard { counters: counters.clone(), lingers: false }
    }

    /// Records that everything was sent.
    pub(super) fn note_lingering(&mut self) {
        if !std::mem::replace(&mut self.lingers, true) {
            self.counters.lingering.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if self.lingers {
            self.counters.lingering.fetch_sub(1, Ordering::Relaxed);
        }
        self.counters.connections.fetch_sub(1, Ordering::Release);
    }
}
