//! Tests that an error keeps its blame, its message and its causes.

use std::fmt;
use std::io;

use http::StatusCode;

use crate::message::BodyError;
use crate::{Error, ErrorClass, Problem, Request, Response, Result, TestClient};

#[derive(Debug)]
struct Foreign;

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something foreign")
    }
}

impl std::error::Error for Foreign {}

#[test]
fn a_foreign_error_is_ours() {
    fn fails() -> Result<()> {
        Err(Foreign)?
    }
    let error = fails().unwrap_err();
    assert_eq!((error.class(), error.status()), (ErrorClass::Internal, StatusCode::INTERNAL_SERVER_ERROR));
    assert!(error.source().is_some_and(|source| source.is::<Foreign>()));
    assert_eq!(error.to_string(), "something foreign", "not said twice");
}

#[test]
fn a_cause_is_said_once() {
    let error = Error::io("cannot do this", io::Error::other("for that reason"));
    assert_eq!(error.class(), ErrorClass::Usage);
    assert_eq!(error.message(), "cannot do this");
    assert_eq!(error.to_string(), "cannot do this: for that reason");
    assert_eq!(format!("{error:?}"), error.to_string(), "what main prints");
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert_eq!(boxed.to_string(), "cannot do this: for that reason");
    assert!(std::error::Error::source(&*boxed).is_none());
}

/// An error whose message does not include its cause, like most errors.
#[derive(Debug)]
struct Above<E>(&'static str, E);

impl<E> fmt::Display for Above<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Above<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.1)
    }
}

#[test]
fn every_cause_is_said() {
    let error = Error::from(Above("no page", Above("no row", Foreign)));
    assert_eq!(error.to_string(), "no page: no row: something foreign");
    assert_eq!(error.message(), "no page");
    let error =
        Error::from(Above("no page: no row: something foreign", Above("no row: something foreign", Foreign)));
    assert_eq!(error.to_string(), "no page: no row: something foreign", "an error that says its causes");
}

#[test]
fn what_is_no_error_itself_goes_in_boxed() {
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    fn fails(boxed: Boxed) -> Result<()> {
        let failed: std::result::Result<(), Boxed> = Err(boxed);
        failed.map_err(Error::boxed)?;
        Ok(())
    }
    let error = fails(Box::new(Above("no page", Foreign))).unwrap_err();
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (ErrorClass::Internal, "no page: something foreign")
    );
    assert!(error.source().is_some_and(|source| source.is::<Above<Foreign>>()));
    assert_eq!(Error::boxed("only words").to_string(), "only words");
    let error = fails(BodyError::Timeout.into()).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Client(StatusCode::REQUEST_TIMEOUT));
}

#[test]
fn a_status_is_kept_inside_other_errors() {
    let problem = Problem::new(StatusCode::CONFLICT).detail("taken");
    let error = Error::from(Above("cannot add", problem.clone()));
    assert_eq!(error.class(), ErrorClass::Client(StatusCode::CONFLICT));
    assert_eq!(error.problem(), Some(&problem));
    let error = Error::from(Above("cannot read", io::Error::from(BodyError::Timeout)));
    assert_eq!(error.class(), ErrorClass::Client(StatusCode::REQUEST_TIMEOUT));
}

/// A writer can only return I/O errors.
#[test]
fn a_problem_within_an_error_of_io_is_the_answer_until_something_was_sent() {
    let problem = || io::Error::other(Problem::new(StatusCode::BAD_GATEWAY).detail("down"));
    assert_eq!(Error::from(problem()).status(), StatusCode::BAD_GATEWAY);
    let site = move |req: &mut Request<'_>| {
        let piece = req.query_value("piece").unwrap_or_default().into_owned();
        Response::stream(move |out| {
            io::Write::write_all(out, piece.as_bytes())?;
            Err(problem())
        })
    };
    let mut client = TestClient::new(site);
    let answer = client.get("/").send();
    let expected = r#"{"title":"Bad Gateway","status":502,"detail":"down"}"#;
    assert_eq!((answer.status, answer.text()), (StatusCode::BAD_GATEWAY, expected));
    assert!(client.get("/?piece=x").try_send().is_err(), "the head was sent");
}

#[test]
fn main_may_return_any_box() {
    fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
        Err(Error::from(Above("no page", Foreign)))?
    }
    assert_eq!(main().unwrap_err().to_string(), "no page: something foreign");
}

#[test]
fn a_body_error_keeps_its_status_inside_an_io_error_only() {
    let inside = io::Error::from(BodyError::Timeout);
    assert_eq!(inside.kind(), io::ErrorKind::TimedOut);
    assert_eq!(Error::from(inside).class(), ErrorClass::Client(StatusCode::REQUEST_TIMEOUT));
    let plain = io::Error::from(io::ErrorKind::TimedOut);
    assert_eq!(Error::from(plain).class(), ErrorClass::Internal);
}

#[test]
fn errors_contain_name_value_and_bound() {
    let setting = Error::setting("head_bytes_max", "many", "a size");
    assert_eq!(setting.to_string(), "invalid head_bytes_max \"many\": expected a size");
    let small = Error::too_small("fields_max", 0, 1);
    assert_eq!(small.to_string(), "invalid fields_max 0: must be at least 1");
    assert_eq!((setting.class(), small.class()), (ErrorClass::Usage, ErrorClass::Usage));
    let peer = Error::client(StatusCode::GONE, "gone");
    assert_eq!((peer.class(), peer.status()), (ErrorClass::Client(StatusCode::GONE), StatusCode::GONE));
}
