//! Which engine a suite runs on, and what that engine does not promise.

use weftwork::{Engine, Server, Settings};

use super::site::Site;

/// What some engines promise and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Quick requests do not wait for handlers that block.
    QuickBesideBlocked,
    /// Requests queue for threads, up to `queue_max`; more get 503.
    QueueForThreads,
    /// No thread waits for a client.
    ClientsCostNoThread,
    /// Connections are spread evenly over the loops.
    EvenLoops,
    /// A response that others bring holds no thread while nothing is brought, nor does one whose client is slow.
    FeedsWithoutThreads,
}

/// One engine, as the matrix runs it.
pub(crate) struct Room {
    pub(crate) engine: Engine,
    pub(crate) lacks: &'static [(Promise, &'static str)],
}

impl Room {
    /// False, with the reason printed, where the engine does not promise it.
    pub(crate) fn promises(&self, promise: Promise) -> bool {
        match self.lacks.iter().find(|(lacked, _)| *lacked == promise) {
            None => true,
            Some((_, why)) => {
                println!("not checked on {}: {promise:?}: {why}", self.engine);
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

    pub(crate) fn bind(&self, address: &str) -> Server {
        Server::bind(address).expect("the address is free").engine(self.engine)
    }
}
