//! Floor 3: what is built from [`Handler`](crate::Handler) alone, and knows nothing of engines.

mod files;

pub use files::{Files, files};
