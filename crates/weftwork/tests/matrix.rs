//! Runs one suite over real sockets on every engine, and tests that all engines behave the same.

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use support::{EngineCase, Guarantee};
use weftwork::{Engine, Proxy, Running};

/// A name, the engine, and the guarantees that it lacks, each with its reason.
macro_rules! every_engine {
    ($($(#[$attribute:meta])? $name:ident: $engine:expr, lacks $lacks:expr;)+) => { $(
        $(#[$attribute])?
        #[path = "cases"]
        // The same files are included once for each engine, on purpose.
        #[allow(clippy::duplicate_mod)]
        mod $name {
            use super::*;

            pub(crate) const CASE: EngineCase = EngineCase { engine: $engine, lacks: $lacks };

            /// A proxy to the server at this address, which has no TLS.
            fn proxy_to(address: &str) -> Proxy {
                Proxy::to(&format!("http://{address}")).unwrap()
            }

            fn proxy_to_server(server: &Running) -> Proxy {
                let address = server.local_addr().unwrap().to_string();
                support::tls::proxy_to(&address).unwrap_or_else(|| proxy_to(&address))
            }

            /// The address of this server in the URL of [`proxy_to`].
            fn seen_at(address: &str) -> String {
                address.to_owned()
            }

            #[test]
            fn the_engine_is_in_the_list_of_the_other_tests() {
                assert!(support::ENGINES.contains(&CASE.engine));
            }

            mod addresses;
            mod admin;
            mod adopted;
            mod blocking;
            mod bodies;
            mod caps;
            mod deadlines;
            #[cfg(feature = "websocket")]
            mod deflated;
            mod errors;
            mod events;
            mod expect;
            #[cfg(feature = "json")]
            mod extractors;
            #[cfg(all(feature = "websocket", feature = "metrics"))]
            mod farewells;
            mod faults;
            mod feed_senders;
            mod feed_sources;
            mod feeds;
            mod files;
            mod futures;
            mod identity;
            mod later;
            mod later_upgrades;
            mod limits;
            mod many_clients;
            mod middleware;
            #[cfg(feature = "metrics")]
            mod observed;
            mod owned_bodies;
            mod panicking_values;
            mod panics;
            mod peers;
            mod persistence;
            mod phases;
            mod pipelining;
            #[cfg(feature = "json")]
            mod problems;
            mod proxies;
            mod receivers;
            mod rfc9110;
            mod rfc9112_bodies;
            mod rfc9112_connections;
            mod rfc9112_requests;
            mod proxy;
            #[cfg(feature = "_tls")]
            mod proxy_over_tls;
            mod proxy_reuse;
            #[cfg(feature = "_tls")]
            mod proxy_tls;
            #[cfg(feature = "_tls")]
            mod secured;
            mod shapes;
            mod shutdown;
            #[cfg(feature = "tracing")]
            mod spans;
            mod spread;
            mod starvation;
            mod trailers;
            mod tunnels;
            mod unread;
            mod upgrades;
            mod uploads;
            mod validators;
            #[cfg(feature = "websocket")]
            mod websockets;
            mod waiting;
            mod watchdog;
        }
    )+ };
}

every_engine! {
    adaptive: Engine::Adaptive { loops: Some(1) }, lacks &[
        (Guarantee::EvenLoops, "it has one loop"),
    ];
    adaptive_of_two: Engine::Adaptive { loops: Some(2) }, lacks &[];
    reactor: Engine::Reactor { loops: Some(2) }, lacks &[
        (Guarantee::QuickBesideBlocked, "a handler that blocks stops its loop, and all connections of it"),
        (Guarantee::QuickBesideSlowClients, "a handler that waits for its client stops its loop"),
        (Guarantee::QueueForThreads, "its threads are its loops: nothing waits for another one"),
    ];
    workers: Engine::Workers { listeners: Some(2) }, lacks &[
        (Guarantee::ClientsCostNoThread, "a client that is waited for has a thread, up to threads_max"),
        (Guarantee::QueueForThreads, "a connection keeps its thread: connections queue, first here, then in the kernel"),
        (Guarantee::FeedsWithoutThreads, "a connection keeps its thread, whatever it waits for"),
        (Guarantee::FloodsTakeTurns, "a connection keeps its thread for as long as it asks"),
        (Guarantee::EvenLoops, "it has no loops"),
    ];
    pool: Engine::Pool { standby: Some(2) }, lacks &[
        (Guarantee::ClientsCostNoThread, "a client that is waited for has a thread, up to threads_max"),
        (Guarantee::QueueForThreads, "with every thread in a handler nobody is at the door: connections wait in the kernel"),
        (Guarantee::EvenLoops, "it has no loops"),
    ];
    #[cfg(feature = "fibers")]
    fibers: Engine::Fibers { threads: Some(2) }, lacks &[
        (Guarantee::QuickBesideBlocked, "a handler that blocks its thread without weftwork::blocking stops its loop"),
        (Guarantee::QueueForThreads, "its threads are its loops: nothing waits for another one"),
    ];
}
