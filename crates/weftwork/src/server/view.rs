//! What can be seen of a server from elsewhere, by a handler of its own say?

use std::fmt;
use std::sync::Arc;

use super::Address;
use crate::engine::{Engine, Room};
use crate::settings::Settings;
use crate::transport::context::Context;
use crate::transport::counters::Counts;

/// What a server is doing, for whoever wants to show it. It stays usable when the server has stopped.
#[derive(Clone)]
pub struct View {
    pub(super) cx: Arc<Context>,
    pub(super) room: Arc<dyn Room>,
    pub(super) engine: Engine,
    pub(super) addresses: Arc<[Address]>,
}

impl View {
    /// The engine that was chosen.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// All addresses, with their real ports.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.cx.counts()
    }

    /// Threads there are now that serve requests; `threads_max` bounds them. A few others keep house.
    pub fn threads(&self) -> usize {
        self.room.threads()
    }

    /// The server has been told to stop. It may go on for a while: see [`drain_delay`](Settings::drain_delay).
    pub fn is_stopping(&self) -> bool {
        self.cx.is_stopping()
    }

    /// The settings in force; `connections_max` and `accepted_max` are the numbers that were worked out.
    pub fn settings(&self) -> &Settings {
        &self.cx.settings
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
