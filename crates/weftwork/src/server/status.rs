//! Status of a server for other code, such as a handler that shows it.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

#[cfg(feature = "metrics")]
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::Address;
use super::tls::RunningTls;
use crate::engine::{Engine, EngineHandle};
use crate::settings::Settings;
use crate::transport::context::Context;
#[cfg(feature = "metrics")]
use crate::transport::events::{ConnState, NumberFamily};
use crate::transport::events::{Counters, ServerStats};
#[cfg(feature = "metrics")]
use crate::transport::log_queue;
use crate::transport::watchdog::Watchdog;

/// Status of a server, for example for a page. [`Server::status`](super::Server::status) returns it before the start,
/// and [`Running::status`](super::Running::status) later.
///
/// Before the start, it shows the settings from the time when it was made, and counts nothing. It can still be used
/// after the server has stopped. It does not keep the server alive, so the server's own handler may hold it.
#[derive(Clone)]
pub struct ServerStatus {
    planned: Arc<Plan>,
    started: Slot,
}

/// Engine, addresses and settings of a server.
pub(super) struct Plan {
    pub(super) engine: Engine,
    pub(super) addresses: Vec<Address>,
    pub(super) settings: Settings,
}

/// Filled when the server starts, for all of its [`ServerStatus`] values.
pub(super) type Slot = Arc<OnceLock<Started>>;

/// A started server. The references are weak, because the handler may own a [`ServerStatus`].
pub(super) struct Started {
    plan: Plan,
    cx: Weak<Context>,
    handle: Weak<dyn EngineHandle>,
    counters: Arc<Counters>,
    watchdog: Arc<Watchdog>,
    #[cfg_attr(not(feature = "_tls"), allow(dead_code, reason = "it has no certificates"))]
    tls: RunningTls,
}

impl ServerStatus {
    pub(super) fn new(plan: Plan, started: &Slot) -> ServerStatus {
        ServerStatus { planned: Arc::new(plan), started: started.clone() }
    }

    /// Records that the server has started, with the computed settings.
    pub(super) fn started(&self, cx: &Arc<Context>, handle: &Arc<dyn EngineHandle>, tls: &RunningTls) {
        let Plan { engine, addresses, .. } = &*self.planned;
        let plan = Plan { engine: *engine, addresses: addresses.clone(), settings: cx.settings.clone() };
        self.started.get_or_init(|| Started {
            plan,
            cx: Arc::downgrade(cx),
            handle: Arc::downgrade(handle),
            counters: cx.counters.clone(),
            watchdog: cx.watchdog.clone(),
            tls: tls.without_watch(),
        });
    }

    /// Returns the engine.
    pub fn engine(&self) -> Engine {
        self.plan().engine
    }

    /// Returns all addresses, with their real ports.
    pub fn addresses(&self) -> &[Address] {
        &self.plan().addresses
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        self.started.get().map_or(ServerStats::default(), |started| started.counters.read(&started.watchdog))
    }

    /// Returns the number of threads that serve requests, at most `threads_max`. Exceptions are that each loop has at
    /// least one thread, and the server one more, and the spare threads of [`threads_max`](Settings::threads_max). A few
    /// threads for other work do not count.
    pub fn threads(&self) -> usize {
        self.started.get().and_then(|started| started.handle.upgrade()).map_or(0, |handle| handle.threads())
    }

    /// Returns whether the server was told to stop. It may keep serving for a while: see
    /// [`drain_delay`](Settings::drain_delay).
    pub fn is_stopping(&self) -> bool {
        self.started.get().is_some_and(|started| started.cx.upgrade().is_none_or(|cx| cx.is_stopping()))
    }

    /// Returns the current settings. `connections_max` and `accepted_max` have their computed values.
    pub fn settings(&self) -> &Settings {
        &self.plan().settings
    }

    #[cfg(feature = "_tls")]
    pub(super) fn tls(&self) -> Option<&RunningTls> {
        self.started.get().map(|started| &started.tls)
    }

    fn plan(&self) -> &Plan {
        self.started.get().map_or(&self.planned, |started| &started.plan)
    }
}

#[cfg(feature = "metrics")]
impl ServerStatus {
    /// Returns the current numbers.
    fn gauges(&self) -> Vec<NumberFamily> {
        let settings = self.settings();
        let one = |name, about, number: usize| NumberFamily {
            name,
            about,
            label: "",
            numbers: vec![("", number as u64)],
        };
        let (states, calls) = self.connection_states();
        let about = "Connections open now.";
        vec![
            NumberFamily { name: "connections", about, label: "state", numbers: states },
            one("http2_streams", "Requests of HTTP/2 in progress.", self.stats().http2_streams),
            one("calls", "Handlers and writers of streamed bodies that run now.", calls),
            one("threads", "Threads that serve requests.", self.threads()),
            one("queue_length", "Requests that wait for a thread.", self.queued()),
            one("threads_max", "Setting threads_max.", settings.threads_max),
            one("queue_max", "Setting queue_max.", settings.queue_max),
            one("connections_max", "Setting connections_max.", settings.connections_max),
            one("accepted_max", "Setting accepted_max.", settings.accepted_max),
            one("stopping", "1 from the announcement of the stop on.", self.is_stopping().into()),
        ]
    }

    /// Returns the open connections by state, and the number of calls.
    fn connection_states(&self) -> (Vec<(&'static str, u64)>, usize) {
        let Some(started) = self.started.get() else { return (Vec::new(), 0) };
        let (calls, queued) = (started.watchdog.calls_in_progress(), self.queued());
        let mut states: Vec<_> = ConnState::ALL
            .iter()
            .filter(|state| **state != ConnState::Idle)
            .map(|state| (state.name(), started.counters.in_state(*state) as u64))
            .chain([("handler", calls as u64), ("queued", queued as u64)])
            .collect();
        let others = states.iter().map(|(_, number)| number).sum::<u64>();
        // The numbers are read one after the other, so the difference may be negative for a moment.
        states.push((ConnState::Idle.name(), (self.stats().connections as u64).saturating_sub(others)));
        (states, calls)
    }

    fn queued(&self) -> usize {
        self.started.get().and_then(|started| started.handle.upgrade()).map_or(0, |handle| handle.queued())
    }
}

/// Encodes the numbers of a server, for [`Metrics::server`](crate::middleware::Metrics::server) or a registry of your own: all of
/// [`ServerStats`], connections by state, threads, the queue, and the limits.
#[cfg(feature = "metrics")]
impl Collector for ServerStatus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let dropped = NumberFamily {
            name: "log_lines_dropped",
            about: "Log lines of this process that were dropped, because the log took too long.",
            label: "",
            numbers: vec![("", log_queue::dropped())],
        };
        for NumberFamily { name, about, label, numbers } in self.gauges() {
            let name = format!("weftwork_{name}");
            let encoder = encoder.encode_descriptor(&name, about, None, MetricType::Gauge)?;
            encode_each(encoder, label, numbers, |number| {
                ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX))
            })?;
        }
        #[cfg(feature = "_tls")]
        self.encode_expiry(&mut encoder)?;
        let families =
            self.started.get().map_or_else(|| Counters::default().families(), |it| it.counters.families());
        let requests = NumberFamily {
            name: "requests",
            about: "Requests that a handler was called for.",
            label: "",
            numbers: vec![("", self.stats().requests)],
        };
        for NumberFamily { name, about, label, numbers } in [requests, dropped].into_iter().chain(families) {
            let name = format!("weftwork_{name}");
            let about = about.replace('`', "");
            let encoder = encoder.encode_descriptor(&name, &about, None, MetricType::Counter)?;
            encode_each(encoder, label, numbers, ConstCounter::new)?;
        }
        Ok(())
    }
}

#[cfg(all(feature = "metrics", feature = "_tls"))]
impl ServerStatus {
    /// Encodes when each certificate expires.
    fn encode_expiry(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let certificates = self.certificates();
        if certificates.is_empty() {
            return Ok(());
        }
        let name = "weftwork_tls_certificate_expiration_timestamp_seconds";
        let about = "Time after which clients refuse the certificate, in seconds since 1970.";
        let mut encoder = encoder.encode_descriptor(name, about, None, MetricType::Gauge)?;
        for crate::tls::CertificateInfo { names, origin, expires, .. } in certificates {
            let since_epoch = expires.and_then(|expires| expires.duration_since(std::time::UNIX_EPOCH).ok());
            let seconds = since_epoch.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
            let name = names.into_iter().next().unwrap_or_default();
            let labels = [("name", name), ("origin", origin)];
            ConstGauge::new(seconds).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Encodes a value for each value of the label. Without a label there is one value.
#[cfg(feature = "metrics")]
fn encode_each<M: EncodeMetric>(
    mut encoder: MetricEncoder<'_>,
    label: &'static str,
    values: Vec<(&'static str, u64)>,
    metric: impl Fn(u64) -> M,
) -> fmt::Result {
    if let ("", [(_, value)]) = (label, values.as_slice()) {
        return metric(*value).encode(encoder);
    }
    values
        .into_iter()
        .try_for_each(|(name, value)| metric(value).encode(encoder.encode_family(&[(label, name)])?))
}

impl fmt::Debug for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerStatus").field("counts", &self.stats()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}
