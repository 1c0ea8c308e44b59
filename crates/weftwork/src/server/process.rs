//! Joins servers with their process: descriptors that a supervisor passes, and messages to systemd.

pub(super) mod descriptors;
pub(super) mod notify;
