//! Tests of requests and responses, without a connection.

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
