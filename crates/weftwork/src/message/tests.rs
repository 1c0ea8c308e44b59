//! Do requests and responses hold what they promise, with no connection beneath?

mod answers;
mod bodies;
mod errors;
mod feeds;
#[cfg(feature = "json")]
mod json;
mod problems;
mod requests;
mod responses;

use super::testing::Canned;
