//! Floor 3: how connections meet threads. Rooms over one and the same connection; none of them parses a byte.

mod acceptor;
mod active_conn;
mod adaptive;
mod blocking;
#[cfg(any(target_os = "linux", target_os = "android", all(test, loom)))]
mod conn_slot;
mod conn_table;
mod conn_thread;
mod event_loop;
#[cfg(feature = "fibers")]
mod fibers;
mod handoff;
mod inbox;
mod info;
mod loops;
mod predictor;
mod reactor;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "shared_poller/unsupported.rs")]
mod shared_poller;
mod sync;
mod thread_pool;
mod thread_wait;
mod threads;
mod workers;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
#[cfg(test)]
mod testing;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use self::blocking::{BlockingHook, Work, enter};
pub use self::blocking::{blocking, sleep};
pub use self::info::{ENGINES, EngineInfo};
use crate::error::Error;
use crate::message::Handler;
use crate::settings::Settings;
use crate::transport::context::Context;
use crate::transport::listener::Listener;
use crate::transport::log_limit::catch_log_panic;

/// How connections meet threads. `WEFT_ENGINE` names one too; what code says wins.
///
/// ```
/// use weftwork::Engine;
/// assert_eq!("reactor:2".parse(), Ok(Engine::Reactor { loops: Some(2) }));
/// assert_eq!(Engine::default().to_string(), "adaptive");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Event loops that move to another thread when a handler blocks. For everything, unless you know better.
    Adaptive {
        /// How many loops; none: as many as the machine runs threads at once.
        loops: Option<usize>,
    },
    /// Event loops that stay: a handler that blocks stops its loop. For handlers that never do.
    Reactor {
        /// How many loops; none: as many as the machine runs threads at once.
        loops: Option<usize>,
    },
    /// A thread for each connection, which reads, runs the handler and writes by blocking. For few, long, busy
    /// connections.
    Workers {
        /// How many threads accept, each at listeners of its own; none: as many as the machine runs threads at
        /// once.
        listeners: Option<usize>,
    },
    /// Threads that wait together for new connections and for the next request of kept ones; slow and quiet connections go
    /// to an event loop. For many short connections whose handlers block.
    Pool {
        /// How many threads stay at the door when there is nothing to do; none:
        /// [`standby_kept`](crate::Settings::standby_kept).
        standby: Option<usize>,
    },
    /// Event loops that run each request on a fiber: one that waits by the library's means costs its stack
    /// and no thread, one that blocks its thread stops its loop. For very many handlers that wait. With the
    /// feature `fibers`, which is on by default.
    #[cfg(feature = "fibers")]
    Fibers {
        /// How many threads, each with its loop; none: as many as the machine runs at once.
        threads: Option<usize>,
    },
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::Adaptive { loops: None }
    }
}

impl Engine {
    /// The engine that `WEFT_ENGINE` names, if it is set and not empty.
    ///
    /// # Errors
    /// It names none, with the choices.
    pub fn from_env() -> Result<Option<Engine>, Error> {
        let named = std::env::var_os("WEFT_ENGINE").filter(|name| !name.is_empty());
        let parsed = named.map(|name| name.to_string_lossy().parse::<Engine>()).transpose();
        parsed.map_err(|error| Error::usage(format!("WEFT_ENGINE: {error}")))
    }

    /// How many event loops it runs on this machine; 0: it runs on threads alone.
    pub fn loops(self) -> usize {
        match self {
            Engine::Adaptive { loops } | Engine::Reactor { loops } => loops.unwrap_or_else(parallelism),
            #[cfg(feature = "fibers")]
            Engine::Fibers { threads } => threads.unwrap_or_else(parallelism),
            Engine::Workers { .. } | Engine::Pool { .. } => 0,
        }
    }

    /// Refuses parameters with which the engine could not run.
    pub(crate) fn check(self, settings: &Settings) -> Result<(), Error> {
        let (knob, number) = self.parameter();
        if number == Some(0) {
            return Err(Error::too_small(knob, 0, 1));
        }
        if settings.accepted_max > settings.connections_max {
            let (accepted, connections) = (settings.accepted_max, settings.connections_max);
            return Err(Error::too_large("accepted_max", accepted, "connections_max", connections));
        }
        let Engine::Pool { standby } = self else { return Ok(()) };
        let (knob, standby) =
            standby.map_or(("standby_kept", settings.standby_kept), |standby| (knob, standby));
        if standby == 0 {
            return Err(Error::too_small(knob, 0, 1));
        }
        if standby > settings.threads_max {
            return Err(Error::too_large(knob, standby, "threads_max", settings.threads_max));
        }
        Ok(())
    }

    /// What the number behind the name is called, and the number.
    fn parameter(self) -> (&'static str, Option<usize>) {
        match self {
            Engine::Adaptive { loops } | Engine::Reactor { loops } => ("loops", loops),
            Engine::Workers { listeners } => ("listeners", listeners),
            Engine::Pool { standby } => ("standby", standby),
            #[cfg(feature = "fibers")]
            Engine::Fibers { threads } => ("threads", threads),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Engine::Adaptive { .. } => "adaptive",
            Engine::Reactor { .. } => "reactor",
            Engine::Workers { .. } => "workers",
            Engine::Pool { .. } => "pool",
            #[cfg(feature = "fibers")]
            Engine::Fibers { .. } => "fibers",
        }
    }
}

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A text that names no engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEngine(String);

impl fmt::Display for UnknownEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, engines) = (&self.0, info::usages());
        if cfg!(not(feature = "fibers")) && text.split(':').next() == Some("fibers") {
            let why = "is the feature `fibers` of weftwork, which is off in this build";
            return write!(f, "the engine {text:?} {why} (the engines: {engines})");
        }
        write!(f, "unknown engine {text:?} (the engines: {engines}; numbers from 1)")
    }
}

impl std::error::Error for UnknownEngine {}

impl std::str::FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Engine, UnknownEngine> {
        let unknown = || UnknownEngine(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<usize>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match name {
            _ if number == Some(0) => Err(unknown()),
            "adaptive" => Ok(Engine::Adaptive { loops: number }),
            "reactor" => Ok(Engine::Reactor { loops: number }),
            "workers" => Ok(Engine::Workers { listeners: number }),
            "pool" => Ok(Engine::Pool { standby: number }),
            #[cfg(feature = "fibers")]
            "fibers" => Ok(Engine::Fibers { threads: number }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.parameter().1.map_or(Ok(()), |number| write!(f, ":{number}"))
    }
}

/// A started engine, as the server sees it.
pub(crate) trait EngineHandle: Send + Sync {
    /// Somebody has been let in by the kernel, and waits to be accepted. To be asked before the doors are closed.
    fn has_pending(&self) -> bool;
    /// The server's stage has changed: every thread that waits looks.
    fn wake(&self);
    /// Waits for every thread to end, for at most `patience`; how many have not.
    fn join(&self, patience: Duration) -> usize;
    /// Returns how many threads serve requests now. `threads_max` bounds them, except for one a loop and one besides.
    fn threads(&self) -> usize;
    /// Its own counters that have to be 0 when every thread has ended, with their names.
    fn leaks(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// A panic outside of a handler was caught: what it came upon is lost, all else goes on.
#[cold]
fn log_caught_panic() {
    // It may have been the log that panicked.
    catch_log_panic(|| {
        log::error!(
            "a thread of the server panicked outside of any handler, and goes on; this is a bug of weftwork"
        );
    });
}

/// Waits until all threads have ended, for at most `patience`; how many have not.
pub(crate) fn join_within(mut threads: Vec<JoinHandle<()>>, patience: Duration) -> usize {
    let until = Instant::now() + patience;
    while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
        // A thread cannot be joined with a deadline; they end within moments, unless a handler is stuck.
        std::thread::sleep(Duration::from_micros(200));
    }
    threads.retain(|thread| !thread.is_finished());
    threads.len()
}

/// Starts `engine` at the listeners.
pub(crate) fn start(
    engine: Engine,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    if cfg!(panic = "abort") {
        log::warn!("this program is built with panic = \"abort\": a handler that panics ends all of it");
    }
    match engine {
        Engine::Adaptive { .. } => {
            let mode = adaptive::Mode::Adaptive { loops: engine.loops() };
            adaptive::start(mode, cx, handler, Arc::new(listeners))
        }
        Engine::Reactor { .. } => reactor::start(engine.loops(), cx, handler, Arc::new(listeners)),
        Engine::Workers { listeners: workers } => {
            workers::start(workers.unwrap_or_else(parallelism), cx, handler, listeners)
        }
        Engine::Pool { standby } => {
            let standby = standby.unwrap_or(cx.settings.standby_kept);
            adaptive::start(adaptive::Mode::Pool { standby }, cx, handler, Arc::new(listeners))
        }
        #[cfg(feature = "fibers")]
        Engine::Fibers { .. } if cfg!(panic = "abort") => {
            let why = "the engine fibers ends what waits by unwinding: leave panic = \"abort\" out of the profile that this \
                       program is built with, or choose another engine";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        #[cfg(feature = "fibers")]
        Engine::Fibers { .. } => fibers::start(engine.loops(), cx, handler, Arc::new(listeners)),
    }
}

#[cfg(test)]
mod tests;
