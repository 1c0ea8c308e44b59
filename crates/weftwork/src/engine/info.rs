//! Describes the engines in words, for people who choose one.

/// Description of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The name of the engine, and what the number after the name counts.
    pub usage: &'static str,
    /// The part of the engine that waits for clients.
    pub waits: &'static str,
    /// The effect of a handler that blocks.
    pub blocked: &'static str,
    /// The use of the engine.
    pub best_for: &'static str,
}

/// Every engine of this build. The first one is the default.
pub const ENGINES: &[EngineInfo] = &[
    EngineInfo {
        usage: "adaptive[:loops]",
        waits: "event loops",
        blocked: "the loop moves to another thread",
        best_for: "everything, unless you know better",
    },
    EngineInfo {
        usage: "reactor[:loops]",
        waits: "event loops",
        blocked: "all connections on that loop wait",
        best_for: "handlers that never block",
    },
    EngineInfo {
        usage: "workers[:listeners]",
        waits: "a thread a connection",
        blocked: "other connections go on",
        best_for: "few, long, busy connections",
    },
    EngineInfo {
        usage: "pool[:standby]",
        waits: "an event loop, and idle threads",
        blocked: "another thread goes on",
        best_for: "many short connections; debugging with threads",
    },
    #[cfg(feature = "fibers")]
    EngineInfo {
        usage: "fibers[:threads]",
        waits: "event loops",
        blocked: "a wait of the library suspends a fiber; any other stops its thread",
        best_for: "very many handlers that wait",
    },
];

/// Returns the names of all engines, for messages.
pub(super) fn usages() -> String {
    ENGINES.iter().map(|engine| engine.usage).collect::<Vec<_>>().join(", ")
}
