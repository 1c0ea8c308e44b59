//! The reasons for which the bench ends early, each with its exit code.

use std::{fmt, io};

/// The reason, with exit code 2, 1 or 130.
#[derive(Debug)]
pub enum Failure {
    /// Wrong arguments.
    Usage(String),
    /// A failed step.
    Run(String),
    /// Ctrl-C.
    Interrupted,
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Names the step that failed.
    pub fn step(what: impl fmt::Display, error: impl fmt::Display) -> Self {
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
