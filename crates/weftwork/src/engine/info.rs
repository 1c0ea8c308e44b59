//! The engines in words, for people who choose one.

/// An engine, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// How it is written: its name, and what the number behind it counts.
    pub usage: &'static str,
    /// Who waits for clients.
    pub waits: &'static str,
    /// What happens when a handler blocks.
    pub blocked: &'static str,
    /// What it is for.
    pub best_for: &'static str,
}

/// Every engine of this build; the first is the default.
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
        blocked: "others go on",
        best_for: "few, long, busy connections",
    },
    EngineInfo {
        usage: "pool[:standby]",
        waits: "threads, for new and kept connections alike",
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

/// How all of them are written, for messages.
pub(super) fn usages() -> String {
    ENGINES.iter().map(|engine| engine.usage).collect::<Vec<_>>().join(", ")
}
