//! Adds to an error what the program was doing.

use std::error::Error as StdError;
use std::fmt;

use super::{Error, Result, take_type};

/// Adds to an error what the program was doing, for the log. A [`Result`](std::result::Result) whose error `?` converts
/// has these methods, an `Option`, and [`Error`] itself ([`Error::context`]).
///
/// The status stays. A client never sees the added text of a 500, and of its own mistakes it sees the
/// [`Problem`](crate::Problem) as before.
///
/// ```
/// use weftwork::prelude::*;
///
/// fn motd(_: &mut Request) -> Result<String> {
///     Ok(std::fs::read_to_string("/no/such/file").context("cannot read the message of the day")?)
/// }
/// # assert_eq!(weftwork::TestClient::new(motd).get("/").send().status, 500);
/// # let error = std::fs::read_to_string("/no/such/file").context("cannot read the message").unwrap_err();
/// # assert!(error.to_string().starts_with("cannot read the message: No such file"));
/// ```
pub trait Context<T>: Sized {
    /// Adds a text in front of the message of the error.
    ///
    /// # Errors
    /// The value is an error, or `None`.
    #[track_caller]
    fn context(self, doing: impl fmt::Display) -> Result<T>;

    /// Adds a text that is only made if there is an error.
    ///
    /// # Errors
    /// The value is an error, or `None`.
    #[track_caller]
    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    #[track_caller]
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(error.into().context(doing)),
        }
    }

    #[track_caller]
    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(error.into().context(doing())),
        }
    }
}

/// `None` becomes an error of the server with that text. For a 404, use `ok_or` and a [`Problem`](crate::Problem).
impl<T> Context<T> for Option<T> {
    #[track_caller]
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        match self {
            Some(value) => Ok(value),
            None => Err(Error::internal(doing.to_string())),
        }
    }

    #[track_caller]
    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        match self {
            Some(value) => Ok(value),
            None => Err(Error::internal(doing().to_string())),
        }
    }
}

impl Error {
    /// Adds what was being done, in front of the message. The class and the response stay. See [`Context`].
    ///
    /// ```
    /// use weftwork::Error;
    /// assert_eq!(Error::boxed("no route to host").context("cannot reach the shop").to_string(), "cannot reach the shop: no route to host");
    /// ```
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Error {
        let (whole, problem) = (self.to_string(), self.client_problem());
        let source = self.source.take().filter(|source| source.to_string() == *self.message);
        let source = match (source, problem) {
            (Some(source), _) => source,
            (None, Some(problem)) => Box::new(problem),
            (None, None) => whole.into(),
        };
        Error { message: doing.to_string().into(), source: Some(source), ..self }
    }

    /// Takes the error out that `?` has converted, if it is an `E`. Its text and place remain.
    pub(crate) fn take<E: StdError + Send + Sync + 'static>(&mut self) -> Option<E> {
        let text = self.to_string();
        match take_type(self.source.take()?) {
            Ok(error) => {
                self.message = text.into();
                Some(error)
            }
            Err(source) => {
                self.source = Some(source);
                None
            }
        }
    }
}
