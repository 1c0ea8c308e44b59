//! Joins servers with their process: signals, descriptors that a supervisor passes, and messages to systemd.

pub(super) mod descriptors;
pub(super) mod maintenance;
pub(super) mod notify;
pub(super) mod signals;
