//! Settings of a runtime and their defaults.

/// Settings of a [`Runtime`](crate::Runtime).
///
/// ```
/// let config = weftwork_fiber::Config::new().stack_bytes(256 << 10);
/// assert_eq!(weftwork_fiber::run_with(&config, || 6 * 7)?, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Usable bytes of each stack, rounded up to whole pages, plus a guard page. Default: 64 KiB. Formatting, a
    /// panic with its backtrace and typical handlers fit, and only touched pages use memory. Deep recursion and
    /// large local arrays need more. So do large values that the closure of a fiber captures or returns: builds
    /// without optimisation copy them on the stack several times, and abort from about 8 KiB on.
    pub stack_bytes: usize,
    /// Maximum number of unused stacks that are kept for reuse, with all touched pages. Others are returned to
    /// the kernel. Default: 1,024. With one or two touched pages each, that is 4 to 8 MiB per thread after a
    /// burst.
    pub stacks_kept_max: usize,
    /// Maximum number of events per read from the kernel, up to 65,536. Default: 1,024 (12 KiB on Linux).
    pub events_max: usize,
    /// Asked before memory for a new stack is requested, with its bytes. If the answer is false, the stack is refused
    /// as if the kernel had no memory. So a program can leave memory for its allocations. Default: always true.
    pub may_map: fn(usize) -> bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { stack_bytes: 64 << 10, stacks_kept_max: 1_024, events_max: 1_024, may_map: |_| true }
    }
}

impl Config {
    /// Creates the default settings.
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

    /// Sets [`may_map`](Config::may_map).
    pub fn may_map(mut self, may_map: fn(usize) -> bool) -> Self {
        self.may_map = may_map;
        self
    }

    /// Sets [`events_max`](Config::events_max).
    pub fn events_max(mut self, events: usize) -> Self {
        self.events_max = events;
        self
    }
}
