//! Clients and bursts of connections for the tests of the engines.

pub(super) mod burst;
pub(super) mod client;
