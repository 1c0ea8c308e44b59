//! Floor 1: what a handler sees. Requests, responses, bodies, and the traits that join them.

mod body;
pub(crate) mod client;
pub(crate) mod exchange;
mod fields;
mod filter;
mod handler;
mod into_response;
#[cfg(feature = "json")]
mod json;
mod problem;
mod request;
mod response;
mod writer;

pub use body::{Body, BodyError};
pub use filter::StreamFilter;
pub use handler::{Asked, Blocking, Handler, blocks};
pub use into_response::IntoResponse;
#[cfg(feature = "json")]
pub use json::json;
pub use problem::Problem;
pub use request::Request;
pub use response::{Response, html, text};
pub use writer::BodyWriter;

pub(crate) use response::{Payload, Stream};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
