//! Errors of handlers and of starting a server: what failed, who must act, and how a client is told.

#[cfg(feature = "anyhow")]
mod any;
mod context;

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use http::StatusCode;

use crate::message::{BodyError, IntoResponse, Problem, Response, WaitError};
pub use context::Context;

/// `Result` with the library's [`Error`]. Handlers and `main` return it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The party that must act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The client. It gets this status.
    Client(StatusCode),
    /// The developer who configured or called the library.
    Usage,
    /// A handler, the machine or the library. The client gets 500, and the log gets the details.
    Internal,
}

/// Error of handlers and of starting a server.
///
/// `?` converts any [`std::error::Error`]` + Send + Sync + 'static` to an `Error`: [`io::Error`], `serde_json::Error`,
/// or what `thiserror` derives. Like `anyhow::Error`, `Error` does not implement [`std::error::Error`] itself, because
/// that would rule out the conversion. If a type does not implement that trait either, use [`boxed`](Error::boxed): for
/// `eyre::Report`, `Box<dyn std::error::Error + Send + Sync>`, and texts. If an error borrows (such as
/// the error of a `Mutex`), describe it in words with [`internal`](Error::internal). With the feature `anyhow`, a handler
/// may return `anyhow::Result` as it is.
///
/// ```
/// use weftwork::{Error, Request, Result};
///
/// type Boxed = Box<dyn std::error::Error + Send + Sync>;
/// fn price(_: &str) -> Result<u32, Boxed> { Err("the shop is closed".into()) }
///
/// fn handler(req: &mut Request) -> Result<String> {
///     let number: u32 = req.body().text()?.trim().parse()?;    // two errors of their own
///     let price = price("tea").map_err(Error::boxed)?;         // one in a box
///     Ok(format!("{}\n", number * price))
/// }
/// # assert_eq!(weftwork::TestClient::new(handler).post("/").body("7").send().status, 500);
/// ```
///
/// If a handler returns an error, the response has the status that the error blames on the client, or 500. A
/// [`Problem`] and a [`BodyError`] class the client. They are found under other errors as well, and after a conversion
/// to `Box<dyn Error + Send + Sync>`. The cause of a 500 goes only to the log, with the method and path of the request,
/// all causes, and the line of the `?`. See [what you see when something fails](crate#what-you-see-when-something-fails).
///
/// `?` does not see that an error type of yours is also an [`IntoResponse`], and the response is 500. Return that type from
/// the handler (`Result<T, AppError>`), or add [`HandleError`](crate::middleware::HandleError) once around all handlers.
///
/// `?` also converts a [`Response`]. The client then gets that response unchanged, for example a redirect to a login
/// page, or a page of your own ([`response`](Error::response)).
///
/// In a `main` that returns `Result<(), Box<dyn std::error::Error>>`, use `?` as well. In a `main` that returns
/// `anyhow::Result`, use `.map_err(anyhow::Error::msg)`.
///
/// ```no_run
/// use weftwork::prelude::*;
///
/// fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
///     let address = std::env::var("ADDRESS")?;
///     Ok(Server::bind(address)?.run(|_: &mut Request| "hello")?)
/// }
/// ```
pub struct Error {
    class: ErrorClass,
    message: Box<str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Response to send for this error. The mutex is never locked. It is there because errors are `Sync`, and a
    /// response with a streamed body is not.
    answer: Option<Box<Mutex<Response>>>,
    /// Place in the source where the error was made or converted.
    location: Option<&'static Location<'static>>,
}

impl Error {
    /// Blames the client. The client gets a [`Problem`] with `status`, and `message` as its detail.
    #[track_caller]
    pub fn client(status: StatusCode, message: impl Into<String>) -> Error {
        Error::new(ErrorClass::Client(status), message, None)
    }

    /// Blames the server. The client gets 500 and no details, and the log gets `message`.
    #[track_caller]
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorClass::Internal, message, None)
    }

    /// Sends this response unchanged, whatever its status. The handler decided so, and nothing is logged.
    /// [`class`](Error::class) is the client with that status. The error ends a handler, an argument
    /// ([`Extract`](crate::Extract)), a middleware, and the functions that they call.
    ///
    /// `?` converts a [`Response`]. Use this function for a status or a tuple, and for code without `?`. Do not convert
    /// the error to `Box<dyn std::error::Error>`, because that loses the response.
    ///
    /// ```
    /// use weftwork::{Error, Extract, prelude::*};
    ///
    /// struct User(String);
    ///
    /// impl Extract for User {
    ///     fn extract(req: &mut Request) -> Result<User> {
    ///         match req.bearer_token() {
    ///             Some("secret") => Ok(User("ada".into())),
    ///             Some(_) => Err(Error::response((StatusCode::FORBIDDEN, html("<h1>Not you</h1>")))),
    ///             None => Err(Response::redirect("/login")?)?,
    ///         }
    ///     }
    /// }
    ///
    /// let site = Router::new().get("/account", |User(name): User| name);
    /// let mut client = weftwork::TestClient::new(site);
    /// assert_eq!(client.get("/account").send().header("location"), Some("/login"));
    /// let refused = client.get("/account").header("authorization", "Bearer x").send();
    /// assert_eq!((refused.status.as_u16(), refused.text()), (403, "<h1>Not you</h1>"));
    /// ```
    #[track_caller]
    pub fn response(answer: impl IntoResponse) -> Error {
        let response = answer.into_response();
        let status = response.status();
        let answer = Some(Box::new(Mutex::new(response)));
        Error { answer, ..Error::new(ErrorClass::Client(status), format!("answered with {status}"), None) }
    }

    /// Converts an error that `?` does not convert, because its type does not implement [`std::error::Error`]:
    /// `eyre::Report`, a box, a text, or `anyhow::Error` (see the feature `anyhow`). The result is the same as with `?`.
    ///
    /// ```
    /// # use weftwork::{Error, Result};
    /// # fn work() -> std::result::Result<u32, Box<dyn std::error::Error + Send + Sync>> { Ok(7) }
    /// # fn handler() -> Result<String> {
    /// let count = work().map_err(Error::boxed)?;
    /// # Ok(count.to_string())
    /// # }
    /// # handler().unwrap();
    /// ```
    #[track_caller]
    pub fn boxed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let boxed = error.into();
        if let Some(body) = find_source::<BodyError>(&*boxed) {
            let problem = body.problem().map(|problem| Box::new(problem) as _);
            return Error::new(body.class(), body.to_string(), problem);
        }
        Error::new(class_of(&*boxed), boxed.to_string(), Some(boxed))
    }

    #[track_caller]
    fn new(
        class: ErrorClass,
        message: impl Into<String>,
        source: Option<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        // A function that is passed by its name, as in `map_err(Error::boxed)`, has no other caller than itself.
        let location = Some(Location::caller()).filter(|caller| caller.file() != file!());
        Error { class, message: message.into().into(), source, answer: None, location }
    }

    /// Returns the status of an `Error` made of this error.
    pub(crate) fn status_of(error: &(dyn StdError + 'static)) -> StatusCode {
        class_of(error).status()
    }

    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::new(ErrorClass::Usage, message, None)
    }

    pub(crate) fn setting(name: &str, value: &str, wanted: &str) -> Error {
        Error::usage(format!("invalid {name} {value:?}: expected {wanted}"))
    }

    pub(crate) fn too_small(name: &str, value: u64, least: u64) -> Error {
        Error::usage(format!("invalid {name} {value}: must be at least {least}"))
    }

    pub(crate) fn too_large(name: &str, value: usize, limit: &str, most: usize) -> Error {
        Error::usage(format!(
            "invalid {name} {value}: must be at most {limit} ({most}), lower it or raise {limit}"
        ))
    }

    #[track_caller]
    pub(crate) fn http(what: String, source: http::Error) -> Error {
        Error::new(ErrorClass::Internal, what, Some(Box::new(source)))
    }

    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Error {
        Error::new(ErrorClass::Usage, doing, Some(Box::new(source)))
    }

    /// Returns who must act.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Returns the status of the response if a handler returns this error.
    pub fn status(&self) -> StatusCode {
        self.class.status()
    }

    /// Returns the message, without its cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the cause, if there is one.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// Returns the first cause that is an `E`.
    ///
    /// ```
    /// use weftwork::{Error, Problem, http::StatusCode};
    /// let error = Error::from(Problem::new(StatusCode::GONE)).context("cannot show the page");
    /// assert_eq!(error.downcast_ref::<Problem>().map(Problem::status), Some(StatusCode::GONE));
    /// ```
    pub fn downcast_ref<E: StdError + Send + Sync + 'static>(&self) -> Option<&E> {
        self.causes().find_map(as_type)
    }

    /// Returns the place in the source where `?` or a function of this type has made the error, if it is known. It is
    /// unknown for `map_err(Error::boxed)`. The log line of a failed handler ends with it.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Returns the problem among the causes.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.causes().find_map(as_type)
    }

    /// Takes the response out of the error.
    pub(crate) fn take_response(&mut self) -> Option<Response> {
        let answer = self.answer.take()?;
        Some(answer.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the problem to send to a client that is to class, unless a response is to be sent.
    fn client_problem(&self) -> Option<Problem> {
        let ErrorClass::Client(status) = self.class else { return None };
        if self.answer.is_some() {
            return None;
        }
        Some(self.problem().cloned().unwrap_or_else(|| Problem::new(status).detail(self.message())))
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        chain(self.source.as_deref().map(|source| source as _))
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    /// Keeps the status of a [`Problem`] or a [`BodyError`], also under other errors. All other errors class the
    /// server.
    #[track_caller]
    fn from(error: E) -> Error {
        Error::boxed(error)
    }
}

/// Allows `Err(Response::redirect("/login")?)?`, which ends a handler with that response. See [`Error::response`].
impl From<Response> for Error {
    #[track_caller]
    fn from(response: Response) -> Error {
        Error::response(response)
    }
}

impl ErrorClass {
    fn status(self) -> StatusCode {
        match self {
            ErrorClass::Client(status) => status,
            ErrorClass::Usage | ErrorClass::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Returns the class. A [`Problem`], a [`BodyError`] and a [`WaitError`] know theirs.
fn class_of(error: &(dyn StdError + 'static)) -> ErrorClass {
    let of_problem = || find_source(error).map(|problem: &Problem| ErrorClass::Client(problem.status()));
    let of_wait = || find_source(error).map(WaitError::class);
    find_source(error)
        .map(BodyError::class)
        .or_else(of_wait)
        .or_else(of_problem)
        .unwrap_or(ErrorClass::Internal)
}

fn find_source<'e, E: StdError + Send + Sync + 'static>(
    error: &'e (dyn StdError + 'static),
) -> Option<&'e E> {
    chain(Some(error)).find_map(as_type)
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Formats a message for the log on one line. A message may quote what a client sent, and a line feed of the client
/// would look like a new log line.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::write(&mut Escaping(f), format_args!("{}", self.0))
    }
}

struct Escaping<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| self.write_char(c))
    }

    /// Escapes control characters only, because people read this text.
    fn write_char(&mut self, c: char) -> fmt::Result {
        // The line separators of Unicode are not control characters.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            write!(self.0, "{}", c.escape_debug())
        } else {
            self.0.write_char(c)
        }
    }
}

/// Iterates over an error and its causes.
fn chain<'e>(
    first: Option<&'e (dyn StdError + 'static)>,
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(first, |&error| error.source())
}

/// Downcasts the error, also from within an I/O error. An I/O error does not list its inner error as a cause.
fn as_type<'e, E: StdError + Send + Sync + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    let inner = || error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref();
    let found = error.downcast_ref().or_else(inner);
    #[cfg(feature = "anyhow")]
    let found = found.or_else(|| any::downcast_ref(error));
    found
}

/// Takes an `E` out of its box.
fn take_type<E: StdError + Send + Sync + 'static>(
    error: Box<dyn StdError + Send + Sync>,
) -> Result<E, Box<dyn StdError + Send + Sync>> {
    #[cfg(feature = "anyhow")]
    let error = match any::take(error) {
        Ok(error) => return Ok(error),
        Err(error) => error,
    };
    error.downcast().map(|error| *error)
}

/// An [`Error`] in a box. The problem is its cause, so that [`class_of`] finds the status again.
struct BoxedError {
    text: String,
    problem: Problem,
}

impl StdError for BoxedError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.problem)
    }
}

impl fmt::Display for BoxedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Formats the text, like a box made of a text.
impl fmt::Debug for BoxedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Keeps the status and the [`Problem`] for a client that is to class, so that [`Error::boxed`] finds them again.
impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.client_problem() {
            Some(problem) => Box::new(BoxedError { text, problem }),
            None => text.into(),
        }
    }
}

/// Lets `?` convert the error in a `main` that returns this type.
impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        error.to_string().into()
    }
}

/// Formats the message and every cause.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let mut said = self.message.to_string();
        for cause in self.causes().map(ToString::to_string) {
            // Many errors include their cause in their own message.
            if !said.ends_with(&cause) {
                write!(f, ": {cause}")?;
                said = cause;
            }
        }
        Ok(())
    }
}

/// Formats as [`Display`](fmt::Display), because a `main` that returns the error prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    //! Tests that an error stays the same through a box.

    use super::*;
    use crate::{Request, TestClient};

    type Boxed = Box<dyn StdError + Send + Sync>;

    /// Returns what a client is told of an error, and of the same error after a conversion to a box.
    fn direct_and_boxed(make: fn() -> Error) -> [(StatusCode, String); 2] {
        fn boxed(error: Error) -> Result<(), Boxed> {
            Err(error)?
        }
        let direct = move |_: &mut Request<'_>| Err::<(), Error>(make());
        let through = move |_: &mut Request<'_>| boxed(make()).map_err(Error::boxed);
        let answers = [TestClient::new(direct).get("/").send(), TestClient::new(through).get("/").send()];
        answers.map(|answer| (answer.status, answer.text().to_owned()))
    }

    #[test]
    fn a_box_keeps_the_status_and_the_problem() {
        let makers: [(fn() -> Error, u16); 5] = [
            (|| Error::client(StatusCode::NOT_FOUND, "no such item"), 404),
            (|| Problem::new(StatusCode::CONFLICT).detail("taken").with("field", "name").into(), 409),
            (|| io::Error::other(Problem::new(StatusCode::BAD_GATEWAY)).into(), 502),
            (|| BodyError::Timeout.into(), 408),
            (|| BodyError::FieldTooLarge { field: "a".into(), limit: 1 }.into(), 413),
        ];
        for (make, status) in makers {
            let [direct, boxed] = direct_and_boxed(make);
            assert_eq!(direct.0, status);
            assert_eq!(boxed, direct);
            assert_eq!(Boxed::from(make()).to_string(), make().to_string());
            assert_eq!(Error::boxed(make()).to_string(), make().to_string(), "no cause is said twice");
        }
    }

    #[test]
    fn a_box_makes_no_client_guilty() {
        let response = || Error::response(StatusCode::FORBIDDEN);
        for make in [|| Error::internal("secret"), || Error::usage("secret"), response] {
            assert_eq!(Error::boxed(make()).class(), ErrorClass::Internal);
        }
    }
}
