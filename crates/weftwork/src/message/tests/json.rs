//! Tests that JSON is escaped in responses, and that faults in requests are reported.

use std::collections::HashMap;

use http::StatusCode;

use super::Canned;
use super::responses::body;
use crate::Error;
use crate::message::{IntoResponse, Response, json};

#[test]
fn json_is_escaped() {
    let error = Response::json_error(StatusCode::NOT_FOUND, "no \"user\"\n</script>\u{1}");
    assert_eq!(error.status(), StatusCode::NOT_FOUND);
    assert_eq!(body(&error), br#"{"error":"no \"user\"\n</script>\u0001"}"#);
    assert_eq!(error.content_type().unwrap(), "application/json");
    assert_eq!(body(&json(&[1, 2])), b"[1,2]");
    let unspeakable = json(&HashMap::from([((1, 2), 3)]));
    assert_eq!(unspeakable.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(unspeakable.error().is_some_and(|error| error.to_string().contains("as JSON: key must be")));
    assert_eq!(body(&unspeakable), crate::message::SERVER_ERROR);
}

/// A client would take it for the requested data, and the access log for a success.
#[test]
fn what_has_failed_is_no_success() {
    let unspeakable = || json(&HashMap::from([((1, 2), 3)]));
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    assert_eq!((StatusCode::CREATED, unspeakable()).into_response().status(), failed);
    assert_eq!(unspeakable().with_status(StatusCode::CREATED).status(), failed);
    assert_eq!(unspeakable().with_status(StatusCode::BAD_GATEWAY).status(), StatusCode::BAD_GATEWAY);
    let none = (StatusCode::OK, None::<&str>).into_response();
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    let refused: crate::Result<&str> = Err(Error::client(StatusCode::CONFLICT, "it is there already"));
    assert_eq!((StatusCode::CREATED, refused).into_response().status(), StatusCode::CONFLICT);
    assert_eq!((StatusCode::GONE, None::<&str>).into_response().status(), StatusCode::GONE);
}

#[test]
fn a_body_that_is_not_json_says_where() {
    let mut canned = Canned::with_body(&["[1, ", "2]"]);
    assert_eq!(canned.request(100).body().json::<Vec<u8>>(), Ok(vec![1, 2]));
    let mut canned = Canned::with_body(&["[1,\nx]"]);
    let error = canned.request(100).body().json::<Vec<u8>>().unwrap_err();
    assert!(error.to_string().contains("line 2 column 1"), "{error}");
}
