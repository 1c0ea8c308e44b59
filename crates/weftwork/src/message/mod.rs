//! Layer 1: what a handler sees. Contains requests, responses, bodies, and the traits that join them.

mod attachment;
pub(crate) mod body;
pub(crate) mod client;
#[cfg(feature = "compression")]
pub(crate) mod decoding;
mod deferred;
pub(crate) mod drop_caught;
mod escape;
pub(crate) mod exchange;
mod feed;
mod filter;
mod handler;
mod handler_error;
mod headers;
mod into_response;
#[cfg(feature = "json")]
mod json;
pub(crate) mod large_stack;
mod listeners;
pub(crate) mod observer;
pub(crate) mod owned_body;
mod pending_future;
mod problem;
mod problem_shape;
mod request;
mod required_state;
mod response;
mod route_match;
mod single_value;
pub(crate) mod thread_wakeup;
mod upgrade;
mod wait;
#[cfg(feature = "compression")]
pub(crate) mod without_fields;
mod writer;

pub use body::{Body, BodyError};
pub use deferred::{LaterReason, ResponseClosed, ResponseSender};
pub use escape::escaped;
pub(crate) use escape::{checkbox, form_decoded, plain_field_name, split_unquoted};
pub use feed::{Feed, FeedClosed, FeedLimits, FeedSender, OverflowStrategy};
pub use filter::StreamFilter;
pub use handler::{Blocking, Handler, RequestLine, blocks, quick, unbuffered};
pub(crate) use handler::{is_proxy_in_use, note_proxy};
pub(crate) use headers::{CONNECTION_FIELDS, OF_CONTENT};
pub use into_response::IntoResponse;
#[cfg(feature = "json")]
pub use json::json;
pub use owned_body::OwnedBody;
pub(crate) use problem::PROBLEM_JSON;
pub use problem::Problem;
#[cfg(test)]
pub(crate) use problem::SERVER_ERROR;
pub(crate) use problem_shape::ProblemShape;
pub use request::Request;
pub use required_state::RequiredState;
pub use response::{Response, html, text};
pub(crate) use route_match::Shared;
pub use upgrade::{UpgradeHandler, Upgraded, UpgradedReader, UpgradedWriter};
pub use wait::WaitError;
pub use writer::BodyWriter;

pub(crate) use deferred::Deferred;
pub(crate) use feed::{FeedPoll, WakeConn, random_below};
pub(crate) use response::{BodyPart, LongLived, Payload, Stream};
pub(crate) use single_value::SingleValue;
pub(crate) use upgrade::{IdlePolicy, UpgradeFn, UpgradePanic};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
