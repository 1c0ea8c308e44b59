//! What can be set about a runtime, and why is the default what it is?

/// Settings of a [`Runtime`](crate::Runtime).
///
/// ```
/// let config = weftwork_fiber::Config::new().stack_bytes(256 << 10);
/// assert_eq!(weftwork_fiber::run_with(&config, || 6 * 7)?, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Usable bytes of each stack, rounded up to whole pages; a guard page comes on top. The default is 64 KiB:
    /// formatting, a panic with its backtrace and typical handlers fit in it, and only touched pages take memory.
    /// Deep recursion and large local arrays need more, and so do large values that a fiber's closure captures or gives
    /// back: builds without optimisation have several copies of them on the stack, and abort from some 8 KiB on.
    pub stack_bytes: usize,
    /// So many unused stacks are kept for reuse, with all pages that were touched; further ones go back to the kernel. The
    /// default is 1,024: at one or two touched pages each that is 4 to 8 MiB a thread after a burst.
    pub stacks_kept_max: usize,
    /// Events taken from the kernel at once, 65,536 at most. The default is 1,024 (12 KiB on Linux).
    pub events_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { stack_bytes: 64 << 10, stacks_kept_max: 1_024, events_max: 1_024 }
    }
}

impl Config {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`stack_bytes`](Config::stack_bytes).
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Sets [`stacks_kept_max`](Config::stacks_kept_max).
    pub fn stacks_kept_max(mut self, stacks: usize) -> Self {
        self.stacks_kept_max = stacks;
        self
    }

    /// Sets [`events_max`](Config::events_max).
    pub fn events_max(mut self, events: usize) -> Self {
        self.events_max = events;
        self
    }
}
