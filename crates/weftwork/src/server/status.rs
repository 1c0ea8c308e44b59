//! Status of a server for other code, such as a handler that shows it.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

#[cfg(feature = "metrics")]
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::Address;
use crate::engine::{Engine, EngineHandle};
use crate::settings::Settings;
use crate::transport::context::Context;
use crate::transport::counters::{Counters, ServerStats};
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
}

impl ServerStatus {
    pub(super) fn new(plan: Plan, started: &Slot) -> ServerStatus {
        ServerStatus { planned: Arc::new(plan), started: started.clone() }
    }

    /// Records that the server has started, with the computed settings.
    pub(super) fn started(&self, cx: &Arc<Context>, handle: &Arc<dyn EngineHandle>) {
        let Plan { engine, addresses, .. } = &*self.planned;
        let plan = Plan { engine: *engine, addresses: addresses.clone(), settings: cx.settings.clone() };
        self.started.get_or_init(|| Started {
            plan,
            cx: Arc::downgrade(cx),
            handle: Arc::downgrade(handle),
            counters: cx.counters.clone(),
            watchdog: cx.watchdog.clone(),
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

    fn plan(&self) -> &Plan {
        self.started.get().map_or(&self.planned, |started| &started.plan)
    }
}

/// Encodes all of [`ServerStats`] and the number of threads, for [`Metrics::server`](crate::middleware::Metrics::server) or
/// a registry of your own.
#[cfg(feature = "metrics")]
impl Collector for ServerStatus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.stats();
        let now = [
            ("connections", "Connections open now", counts.connections),
            ("threads", "Threads that serve requests", self.threads()),
        ];
        for (name, about, value) in now {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let name = format!("weftwork_{name}");
            gauge.encode(encoder.encode_descriptor(&name, about, None, gauge.metric_type())?)?;
        }
        for (name, about, value) in counts.growing() {
            let (name, counter) = (format!("weftwork_{name}"), ConstCounter::new(value));
            counter.encode(encoder.encode_descriptor(&name, about, None, counter.metric_type())?)?;
        }
        Ok(())
    }
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
