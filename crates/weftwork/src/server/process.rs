//! Joins servers with their process: signals, descriptors that a supervisor passes, messages to systemd, and
//! the replacement of the process.

mod channel;
pub(super) mod descriptors;
pub(super) mod maintenance;
pub(super) mod notify;
pub(super) mod predecessor;
pub(super) mod program;
pub(super) mod replacement;
pub(super) mod signals;
