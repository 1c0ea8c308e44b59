//! JSON out of any value that serde can serialize.

use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::into_response::IntoResponse;
use super::response::Response;
use super::room::with_room;
use crate::error::Error;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response with `value` as JSON; short for [`Response::json`].
pub fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    Response::json(value)
}

impl Response {
    /// `value` as JSON, with `Content-Type: application/json`. A value that cannot be serialized (a map whose
    /// keys are not text) is our fault: 500, and a line in the log.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Response {
        match with_room(|| serde_json::to_vec(value)) {
            Ok(bytes) => Response::bytes(bytes).with_content_type(JSON),
            Err(error) => {
                Error::ours(format!("the response cannot be written as JSON: {error}")).into_response()
            }
        }
    }

    /// `{"error": message}` as JSON with `status`. The message is escaped, whatever is in it. A
    /// [`Problem`](crate::Problem) says the same in the form of RFC 9457.
    ///
    /// ```
    /// use weftwork::{Response, http::StatusCode};
    /// let answer = Response::json_error(StatusCode::NOT_FOUND, "no user \"7\"");
    /// ```
    pub fn json_error(status: StatusCode, message: &str) -> Response {
        Response::json(&serde_json::json!({ "error": message })).with_status(status)
    }
}
