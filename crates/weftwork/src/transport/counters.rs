//! What a server counts: few numbers, off the path of a request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::watchdog::Watchdog;

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident ),+ $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            /// Connections open now.
            pub(crate) connections: AtomicUsize,
            /// Of these, such as have sent all: their peers have still to end.
            pub(crate) lingering: AtomicUsize,
            /// Threads, or fibers, that run what has taken a connection over.
            pub(crate) taken_over: AtomicUsize,
            /// Threads that may take in one more at this moment.
            pub(crate) accepting: AtomicUsize,
            $( pub(crate) $name: AtomicU64, )+
        }

        /// What a server has counted since it started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            /// Connections open now.
            pub connections: usize,
            /// Requests that a handler was called for. What the protocol itself answered is in `faults`, `timeouts` and
            /// `shed`. Statuses are not counted here: the middleware `Metrics` does (feature `metrics`).
            pub requests: u64,
            $( $(#[doc = $doc])+ pub $name: u64, )+
        }

        impl Counts {
            /// Name, description and value of all that only ever grows.
            #[cfg(feature = "metrics")]
            pub(crate) fn growing(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let requests = ("requests", "Requests that a handler was called for.", self.requests);
                let counted = [$( (stringify!($name), concat!($($doc),+).trim(), self.$name), )+];
                std::iter::once(requests).chain(counted)
            }
        }

        impl Counters {
            /// Somebody is connected, or may be about to be taken in.
            pub(crate) fn has_clients(&self) -> bool {
                // In this order: who is taken in is counted as connected before it counts no more as accepting.
                self.accepting.load(Ordering::Acquire) > 0 || self.connections.load(Ordering::Acquire) > 0
            }

            pub(crate) fn read(&self, watchdog: &Watchdog) -> Counts {
                Counts {
                    connections: self.connections.load(Ordering::Relaxed),
                    requests: watchdog.calls(),
                    $( $name: self.$name.load(Ordering::Relaxed), )+
                }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Errors of accept (descriptors used up, peers gone): the loop goes on after each.
    accept_errors,
    /// Requests refused for their form: the 4xx and 5xx that the protocol itself answered.
    faults,
    /// Deadlines passed: 408 answered, or the connection ended.
    timeouts,
    /// Handlers found running for longer than `handler_warn_after`.
    overdue,
    /// Handlers that panicked.
    panics,
    /// Loops taken from a handler that was found blocking.
    taken_lazily,
    /// Loops handed over before a handler that was expected to block.
    handed_eagerly,
    /// Requests that waited for a thread: all were taken, or more were ready to run than the cores could.
    queued,
    /// Requests answered 503 because too many waited, and upgraded connections that ended for want of a thread.
    shed,
    /// Requests that waited for a thread in vain: their client had left, or their time was up.
    abandoned,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
