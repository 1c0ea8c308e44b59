//! JSON responses from any value that serde can serialize.

use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::into_response::IntoResponse;
use super::large_stack::with_large_stack;
use super::response::Response;
use crate::error::Error;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns a response with `value` as JSON. Short for [`Response::json`].
pub fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    Response::json(value)
}

impl Response {
    /// Serializes `value` as JSON, with `Content-Type: application/json`. If a value cannot be serialized (such as a
    /// map whose keys are not text), the response is 500 and the error is logged.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Response {
        match with_large_stack(|| serde_json::to_vec(value)) {
            Ok(bytes) => Response::bytes(bytes).with_content_type(JSON),
            Err(error) => {
                Error::internal(format!("the response cannot be written as JSON: {error}")).into_response()
            }
        }
    }

    /// Returns `{"error": message}` as JSON with `status`. The message is escaped. A [`Problem`](crate::Problem) has
    /// the format of RFC 9457 instead.
    ///
    /// ```
    /// use weftwork::{Response, http::StatusCode};
    /// let answer = Response::json_error(StatusCode::NOT_FOUND, "no user \"7\"");
    /// ```
    pub fn json_error(status: StatusCode, message: &str) -> Response {
        Response::json(&serde_json::json!({ "error": message })).with_status(status)
    }
}
