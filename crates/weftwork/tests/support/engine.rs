//! The engine that a suite runs on, and the guarantees that the engine lacks.

use std::sync::atomic::{AtomicU8, Ordering};

use weftwork::{Engine, Server, Settings};

use super::site::Site;

/// All engines that tests outside of the matrix use. The matrix checks that the list is complete.
pub(crate) const ENGINES: &[Engine] = &[
    Engine::Adaptive { loops: Some(1) },
    Engine::Adaptive { loops: Some(2) },
    Engine::Reactor { loops: Some(2) },
    Engine::Workers { listeners: Some(2) },
    Engine::Pool { standby: Some(2) },
    #[cfg(feature = "fibers")]
    Engine::Fibers { threads: Some(2) },
];

/// Guarantees that some engines give and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// Quick requests do not wait for handlers that block.
    QuickBesideBlocked,
    /// Quick requests do not wait for clients that are slow in the middle of a request or an answer.
    QuickBesideSlowClients,
    /// Requests queue for threads, up to `queue_max`. Requests above the limit get 503.
    QueueForThreads,
    /// No thread waits for a client.
    ClientsCostNoThread,
    /// A client that sends requests without a pause does not keep a thread.
    FloodsTakeTurns,
    /// Connections are spread evenly over the loops.
    EvenLoops,
    /// A response whose data is sent from other threads holds no thread between the sends, nor while its client
    /// is slow.
    FeedsWithoutThreads,
}

/// One engine, as the matrix runs it.
pub(crate) struct EngineCase {
    pub(crate) engine: Engine,
    pub(crate) lacks: &'static [(Guarantee, &'static str)],
}

impl EngineCase {
    /// Returns false, and prints the reason, if the engine does not give the guarantee.
    pub(crate) fn guarantees(&self, guarantee: Guarantee) -> bool {
        match self.lacks.iter().find(|(missing, _)| *missing == guarantee) {
            None => true,
            Some((_, why)) => {
                println!("not checked on {}: {guarantee:?}: {why}", self.engine);
                false
            }
        }
    }

    /// Returns a site on a free port, with the default settings.
    pub(crate) fn start(&self) -> Site {
        self.start_with(|settings| settings)
    }

    pub(crate) fn start_with(&self, change: impl FnOnce(Settings) -> Settings) -> Site {
        Site::start(self.bind("127.0.0.1:0").settings(change))
    }

    /// Binds an address whose port no other test takes after the server has stopped. All others get free ports
    /// of 127.0.0.1.
    pub(crate) fn bind_alone(&self) -> Server {
        self.bind(&own_address())
    }

    pub(crate) fn bind(&self, address: &str) -> Server {
        let server = Server::bind(address).expect("the address is free").engine(self.engine);
        super::tls::secure(super::over_http2::accept(server))
    }
}

/// Returns an address of the loopback network with any free port. Linux answers to the whole network.
pub(crate) fn own_address() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    if !cfg!(target_os = "linux") {
        return "127.0.0.1:0".into();
    }
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}:0", 1 + COUNT.fetch_add(1, Ordering::Relaxed) % 254)
}
