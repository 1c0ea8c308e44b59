//! Assigns connections to threads. The five engines share the connection core and parse no bytes themselves.
//!
//! # What may block a loop
//!
//! A loop that waits holds up all its connections. In `adaptive`, the monitor takes the loop away from a call that blocks.
//! Outside of a call nothing does, so nothing there may wait:
//!
//! | what | runs | why no loop waits for it |
//! |---|---|---|
//! | log lines of the library | on the thread `weft-log` | a bounded queue (`transport/log_queue.rs`), lines that do not fit are counted |
//! | access log | on its own thread | a bounded queue as well |
//! | handlers, middleware, filters, writers, destructors of what they leave | in the call (`Conn::run`) | part of the call, also for a response that is sent later |
//! | opening, listing and reading of files, name look-ups and connections of a proxy | in the call | as a handler |
//! | sending a file of more than 4 KiB | on the loop | if it may not be in memory, `adaptive` and `pool` send it as in a call (`transport/slow_file.rs`). In `reactor`, `fibers` and over HTTP/2 the loop waits |
//! | sending messages of feeds, and frames | on the loop | they have a share of each cycle (`event_loop/feeds.rs`) |
//! | `Handler::blocking`, `reads_ahead` and `pattern` | on the loop | they must not wait, and their docs say so |
//! | `UpgradeHandler`, functions of hubs | on the loop | they must not wait, and their docs say so |
//! | destructors of sent bodies, messages of feeds, and what an ended connection leaves | on the loop | memory and descriptors only, unless a user's `Drop` waits |
//! | the panic hook | where the panic is | the hook of std writes to stderr: set another if stderr may block |
//!
//! A panic in any of these costs one request or connection (`Conn::run`, `conn/before_call.rs`, `message/drop_caught.rs`).

mod acceptor;
mod adaptive;
mod adopt;
mod blocking;
#[cfg(any(target_os = "linux", target_os = "android", all(test, loom)))]
mod conn_slot;
mod conn_table;
mod conn_thread;
mod event_loop;
#[cfg(feature = "fibers")]
mod fibers;
mod handoff;
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
mod wait;
mod workers;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod testing;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use self::adopt::{NotAdopted, adopt};
pub(crate) use self::blocking::{BlockingHook, Work, enter};
pub use self::blocking::{blocking, sleep};
pub use self::info::{ENGINES, EngineInfo};
pub use self::wait::wait;
use crate::conn::Conn;
use crate::error::Error;
use crate::message::Handler;
use crate::settings::Settings;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;
use crate::transport::log_queue::log_line;

/// Assigns connections to threads. `WEFT_ENGINE` names an engine too, and an engine set in code takes precedence.
///
/// ```
/// use weftwork::Engine;
/// assert_eq!("reactor:2".parse(), Ok(Engine::Reactor { loops: Some(2) }));
/// assert_eq!(Engine::default().to_string(), "adaptive");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Event loops that move to another thread when a handler blocks. The default for all handlers.
    Adaptive {
        /// Number of loops. `None`: the number of threads that the machine runs at once.
        loops: Option<usize>,
    },
    /// Event loops that stay on their threads. A handler that blocks stops its loop. For handlers that never block.
    Reactor {
        /// Number of loops. `None`: the number of threads that the machine runs at once.
        loops: Option<usize>,
    },
    /// A thread for each connection. The thread reads, runs the handler and writes with blocking calls. For few,
    /// long, busy connections.
    Workers {
        /// Number of threads that accept, each with its own listeners. `None`: the number of threads that the machine
        /// runs at once.
        listeners: Option<usize>,
    },
    /// One event loop, and a pool of threads that call every handler. The loop accepts connections, and holds the
    /// slow and idle ones. Idle threads share the wait for connections whose last call blocked. For many short
    /// connections whose handlers block.
    Pool {
        /// Number of threads that start with the server, and stay when they are idle. `None`: the setting
        /// [`standby_kept`](Settings::standby_kept).
        standby: Option<usize>,
    },
    /// Event loops that run each request on a fiber. A handler that waits through the library costs a stack and no
    /// thread. A handler that blocks its thread stops its loop. For very many handlers that wait. Needs the feature
    /// `fibers`, which is on by default.
    #[cfg(feature = "fibers")]
    Fibers {
        /// Number of threads, each with its loop. `None`: the number of threads that the machine runs at once.
        threads: Option<usize>,
    },
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::Adaptive { loops: None }
    }
}

impl Engine {
    /// Returns the engine that `WEFT_ENGINE` names, if the variable is set and not empty.
    ///
    /// # Errors
    /// If the variable names no engine. The error lists the engines.
    pub fn from_env() -> Result<Option<Engine>, Error> {
        Engine::from_variable("WEFT_ENGINE")
    }

    /// The engine that this variable names, if it is set and not empty.
    pub(crate) fn from_variable(variable: &str) -> Result<Option<Engine>, Error> {
        let named = std::env::var_os(variable).filter(|name| !name.is_empty());
        let parsed = named.map(|name| name.to_string_lossy().parse::<Engine>()).transpose();
        parsed.map_err(|error| Error::usage(format!("{variable}: {error}")))
    }

    /// Returns the number of event loops on this machine. 0 means that the engine has only threads.
    pub fn loops(self) -> usize {
        match self {
            Engine::Adaptive { loops } | Engine::Reactor { loops } => loops.unwrap_or_else(parallelism),
            #[cfg(feature = "fibers")]
            Engine::Fibers { threads } => threads.unwrap_or_else(parallelism),
            Engine::Workers { .. } | Engine::Pool { .. } => 0,
        }
    }

    /// Returns what stops this engine, for the start-up line. `None` if no handler and no client does.
    pub fn caution(self) -> Option<&'static str> {
        match self {
            Engine::Reactor { .. } => Some(
                "a handler that blocks stops its loop, and so does a slow client whose long body a handler reads",
            ),
            _ => None,
        }
    }

    /// Refuses parameters with which the engine could not run.
    pub(crate) fn check(self, settings: &Settings) -> Result<(), Error> {
        let (name, number) = self.parameter();
        if number == Some(0) {
            return Err(Error::too_small(name, 0, 1));
        }
        if settings.accepted_max > settings.connections_max {
            let (accepted, connections) = (settings.accepted_max, settings.connections_max);
            return Err(Error::too_large("accepted_max", accepted, "connections_max", connections));
        }
        let Engine::Pool { standby } = self else { return Ok(()) };
        let (name, standby) =
            standby.map_or(("standby_kept", settings.standby_kept), |standby| (name, standby));
        if standby == 0 {
            return Err(Error::too_small(name, 0, 1));
        }
        if standby > settings.threads_max {
            return Err(Error::too_large(name, standby, "threads_max", settings.threads_max));
        }
        Ok(())
    }

    /// Returns the name of the engine's parameter, and its value.
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

/// The error for a text that names no engine.
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
    /// Returns whether an established connection waits to be accepted. To be called before the listeners are closed.
    fn has_pending(&self) -> bool;
    /// Accepts the connections that wait at the listeners. To be called before the listeners are closed, which would
    /// reset them.
    fn accept_pending(self: Arc<Self>);
    /// Returns whether the engine takes one more connection. Otherwise connections wait in the kernel.
    fn has_room(&self) -> bool {
        true
    }
    /// Serves a connection that other code has accepted: see [`adopt`].
    fn adopt(self: Arc<Self>, conn: Box<Conn>);
    /// Ends idle connections, because another one needs a slot.
    fn close_idle(&self);
    /// Returns whether a thread may still accept a connection, because it has not seen yet that the server drains. A socket
    /// that another process holds too is not shut down.
    fn is_accepting(&self) -> bool;
    /// Tells every waiting thread that the server's stage has changed.
    fn wake(&self);
    /// Waits for every thread to end, for at most `timeout`. Returns how many have not ended.
    fn join(&self, timeout: Duration) -> usize;
    /// Returns how many threads serve requests now. `threads_max` limits them, except for one thread for each loop
    /// and one more.
    fn threads(&self) -> usize;
    /// Returns how many requests wait for a thread.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    fn queued(&self) -> usize {
        0
    }
    /// Counters of the engine that must be 0 when every thread has ended, with their names.
    fn leaks(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// Logs a panic outside of a handler. The connection that was being served is lost, and everything else goes on.
#[cold]
fn log_caught_panic() {
    log_line!(
        Error,
        "a thread of the server panicked outside of any handler, and goes on; this is a bug of weftwork"
    );
}

/// Waits until all threads have ended, for at most `timeout`. Returns how many have not ended.
pub(crate) fn join_within(mut threads: Vec<JoinHandle<()>>, timeout: Duration) -> usize {
    let until = Instant::now() + timeout;
    while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
        // A thread cannot be joined with a deadline. Threads end within moments, unless a handler is stuck.
        std::thread::sleep(Duration::from_micros(200));
    }
    threads.retain(|thread| !thread.is_finished());
    threads.len()
}

/// Returns an engine that was started. If that failed, the threads that were started end.
fn started(
    engine: Arc<dyn EngineHandle>,
    cx: &Context,
    result: io::Result<()>,
) -> io::Result<Arc<dyn EngineHandle>> {
    if result.is_err() {
        cx.enter(Stage::Closing);
        engine.wake();
    }
    result.map(|()| engine)
}

/// Starts `engine` at the listeners.
pub(crate) fn start(
    engine: Engine,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn EngineHandle>> {
    if cfg!(panic = "abort") {
        log_line!(Warn, "this program is built with panic = \"abort\": a handler that panics ends all of it");
    }
    let listeners = match engine {
        Engine::Workers { .. } => listeners,
        _ => listeners.into_iter().flat_map(Listener::with_queues).collect(),
    };
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
