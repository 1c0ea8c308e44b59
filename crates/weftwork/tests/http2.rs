//! Runs one suite of HTTP/2 in clear over real sockets on every engine.

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::time::Duration;

use support::Site;
use weftwork::{Engine, Handler, Running, Server, Settings};

/// How the handlers of an engine may wait without stopping their siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// In any way.
    Anyhow,
    /// Through the library.
    ThroughLibrary,
    /// Only for the client.
    ForClient,
}

struct Case {
    engine: Engine,
    waits: Waits,
}

impl Case {
    fn bind(&self, change: impl FnOnce(Settings) -> Settings) -> Server {
        self.bind_at("127.0.0.1:0", change)
    }

    fn bind_at(&self, address: &str, change: impl FnOnce(Settings) -> Settings) -> Server {
        let server = Server::bind(address).expect("the address is free").engine(self.engine);
        server.settings(|settings| change(settings.http2_cleartext(true).drain_idle_timeout(Duration::ZERO)))
    }

    fn site(&self) -> Site {
        self.site_with(|settings| settings)
    }

    fn site_with(&self, change: impl FnOnce(Settings) -> Settings) -> Site {
        Site::start(self.bind(change))
    }

    fn start(&self, handler: impl Handler) -> Running {
        self.bind(|settings| settings).start(handler).expect("the server starts")
    }

    /// Returns a path whose handler waits for the gate without stopping its siblings, if there is one.
    fn gate(&self) -> Option<&'static str> {
        match self.waits {
            Waits::Anyhow => Some("/gate"),
            Waits::ThroughLibrary => Some("/gate-blocking"),
            Waits::ForClient => None,
        }
    }
}

macro_rules! every_engine {
    ($($(#[$attribute:meta])? $name:ident: $engine:expr, $waits:ident;)+) => { $(
        $(#[$attribute])?
        #[path = "http2"]
        // The same files are included once for each engine, on purpose.
        #[allow(clippy::duplicate_mod)]
        mod $name {
            use super::{Case, Waits};

            const CASE: Case = Case { engine: $engine, waits: Waits::$waits };

            #[test]
            fn the_engine_is_in_the_list_of_the_other_tests() {
                assert!(crate::support::ENGINES.contains(&CASE.engine));
            }

            mod abuse;
            mod bodies;
            mod long_lived;
            #[cfg(feature = "metrics")]
            mod observed;
            mod proxied;
            mod proxied_faults;
            mod requests;
            mod resets;
            mod responses;
            mod smuggling;
            mod stop;
            mod tunnels;
            #[cfg(feature = "websocket")]
            mod websockets;
        }
    )+ };
}

every_engine! {
    adaptive: weftwork::Engine::Adaptive { loops: Some(1) }, Anyhow;
    adaptive_of_two: weftwork::Engine::Adaptive { loops: Some(2) }, Anyhow;
    reactor: weftwork::Engine::Reactor { loops: Some(2) }, ForClient;
    workers: weftwork::Engine::Workers { listeners: Some(2) }, Anyhow;
    pool: weftwork::Engine::Pool { standby: Some(2) }, Anyhow;
    #[cfg(feature = "fibers")]
    fibers: weftwork::Engine::Fibers { threads: Some(2) }, ThroughLibrary;
}
