//! Errors in the shape of the specification, and bodies whose faults are reported in it.

use rusqlite::ErrorCode;
use serde::de::DeserializeOwned;
use serde_json::json;
use weftwork::Extract;
use weftwork::prelude::*;

/// Ends a handler with `status`. The body is `{"errors": {field: [why]}}`.
pub(crate) fn refused(status: StatusCode, field: &str, why: &str) -> Error {
    let response = Response::json(&json!({ "errors": { field: [why] } })).with_status(status);
    if status != StatusCode::UNAUTHORIZED {
        return response.into();
    }
    response.with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Token")).into()
}

pub(crate) fn invalid(field: &str, why: &str) -> Error {
    refused(StatusCode::UNPROCESSABLE_ENTITY, field, why)
}

pub(crate) fn not_found(what: &str) -> Error {
    refused(StatusCode::NOT_FOUND, what, "not found")
}

pub(crate) fn forbidden(what: &str) -> Error {
    refused(StatusCode::FORBIDDEN, what, "belongs to another user")
}

/// Checks a field that must have a text.
pub(crate) fn required(field: &str, text: &str) -> Result<()> {
    if text.trim().is_empty() { Err(invalid(field, "can't be blank")) } else { Ok(()) }
}

/// Checks a field that must have a text if the client sent it.
pub(crate) fn optional(field: &str, text: Option<&String>) -> Result<()> {
    text.map_or(Ok(()), |text| required(field, text))
}

/// Blames the client for a second value in a column whose values are unique.
pub(crate) fn taken(error: rusqlite::Error) -> Error {
    let message = error.to_string();
    match (error.sqlite_error_code(), message.rsplit_once('.')) {
        (Some(ErrorCode::ConstraintViolation), Some((_, "slug"))) => {
            invalid("title", "has already been taken")
        }
        (Some(ErrorCode::ConstraintViolation), Some((_, column))) => {
            invalid(column, "has already been taken")
        }
        _ => error.into(),
    }
}

/// A JSON body, as [`Json`]. Its errors have the shape of the specification.
pub(crate) struct Input<T>(pub(crate) T);

impl<T: DeserializeOwned> Extract for Input<T> {
    const IS_BODY: bool = true;

    fn extract(req: &mut Request) -> Result<Self> {
        let read = Json::extract(req).map_err(|error| refused(error.status(), "body", error.message()))?;
        let Json(value) = read;
        Ok(Input(value))
    }
}
