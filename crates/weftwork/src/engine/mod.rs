//! Floor 3: how connections meet threads. Rooms over one and the same connection; none of them parses a byte.

mod adaptive;
mod doors;
mod habits;
mod inbox;
mod patience;
mod reactor;
mod seat;
mod shared;
mod standby;
mod sync;
mod table;
mod turn;

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::message::Handler;
use crate::transport::context::Context;
use crate::transport::listener::Listener;

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
}

/// The names of all engines, for messages.
const NAMES: &str = "adaptive[:loops], reactor[:loops]";

impl Default for Engine {
    fn default() -> Engine {
        Engine::Adaptive { loops: None }
    }
}

impl Engine {
    /// The engine that `WEFT_ENGINE` names, if it is set. A name that is none warns on stderr, names the
    /// choices, and counts as not set.
    pub fn from_env() -> Option<Engine> {
        let named = std::env::var_os("WEFT_ENGINE")?;
        match named.to_string_lossy().parse() {
            Ok(engine) => Some(engine),
            Err(error) => {
                eprintln!("weftwork: WEFT_ENGINE: {error}; using {}", Engine::default());
                None
            }
        }
    }

    /// How many loops it runs on this machine.
    pub fn loops(self) -> usize {
        match self {
            Engine::Adaptive { loops } | Engine::Reactor { loops } => loops.unwrap_or_else(parallelism),
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
        write!(f, "there is no engine {:?} (the engines: {NAMES})", self.0)
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
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = match self {
            Engine::Adaptive { loops } => ("adaptive", loops),
            Engine::Reactor { loops } => ("reactor", loops),
        };
        f.write_str(name)?;
        number.map_or(Ok(()), |number| write!(f, ":{number}"))
    }
}

/// A started engine, as the server sees it.
pub(crate) trait Room: Send + Sync {
    /// The server's stage has changed: every thread that waits looks.
    fn wake(&self);
    /// Waits for every thread to end, for at most `patience`; how many have not.
    fn join(&self, patience: Duration) -> usize;
    /// How many threads there are now.
    fn threads(&self) -> usize;
}

/// Starts `engine` at the listeners.
pub(crate) fn start(
    engine: Engine,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Vec<Listener>,
) -> io::Result<Arc<dyn Room>> {
    let listeners = Arc::new(listeners);
    match engine {
        Engine::Adaptive { .. } => Ok(adaptive::start(engine.loops(), cx, handler, listeners)?),
        Engine::Reactor { .. } => Ok(reactor::start(engine.loops(), cx, handler, listeners)?),
    }
}
