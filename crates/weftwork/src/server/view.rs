//! What can be seen of a server from elsewhere, by a handler of its own say?

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
use crate::transport::counters::{Counters, Counts};
use crate::transport::watchdog::Watchdog;

/// What a server is doing, for whoever wants to show it: a page of its own, say. [`Server::view`](super::Server::view)
/// makes one before the start, [`Running::view`](super::Running::view) later.
///
/// Before the start it shows what was set when it was made, and counts nothing. It stays usable when the server has
/// stopped. It keeps nothing of the server alive, so the server's own handler may have it.
#[derive(Clone)]
pub struct View {
    planned: Arc<Plan>,
    started: Slot,
}

/// What a server is about to be, or is.
pub(super) struct Plan {
    pub(super) engine: Engine,
    pub(super) addresses: Vec<Address>,
    pub(super) settings: Settings,
}

/// Filled when the server starts, for all views of it.
pub(super) type Slot = Arc<OnceLock<Started>>;

/// A server that was started. What owns the handler is not owned: the handler may own this.
pub(super) struct Started {
    plan: Plan,
    cx: Weak<Context>,
    room: Weak<dyn EngineHandle>,
    counters: Arc<Counters>,
    watchdog: Arc<Watchdog>,
}

impl View {
    pub(super) fn new(plan: Plan, started: &Slot) -> View {
        View { planned: Arc::new(plan), started: started.clone() }
    }

    /// The server has been started as planned here, but for the settings that were worked out.
    pub(super) fn started(&self, cx: &Arc<Context>, room: &Arc<dyn EngineHandle>) {
        let Plan { engine, addresses, .. } = &*self.planned;
        let plan = Plan { engine: *engine, addresses: addresses.clone(), settings: cx.settings.clone() };
        self.started.get_or_init(|| Started {
            plan,
            cx: Arc::downgrade(cx),
            room: Arc::downgrade(room),
            counters: cx.counters.clone(),
            watchdog: cx.watchdog.clone(),
        });
    }

    /// The engine that was chosen.
    pub fn engine(&self) -> Engine {
        self.plan().engine
    }

    /// All addresses, with their real ports.
    pub fn addresses(&self) -> &[Address] {
        &self.plan().addresses
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.started.get().map_or(Counts::default(), |started| started.counters.read(&started.watchdog))
    }

    /// Threads there are now that serve requests; `threads_max` bounds them; but there is at least one for each
    /// loop, and one besides. A few others keep house.
    pub fn threads(&self) -> usize {
        self.started.get().and_then(|started| started.room.upgrade()).map_or(0, |room| room.threads())
    }

    /// The server has been told to stop. It may go on for a while: see [`drain_delay`](Settings::drain_delay).
    pub fn is_stopping(&self) -> bool {
        self.started.get().is_some_and(|started| started.cx.upgrade().is_none_or(|cx| cx.is_stopping()))
    }

    /// The settings in force; `connections_max` and `accepted_max` are the numbers that were worked out.
    pub fn settings(&self) -> &Settings {
        &self.plan().settings
    }

    fn plan(&self) -> &Plan {
        self.started.get().map_or(&self.planned, |started| &started.plan)
    }
}

/// For [`Metrics::server`](crate::middleware::Metrics::server), or a registry of your own: all of [`Counts`], and the threads.
#[cfg(feature = "metrics")]
impl Collector for View {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.counts();
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

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}
