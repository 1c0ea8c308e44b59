//! Layer 1: bytes and time. Contains sockets, pooled buffers, deadlines, and the timer wheel.

pub(crate) mod address;
pub(crate) mod buffers;
mod cgroup_memory;
pub(crate) mod context;
pub(crate) mod deadlines;
pub(crate) mod events;
pub(crate) mod listener;
pub(crate) mod log_file;
pub(crate) mod log_limit;
pub(crate) mod log_queue;
pub(crate) mod open_count;
pub(crate) mod panic_log;
pub(crate) mod reserve_fd;
pub(crate) mod slow_file;
mod socket_file;
pub(crate) mod socket_share;
pub(crate) mod stream;
pub(crate) mod system;
pub(crate) mod thread_memory;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
pub(crate) mod wake_pipe;
pub(crate) mod watchdog;
pub(crate) mod wheel;

pub(crate) use buffers::{BufferPool, Buffers};
pub(crate) use deadlines::{DateCache, Tick};
pub(crate) use stream::Stream;
pub(crate) use watchdog::CallSlot;
