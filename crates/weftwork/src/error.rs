//! What went wrong, who is to blame for it, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use http::StatusCode;

use crate::message::{BodyError, Problem};

/// `Result` with the library's [`Error`]; what handlers and `main` return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client: it gets this status.
    Peer(StatusCode),
    /// Whoever configured or called the library.
    User,
    /// A handler, the machine or the library: a client sees 500, the log the rest.
    Ours,
}

/// The error of handlers and of starting a server.
///
/// Every error type converts into it with `?`. A handler that returns it answers with the status that it
/// blames on the client, or with 500, whose cause is logged and not shown. Like `anyhow::Error` it is not
/// itself a [`std::error::Error`], so that the conversion can be there for all of them.
pub struct Error {
    blame: Blame,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// The client is to blame: it gets `status`, with `message` as the text.
    pub fn peer(status: StatusCode, message: impl Into<String>) -> Error {
        Error { blame: Blame::Peer(status), message: message.into(), source: None }
    }

    /// Something failed on our side: the client gets 500, the log gets `message`.
    pub fn ours(message: impl Into<String>) -> Error {
        Error { blame: Blame::Ours, message: message.into(), source: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error { blame: Blame::User, message: message.into(), source: None }
    }

    pub(crate) fn knob(name: &str, value: &str, wanted: &str) -> Error {
        Error::usage(format!("{name} is {value:?}, but has to be {wanted}"))
    }

    pub(crate) fn too_small(name: &str, value: u64, least: u64) -> Error {
        Error::usage(format!("{name} is {value}, but has to be at least {least}"))
    }

    pub(crate) fn too_large(name: &str, value: usize, limit: &str, most: usize) -> Error {
        Error::usage(format!(
            "{name} is {value}, which is more than {limit} ({most}): lower it, or raise {limit}"
        ))
    }

    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Error {
        Error { blame: Blame::User, message: doing.into(), source: Some(Box::new(source)) }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        self.blame
    }

    /// The status that a handler which returns this error answers with.
    pub fn status(&self) -> StatusCode {
        match self.blame {
            Blame::Peer(status) => status,
            Blame::User | Blame::Ours => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What was wrong, without its cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error beneath, where there is one.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    /// A [`Problem`], and a [`BodyError`] (also inside an [`io::Error`]), keep their status; all others are ours.
    fn from(error: E) -> Error {
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(error);
        if let Some(body) = body_error(boxed.as_ref()) {
            return Error { blame: body.blame(), message: body.to_string(), source: None };
        }
        let blame = match boxed.downcast_ref::<Problem>() {
            Some(problem) => Blame::Peer(problem.status()),
            None => Blame::Ours,
        };
        Error { blame, message: boxed.to_string(), source: Some(boxed) }
    }
}

fn body_error<'e>(error: &'e (dyn StdError + Send + Sync + 'static)) -> Option<&'e BodyError> {
    error.downcast_ref::<BodyError>().or_else(|| {
        let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<BodyError>()
    })
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        error.to_string().into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) if source.to_string() != self.message => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

/// As [`Display`](fmt::Display): this is what a `main` that returns the error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
