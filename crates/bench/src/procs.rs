//! The servers as processes: pinned apart from the load, watched, and ended.

pub(crate) mod child;
pub(crate) mod distance;
pub(crate) mod limits;
pub(crate) mod pin;
pub(crate) mod server;
pub(crate) mod usage;
