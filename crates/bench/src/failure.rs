//! Why did the bench end early, and with which exit code?

use std::{fmt, io};

/// What ended the run: the person's words (exit 2), the machine (exit 1), or Ctrl-C (exit 130).
#[derive(Debug)]
pub(crate) enum Failure {
    Usage(String),
    Run(String),
    Interrupted,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failed step, named so that the person knows which one it was.
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

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Failure::Usage(error.to_string())
    }
}
