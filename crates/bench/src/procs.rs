//! How are the servers kept apart from the load, measured, and ended?

pub(crate) mod child;
pub(crate) mod distance;
pub(crate) mod limits;
pub(crate) mod pin;
pub(crate) mod scratch;
pub(crate) mod server;
pub(crate) mod usage;
