//! Which engine a suite runs on, and what that engine does not promise.

use std::sync::atomic::{AtomicU8, Ordering};

use weftwork::{Engine, Server, Settings};

use super::site::Site;

/// All engines as tests run them that do not stand in the matrix, which checks that none is missing here.
pub(crate) const ENGINES: &[Engine] = &[
    Engine::Adaptive { loops: Some(1) },
    Engine::Adaptive { loops: Some(2) },
    Engine::Reactor { loops: Some(2) },
    Engine::Workers { listeners: Some(2) },
    Engine::Pool { standby: Some(2) },
    #[cfg(feature = "fibers")]
    Engine::Fibers { threads: Some(2) },
];

/// What some engines promise and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// Quick requests do not wait for handlers that block.
    QuickBesideBlocked,
    /// Nor for clients that are slow in the middle of a request or of an answer.
    QuickBesideSlowClients,
    /// Requests queue for threads, up to `queue_max`; more get 503.
    QueueForThreads,
    /// No thread waits for a client.
    ClientsCostNoThread,
    /// A client that asks without end has no thread to itself.
    FloodsTakeTurns,
    /// Connections are spread evenly over the loops.
    EvenLoops,
    /// A response that others bring holds no thread while nothing is brought, nor does one whose client is slow.
    FeedsWithoutThreads,
}

/// One engine, as the matrix runs it.
pub(crate) struct EngineCase {
    pub(crate) engine: Engine,
    pub(crate) lacks: &'static [(Guarantee, &'static str)],
}

impl EngineCase {
    /// False, with the reason printed, where the engine does not promise it.
    pub(crate) fn guarantees(&self, guarantee: Guarantee) -> bool {
        match self.lacks.iter().find(|(missing, _)| *missing == guarantee) {
            None => true,
            Some((_, why)) => {
                println!("not checked on {}: {guarantee:?}: {why}", self.engine);
                false
            }
        }
    }

    /// A site on a free port, with the default settings.
    pub(crate) fn start(&self) -> Site {
        self.start_with(|settings| settings)
    }

    pub(crate) fn start_with(&self, change: impl FnOnce(Settings) -> Settings) -> Site {
        Site::start(self.bind("127.0.0.1:0").settings(change))
    }

    /// Where nobody else takes the port when the server has stopped: all others get free ports of 127.0.0.1.
    pub(crate) fn bind_alone(&self) -> Server {
        self.bind(&own_address())
    }

    pub(crate) fn bind(&self, address: &str) -> Server {
        Server::bind(address).expect("the address is free").engine(self.engine)
    }
}

/// An address of the loopback network, of which Linux answers to all, and any free port there.
fn own_address() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    if !cfg!(target_os = "linux") {
        return "127.0.0.1:0".into();
    }
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}:0", 1 + COUNT.fetch_add(1, Ordering::Relaxed) % 254)
}
