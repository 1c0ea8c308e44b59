//! Events of connections and requests. Each event is declared once, in the table of this file. The counters
//! ([`ServerStats`]), the metrics page and the access log are made from the events.
//!
//! Events that are not counted are in [`crate::message::observer`]: a response that ended, and a refused request.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use weftwork_wire::Fault;

pub(crate) use self::http2::{CostlyFrame, GoawayReason, ResetCode};
use super::deadlines::TimeoutKind;
use super::log_queue;
use super::watchdog::Watchdog;

/// What an event is counted by.
pub(crate) trait Label {
    /// Name of the label on the metrics page. Empty if there is only one count.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    const NAME: &'static str;

    /// Returns all values.
    fn values() -> &'static [&'static str];

    /// Returns the index of the value in `values`.
    fn index(&self) -> usize;
}

/// Counts of an event, one for each value of its label.
#[derive(Debug)]
pub(crate) struct EventCount<L> {
    counts: Box<[AtomicU64]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> EventCount<L> {
    fn add(&self, label: &L) {
        if let Some(count) = self.counts.get(label.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the values of the label, with their counts.
    #[cfg(feature = "metrics")]
    fn each(&self) -> Vec<(&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        L::values().iter().copied().zip(counts).collect()
    }
}

impl<L: Label> Default for EventCount<L> {
    fn default() -> EventCount<L> {
        EventCount { counts: L::values().iter().map(|_| AtomicU64::new(0)).collect(), label: PhantomData }
    }
}

/// Numbers with one name on the metrics page.
#[cfg(feature = "metrics")]
pub(crate) struct NumberFamily {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) label: &'static str,
    /// One for each value of the label.
    pub(crate) numbers: Vec<(&'static str, u64)>,
}

macro_rules! label_of {
    () => {
        ()
    };
    ($label:ty) => {
        $label
    };
}

/// One line for each event: its description, its name, what it is counted by, and its counter.
macro_rules! events {
    ($( $(#[doc = $doc:literal])+ $event:ident $(($label:ty))? => $counter:ident, )+) => {
        /// An event of a connection or a request. [`Context::record`](super::context::Context::record) takes it.
        #[derive(Clone, Copy, Debug)]
        pub enum Event {
            $( $(#[doc = $doc])+ $event $(($label))?, )+
            /// A request left the queue for a thread after this time. It is not counted, because `Queued` is.
            LeftQueue(Duration),
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            /// Connections that are open now.
            pub(crate) connections: AtomicUsize,
            /// Requests of HTTP/2 that were in progress when their connections last waited.
            pub(crate) streams: AtomicUsize,
            /// Open connections by state, except for the state `Idle`.
            pub(crate) states: [AtomicUsize; ConnState::ALL.len()],
            /// Threads or fibers that run upgraded connections.
            pub(crate) upgraded: AtomicUsize,
            /// Threads that may accept a connection at this moment.
            pub(crate) accepting: AtomicUsize,
            /// Whether the server cuts its connections.
            pub(crate) closing: AtomicBool,
            $( pub(crate) $counter: EventCount<label_of!($($label)?)>, )+
        }

        /// Counters of a server since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ServerStats {
            /// Connections that are open now.
            pub connections: usize,
            /// Requests of HTTP/2 that are in progress, except for those that have begun and ended while their connection
            /// was served.
            pub http2_streams: usize,
            /// Requests for which the handler was called. Responses of the protocol itself count in `faults`,
            /// `timeouts` and `shed`. Statuses are not counted here. The middleware `Metrics` counts them (feature
            /// `metrics`).
            pub requests: u64,
            /// Log lines of this process that were dropped, because the log took too long. The next line that is
            /// written says how many.
            pub log_lines_dropped: u64,
            $( $(#[doc = $doc])+ pub $counter: u64, )+
        }

        impl Counters {
            pub(crate) fn count(&self, event: &Event) {
                match event {
                    $( events!(@pattern $event label $($label)?) => {
                        self.$counter.add(events!(@value label $($label)?))
                    } )+
                    Event::LeftQueue(_) => {}
                }
            }

            pub(crate) fn read(&self, watchdog: &Watchdog) -> ServerStats {
                ServerStats {
                    connections: self.connections.load(Ordering::Relaxed),
                    http2_streams: self.streams.load(Ordering::Relaxed),
                    requests: watchdog.calls(),
                    log_lines_dropped: log_queue::dropped(),
                    $( $counter: self.$counter.total(), )+
                }
            }

            /// Returns the counts of all events.
            #[cfg(feature = "metrics")]
            pub(crate) fn families(&self) -> Vec<NumberFamily> {
                vec![$( NumberFamily {
                    name: stringify!($counter),
                    about: concat!($($doc),+).trim(),
                    label: <label_of!($($label)?) as Label>::NAME,
                    numbers: self.$counter.each(),
                }, )+]
            }
        }
    };
    (@pattern $event:ident $bound:ident) => { Event::$event };
    (@pattern $event:ident $bound:ident $label:ty) => { Event::$event($bound) };
    (@value $bound:ident) => { &() };
    (@value $bound:ident $label:ty) => { $bound };
}

events! {
    /// Connections accepted.
    Accepted => accepted,
    /// Errors of accept (no descriptors left, peer gone). The loop goes on after each error.
    AcceptFailed => accept_errors,
    /// Requests rejected for their form, with the 4xx and 5xx that the protocol itself sends.
    Rejected(Rule) => faults,
    /// Deadlines that passed. The response was 408, or the connection closed.
    TimedOut(TimeoutKind) => timeouts,
    /// Handlers that ran for longer than `handler_warn_after`.
    HandlerIsSlow => slow_handlers,
    /// Handlers that panicked.
    Panicked => panics,
    /// Loops taken from a handler that was found blocking.
    LoopRetaken => loops_retaken,
    /// Loops handed off before a handler that was expected to block.
    LoopHandedOff => loops_handed_off,
    /// Requests that waited for a thread, because all threads were busy, or more were ready to run than there are
    /// cores.
    Queued => queued,
    /// Requests rejected with 503 because too many waited, and upgraded connections that ended because no thread was
    /// free.
    Shed(ShedReason) => shed,
    /// TLS handshakes that were completed. Resumed ones take less.
    Handshaken(HandshakeKind) => tls_handshakes,
    /// TLS handshakes that failed. Deadlines that passed count in `timeouts` too.
    HandshakeFailed(HandshakeFailure) => tls_handshake_errors,
    /// Requests dropped while they waited for a thread, because the client had left or the time was up.
    Abandoned(AbandonReason) => queue_abandoned,
    /// Streams of HTTP/2 that the server has reset. Those with `refused_stream` were more than `http2_streams_max`.
    ResetSent(ResetCode) => http2_resets_sent,
    /// Streams of HTTP/2 that their clients have reset.
    ResetReceived(ResetCode) => http2_resets_received,
    /// Connections of HTTP/2 that the server has ended with GOAWAY.
    GoawaySent(GoawayReason) => http2_goaways,
    /// Frames of HTTP/2 that led to no response, and so cost points. Without points, a connection ends.
    FrameCost(CostlyFrame) => http2_costly_frames,
}

impl Counters {
    /// Returns whether a client is connected, or may be about to be accepted.
    pub(crate) fn has_clients(&self) -> bool {
        // The order matters. A connection counts as open before it stops counting as being accepted.
        self.accepting.load(Ordering::Acquire) > 0 || self.connections.load(Ordering::Acquire) > 0
    }

    /// Returns the number of open connections in a state that is counted.
    pub(crate) fn in_state(&self, state: ConnState) -> usize {
        self.states[state as usize].load(Ordering::Relaxed)
    }
}

impl Label for () {
    const NAME: &'static str = "";

    fn values() -> &'static [&'static str] {
        &[""]
    }

    fn index(&self) -> usize {
        0
    }
}

/// Declares an enum with a name for each value.
macro_rules! labels {
    ($(#[$meta:meta])* $type:ident $label:literal { $( $(#[doc = $doc:literal])+ $value:ident $name:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(unreachable_pub)]
        pub enum $type { $( $(#[doc = $doc])+ $value, )+ }

        impl $type {
            #[allow(dead_code, reason = "not every label is listed outside of its counter")]
            pub(crate) const ALL: &[$type] = &[$($type::$value),+];

            /// Returns the name for the metrics page and the access log.
            #[allow(dead_code, reason = "not every label is named outside of its counter")]
            pub(crate) fn name(self) -> &'static str {
                match self { $( $type::$value => $name, )+ }
            }
        }

        impl Label for $type {
            const NAME: &'static str = $label;

            fn values() -> &'static [&'static str] {
                &[$($name),+]
            }

            fn index(&self) -> usize {
                *self as usize
            }
        }
    };
}

labels! {
    /// Why a request got 503.
    ShedReason "reason" {
        /// Too many requests waited for a thread.
        QueueFull "queue_full",
        /// No thread was free for a call that blocks, or for a wait in a handler.
        NoThread "no_thread",
        /// There was no memory for the stack of a fiber.
        NoStack "no_stack",
        /// Too many connections were open.
        ConnectionsFull "connections_full",
        /// No descriptors were left.
        NoDescriptors "no_descriptors",
        /// The server stopped before a thread was free.
        Stopping "stopping",
    }
}

labels! {
    /// Why a request was dropped in the queue.
    AbandonReason "reason" {
        /// Its client had closed its side.
        ClientGone "client_gone",
        /// It had waited for `request_timeout`.
        RequestTimeout "request_timeout",
    }
}

labels! {
    /// Kind of a TLS handshake.
    HandshakeKind "kind" {
        /// With a signature of the server.
        Full "full",
        /// With the keys of an earlier session.
        Resumed "resumed",
    }
}

labels! {
    /// Why a TLS handshake failed.
    HandshakeFailure "reason" {
        /// It did not end in time.
        Timeout "timeout",
        /// The client closed the connection.
        Closed "closed",
        /// The first bytes were not TLS.
        NotTls "not_tls",
        /// No version, cipher suite or protocol in common.
        Incompatible "incompatible",
        /// The server has no certificate for the name.
        UnknownName "unknown_name",
        /// The client rejected the certificate.
        CertificateRejected "certificate_rejected",
        /// The client ended the handshake with another alert.
        ClientAlert "client_alert",
        /// The client had no valid certificate.
        ClientCertificate "client_certificate",
        /// The bytes were not what the protocol expects.
        Malformed "malformed",
    }
}

labels! {
    /// State of an open connection. Connections whose handler runs or whose request waits for a thread are in the state
    /// `Idle`, because to count these states would cost each request something.
    ConnState "state" {
        /// Nothing is known to be in progress.
        Idle "idle",
        /// A part of a request has arrived.
        Reading "reading",
        /// Another thread provides its response, or the handler of its stream pauses.
        Waiting "waiting",
        /// Its client has not read the response.
        Sending "sending",
        /// Everything was sent, and its peer has not closed its side.
        Lingering "lingering",
        /// It speaks another protocol.
        Upgraded "upgraded",
    }
}

mod http2;

impl Label for TimeoutKind {
    const NAME: &'static str = "kind";

    fn values() -> &'static [&'static str] {
        &["head", "body", "write", "unread", "proxy_header", "tls_handshake"]
    }

    fn index(&self) -> usize {
        match self {
            // The last kinds are no faults, and are not recorded.
            TimeoutKind::Head | TimeoutKind::Idle | TimeoutKind::Heartbeat => 0,
            TimeoutKind::Body => 1,
            TimeoutKind::Write => 2,
            TimeoutKind::Drain | TimeoutKind::Linger => 3,
            TimeoutKind::ProxyHeader => 4,
            TimeoutKind::Handshake => 5,
        }
    }
}

/// The rule that a request broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(&'static str);

impl Rule {
    /// A target with `https` on a connection that is not secured.
    pub(crate) const MISDIRECTED: Rule = Rule("RFC 9110 §7.4");
    pub(crate) const PROXY_PROTOCOL: Rule = Rule("PROXY protocol");
    pub(crate) const HTTP2: Rule = Rule("RFC 9113 §8.1.1");
}

impl From<Fault> for Rule {
    fn from(fault: Fault) -> Rule {
        Rule(fault.rule())
    }
}

impl Label for Rule {
    const NAME: &'static str = "rule";

    fn values() -> &'static [&'static str] {
        static RULES: OnceLock<Vec<&str>> = OnceLock::new();
        RULES.get_or_init(|| {
            let own = [Rule::MISDIRECTED.0, Rule::PROXY_PROTOCOL.0, Rule::HTTP2.0];
            let mut rules: Vec<_> = Fault::ALL.iter().map(|fault| fault.rule()).chain(own).collect();
            rules.sort_unstable();
            rules.dedup();
            rules
        })
    }

    fn index(&self) -> usize {
        Rule::values().binary_search(&self.0).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    //! Tests that each value of a label has a count of its own.

    use super::*;

    #[test]
    fn each_value_is_counted() {
        let counters = Counters::default();
        for fault in Fault::ALL {
            counters.count(&Event::Rejected((*fault).into()));
        }
        counters.count(&Event::Rejected(Rule::PROXY_PROTOCOL));
        for reason in ShedReason::ALL {
            counters.count(&Event::Shed(*reason));
        }
        counters.count(&Event::TimedOut(TimeoutKind::ProxyHeader));
        let stats = counters.read(&Watchdog::default());
        assert_eq!(stats.faults, Fault::ALL.len() as u64 + 1);
        assert_eq!((stats.shed, stats.timeouts), (ShedReason::ALL.len() as u64, 1));
        assert!(counters.shed.counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}
