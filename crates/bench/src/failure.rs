//! The reasons for which the bench ends early, each with its exit code.

use std::{fmt, io};

/// The reason: wrong arguments (exit 2), a failed step (exit 1), or Ctrl-C (exit 130).
#[derive(Debug)]
pub(crate) enum Failure {
    Usage(String),
    Run(String),
    Interrupted,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Names the step that failed.
    pub(crate) fn step(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Failure::Run(format!("{what}: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Run(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Failure::Run(error.to_string())
    }
}
