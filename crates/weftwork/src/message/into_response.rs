//! Conversions of a handler's return value to a response.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::body::BodyError;
use super::headers::converted;
use super::problem::Problem;
use super::response::Response;
use crate::error::{Error, ErrorClass, Result};

/// A value that a handler can return.
#[diagnostic::on_unimplemented(
    message = "a handler cannot answer with `{Self}`",
    label = "not something a response can be made of",
    note = "return a `Response`, text, bytes, a `StatusCode`, `json(&value)`, a tuple as `(StatusCode, [(name, value)], body)`, or a `weftwork::Result` of one of these, whose `?` takes every error"
)]
pub trait IntoResponse {
    /// Converts the value to a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

/// The response is 204, because a 200 without content would tell a client to expect some. For the empty 200 that other
/// libraries send, return [`StatusCode::OK`].
impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(StatusCode::NO_CONTENT)
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        match self {
            Cow::Borrowed(text) => Response::text(text),
            Cow::Owned(text) => Response::text(text),
        }
    }
}

impl IntoResponse for Box<str> {
    fn into_response(self) -> Response {
        Response::text(String::from(self))
    }
}

impl IntoResponse for &'static [u8] {
    fn into_response(self) -> Response {
        Response::bytes(self)
    }
}

/// A literal, as `b"tea"`.
impl<const COUNT: usize> IntoResponse for &'static [u8; COUNT] {
    fn into_response(self) -> Response {
        Response::bytes(&self[..])
    }
}

impl<const COUNT: usize> IntoResponse for [u8; COUNT] {
    fn into_response(self) -> Response {
        Response::bytes(self.to_vec())
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        Response::bytes(self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Response::bytes(self)
    }
}

/// Replaces the status. A success does not replace an error status (4xx, 5xx). So an `Err`, `None`, or JSON that could
/// not be serialized is not sent with 201.
impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        let (status, response) = (self.0, self.1.into_response());
        let is_error = response.status.is_client_error() || response.status.is_server_error();
        if is_error && status.is_success() { response } else { response.with_status(status) }
    }
}

/// Replaces headers: `([("x-tea", "Assam"), ("cache-control", "no-store")], body)`. A name that occurs twice in the array is
/// sent twice. Invalid text is a 500, as with [`with_header`](Response::with_header).
impl<N, V, T, const COUNT: usize> IntoResponse for ([(N, V); COUNT], T)
where
    N: TryInto<HeaderName, Error: Into<http::Error>>,
    V: TryInto<HeaderValue, Error: Into<http::Error>>,
    T: IntoResponse,
{
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        let fields: Result<Vec<_>> = self.0.into_iter().map(|(name, value)| converted(name, value)).collect();
        match fields {
            Ok(fields) => response.replace_headers(fields),
            Err(error) => response.fail(error),
        }
        response
    }
}

/// Replaces the headers that the map has.
impl<T: IntoResponse> IntoResponse for (HeaderMap, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        let mut last = None;
        // The map names a header once, before its first value.
        let fields = self.0.into_iter().filter_map(|(name, value)| {
            last = name.or(last.take());
            Some((last.clone()?, value))
        });
        response.replace_headers(fields.collect());
        response
    }
}

/// Replaces the status and headers.
impl<H, T> IntoResponse for (StatusCode, H, T)
where
    (H, T): IntoResponse,
{
    fn into_response(self) -> Response {
        (self.0, (self.1, self.2)).into_response()
    }
}

/// `None` becomes 404 with a [`Problem`].
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        self.map_or_else(Response::not_found, T::into_response)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for std::result::Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// Becomes the response in the error, or a [`Problem`]. The client learns of its own mistakes. Errors of the server go
/// to the log.
impl IntoResponse for Error {
    fn into_response(mut self) -> Response {
        if let Some(response) = self.take_response() {
            return response;
        }
        if let Some(problem) = self.problem() {
            return problem.clone().into_response();
        }
        match self.class() {
            ErrorClass::Client(status) => Problem::new(status).detail(self.message()).into_response(),
            ErrorClass::Usage | ErrorClass::Internal => Response::failed(self),
        }
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        Error::from(self).into_response()
    }
}
