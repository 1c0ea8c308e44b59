//! Errors in the shape of the specification.

use rusqlite::ErrorCode;
use serde_json::json;
use weftwork::prelude::*;

/// The body of each error in the specification: `{"errors": {field: [why]}}`.
pub fn in_shape(_: StatusCode, problem: &Problem, _: Option<&Request>) -> Response {
    let field = problem.member("field").unwrap_or("request");
    Response::json(&json!({ "errors": { field: [problem.to_string()] } }))
}

/// Ends a handler with `status`.
fn refused(status: StatusCode, field: &str, why: &str) -> Error {
    Problem::new(status).detail(why).with("field", field).into()
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
