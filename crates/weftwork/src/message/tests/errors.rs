//! Does an error keep whom it blames, what it says, and what is beneath it?

use std::fmt;
use std::io;

use http::StatusCode;

use crate::message::BodyError;
use crate::{Blame, Error, Result};

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
    assert_eq!((error.blame(), error.status()), (Blame::Ours, StatusCode::INTERNAL_SERVER_ERROR));
    assert!(error.source().is_some_and(|source| source.is::<Foreign>()));
    assert_eq!(error.to_string(), "something foreign", "not said twice");
}

#[test]
fn a_cause_is_said_once() {
    let error = Error::io("cannot do this", io::Error::other("for that reason"));
    assert_eq!(error.blame(), Blame::User);
    assert_eq!(error.message(), "cannot do this");
    assert_eq!(error.to_string(), "cannot do this: for that reason");
    assert_eq!(format!("{error:?}"), error.to_string(), "what main prints");
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert_eq!(boxed.to_string(), "cannot do this: for that reason");
    assert!(std::error::Error::source(&*boxed).is_none());
}

#[test]
fn a_body_error_keeps_its_status_inside_an_io_error_only() {
    let inside = io::Error::from(BodyError::Timeout);
    assert_eq!(inside.kind(), io::ErrorKind::TimedOut);
    assert_eq!(Error::from(inside).blame(), Blame::Peer(StatusCode::REQUEST_TIMEOUT));
    let plain = io::Error::from(io::ErrorKind::TimedOut);
    assert_eq!(Error::from(plain).blame(), Blame::Ours);
}

#[test]
fn the_user_is_told_name_value_and_bound() {
    let knob = Error::knob("head_bytes_max", "many", "a size");
    assert_eq!(knob.to_string(), "head_bytes_max is \"many\", but has to be a size");
    let small = Error::too_small("fields_max", 0, 1);
    assert_eq!(small.to_string(), "fields_max is 0, but has to be at least 1");
    assert_eq!((knob.blame(), small.blame()), (Blame::User, Blame::User));
    let peer = Error::peer(StatusCode::GONE, "gone");
    assert_eq!((peer.blame(), peer.status()), (Blame::Peer(StatusCode::GONE), StatusCode::GONE));
}
