//! Counters of a server. They are few, and updating them is cheap for a request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::watchdog::Watchdog;

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident ),+ $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            /// Connections that are open now.
            pub(crate) connections: AtomicUsize,
            /// Open connections that have sent everything and wait for their peer to close.
            pub(crate) lingering: AtomicUsize,
            /// Threads or fibers that run upgraded connections.
            pub(crate) upgraded: AtomicUsize,
            /// Threads that may accept a connection at this moment.
            pub(crate) accepting: AtomicUsize,
            $( pub(crate) $name: AtomicU64, )+
        }

        /// Counters of a server since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ServerStats {
            /// Connections that are open now.
            pub connections: usize,
            /// Requests for which the handler was called. Responses of the protocol itself count in `faults`,
            /// `timeouts` and `shed`. Statuses are not counted here. The middleware `Metrics` counts them (feature
            /// `metrics`).
            pub requests: u64,
            $( $(#[doc = $doc])+ pub $name: u64, )+
        }

        impl ServerStats {
            /// Returns name, description and value of all counters that only grow.
            #[cfg(feature = "metrics")]
            pub(crate) fn growing(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let requests = ("requests", "Requests that a handler was called for.", self.requests);
                let counted = [$( (stringify!($name), concat!($($doc),+).trim(), self.$name), )+];
                std::iter::once(requests).chain(counted)
            }
        }

        impl Counters {
            /// Returns whether a client is connected, or may be about to be accepted.
            pub(crate) fn has_clients(&self) -> bool {
                // The order matters. A connection counts as open before it stops counting as being accepted.
                self.accepting.load(Ordering::Acquire) > 0 || self.connections.load(Ordering::Acquire) > 0
            }

            pub(crate) fn read(&self, watchdog: &Watchdog) -> ServerStats {
                ServerStats {
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
    /// Errors of accept (no descriptors left, peer gone). The loop goes on after each error.
    accept_errors,
    /// Requests rejected for their form, with the 4xx and 5xx that the protocol itself sends.
    faults,
    /// Deadlines that passed. The response was 408, or the connection closed.
    timeouts,
    /// Handlers that ran for longer than `handler_warn_after`.
    slow_handlers,
    /// Handlers that panicked.
    panics,
    /// Loops taken from a handler that was found blocking.
    loops_retaken,
    /// Loops handed off before a handler that was expected to block.
    loops_handed_off,
    /// Requests that waited for a thread, because all threads were busy, or more were ready to run than there are
    /// cores.
    queued,
    /// Requests rejected with 503 because too many waited, and upgraded connections that ended because no thread was
    /// free.
    shed,
    /// Requests dropped while they waited for a thread, because the client had left or the time was up.
    queue_abandoned,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
