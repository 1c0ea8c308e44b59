//! Layer 1: what a handler sees. Contains requests, responses, bodies, and the traits that join them.

mod attachment;
pub(crate) mod body;
pub(crate) mod client;
#[cfg(feature = "compression")]
pub(crate) mod decoding;
pub(crate) mod exchange;
mod failed;
mod feed;
mod filter;
mod handler;
mod headers;
mod into_response;
#[cfg(feature = "json")]
mod json;
mod later;
mod needs;
mod problem;
mod request;
mod response;
#[cfg(any(feature = "compression", feature = "json"))]
pub(crate) mod room;
mod routed;
mod texts;
mod upgrade;
mod values;
mod writer;

pub use body::{Body, BodyError};
pub use feed::{Feed, FeedClosed, FeedLimits, FeedSender, OverflowStrategy};
pub use filter::StreamFilter;
pub use handler::{Blocking, Handler, RequestLine, blocks, unbuffered};
pub(crate) use headers::{CONNECTION_FIELDS, OF_CONTENT};
pub use into_response::IntoResponse;
#[cfg(feature = "json")]
pub use json::json;
pub use later::{ResponseClosed, ResponseSender};
pub(crate) use needs::Need;
pub use problem::Problem;
pub(crate) use problem::{PROBLEM_JSON, SERVER_ERROR};
pub use request::Request;
pub use response::{Response, html, text};
pub(crate) use routed::Shared;
pub use texts::escaped;
pub(crate) use texts::{checkbox, form_decoded, plain_field_name, split_unquoted};
pub use upgrade::{UpgradeHandler, Upgraded, UpgradedReader, UpgradedWriter};
pub use writer::BodyWriter;

pub(crate) use feed::{Pulled, Wakes};
pub(crate) use later::Later;
pub(crate) use response::{Lasting, Part, Payload, Stream};
pub(crate) use upgrade::{Silence, Take, UpgradePanic};
pub(crate) use values::Only;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
