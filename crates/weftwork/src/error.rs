//! What went wrong, who is to blame for it, and what to do.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use http::StatusCode;

use crate::message::{BodyError, IntoResponse, Problem, Response};

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
/// `?` makes one of every type that is an error of its own: [`std::error::Error`]` + Send + Sync + 'static`, such as
/// [`io::Error`], `serde_json::Error` or what `thiserror` derives. Like `anyhow::Error` it is not itself a
/// [`std::error::Error`], so that the conversion can be there for all of them. What is none either goes through
/// [`boxed`](Error::boxed): `anyhow::Error`, `eyre::Report`, `Box<dyn std::error::Error + Send + Sync>`, and texts. What
/// borrows (the error of a `Mutex`) has to be put into words: [`ours`](Error::ours).
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
/// A handler that returns it answers with the status that it blames on the client (a [`Problem`] or a [`BodyError`],
/// also beneath other errors, and after it was in a `Box<dyn Error + Send + Sync>`), or with 500. What is behind a 500 the
/// client is not told: the log gets it, with the request's method and path and all causes. See [what you see when something
/// fails](crate#what-you-see-when-something-fails).
///
/// A [`Response`] is one as well, and then the answer is that response, as it is: a redirect to a page where one logs in, or a
/// page of your own ([`response`](Error::response)).
///
/// In a `main` that returns `Result<(), Box<dyn std::error::Error>>` it goes through `?` as well; in one that returns
/// `anyhow::Result`, through `.map_err(anyhow::Error::msg)`.
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
    blame: Blame,
    message: Box<str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// What answers for it. In a mutex that nobody locks, because errors are `Sync`, and a body that is yet to be written is not.
    answer: Option<Box<Mutex<Response>>>,
}

impl Error {
    /// The client is to blame: it gets a [`Problem`] with `status`, and `message` as its detail.
    pub fn peer(status: StatusCode, message: impl Into<String>) -> Error {
        Error::new(Blame::Peer(status), message, None)
    }

    /// Something failed on our side: the client gets 500 and learns no more, the log gets `message`.
    pub fn ours(message: impl Into<String>) -> Error {
        Error::new(Blame::Ours, message, None)
    }

    /// The answer is this response, as it is, whatever its status. That was the handler's decision, so nothing is logged, and
    /// [`blame`](Error::blame) is the client with that status. It ends a handler, an argument ([`Extract`](crate::Extract)), a
    /// middleware, and whatever they call.
    ///
    /// `?` makes one of a [`Response`]; this is for a status, or a tuple, and for where no `?` is. In a box
    /// (`Box<dyn std::error::Error>`) the response is lost.
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
    pub fn response(answer: impl IntoResponse) -> Error {
        let response = answer.into_response();
        let status = response.status();
        let answer = Some(Box::new(Mutex::new(response)));
        Error { answer, ..Error::new(Blame::Peer(status), format!("answered with {status}"), None) }
    }

    /// From an error that `?` does not take, because it is no [`std::error::Error`] itself: `anyhow::Error`,
    /// `eyre::Report`, a box; also from a text. Else as by `?`.
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
    pub fn boxed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let boxed = error.into();
        if let Some(body) = beneath::<BodyError>(&*boxed) {
            let problem = body.problem().map(|problem| Box::new(problem) as _);
            return Error::new(body.blame(), body.to_string(), problem);
        }
        Error::new(blame_for(&*boxed), boxed.to_string(), Some(boxed))
    }

    fn new(
        blame: Blame,
        message: impl Into<String>,
        source: Option<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error { blame, message: message.into().into(), source, answer: None }
    }

    /// The status of what would be made of it.
    pub(crate) fn status_of(error: &(dyn StdError + 'static)) -> StatusCode {
        blame_for(error).status()
    }

    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::new(Blame::User, message, None)
    }

    pub(crate) fn knob(name: &str, value: &str, wanted: &str) -> Error {
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

    pub(crate) fn http(what: String, source: http::Error) -> Error {
        Error::new(Blame::Ours, what, Some(Box::new(source)))
    }

    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Error {
        Error::new(Blame::User, doing, Some(Box::new(source)))
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        self.blame
    }

    /// The status that a handler which returns this error answers with.
    pub fn status(&self) -> StatusCode {
        self.blame.status()
    }

    /// What was wrong, without its cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error beneath, where there is one.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// The problem that it was made of, also beneath other errors.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.causes().find_map(as_type)
    }

    /// The response that it was made of, which is then no longer in it.
    pub(crate) fn take_response(&mut self) -> Option<Response> {
        let answer = self.answer.take()?;
        Some(answer.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the client is told that is to blame, unless it is told a response.
    fn problem_of_peer(&self) -> Option<Problem> {
        let Blame::Peer(status) = self.blame else { return None };
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
    /// A [`Problem`] and a [`BodyError`], also beneath others, keep their status; all else is ours.
    fn from(error: E) -> Error {
        Error::boxed(error)
    }
}

/// `Err(Response::redirect("/login")?)?` ends a handler with it: see [`Error::response`].
impl From<Response> for Error {
    fn from(response: Response) -> Error {
        Error::response(response)
    }
}

impl Blame {
    fn status(self) -> StatusCode {
        match self {
            Blame::Peer(status) => status,
            Blame::User | Blame::Ours => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A [`Problem`] and a [`BodyError`] know whose fault they are.
fn blame_for(error: &(dyn StdError + 'static)) -> Blame {
    let of_problem = || beneath(error).map(|problem: &Problem| Blame::Peer(problem.status()));
    beneath(error).map(BodyError::blame).or_else(of_problem).unwrap_or(Blame::Ours)
}

fn beneath<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    chain(Some(error)).find_map(as_type)
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A message for the log. Clients may have a say in it, as what they sent may be quoted, and a line feed of theirs would look like
/// a line of the server's.
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

    /// All else stays as it is, quotes too: this is read by people.
    fn write_char(&mut self, c: char) -> fmt::Result {
        // Unicode's own ends of lines are no control characters.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            write!(self.0, "{}", c.escape_debug())
        } else {
            self.0.write_char(c)
        }
    }
}

/// An error and all that is beneath it.
fn chain<'e>(
    first: Option<&'e (dyn StdError + 'static)>,
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(first, |&error| error.source())
}

/// The error as this type, also where it is within one of I/O, whose own cause is what is beneath that.
fn as_type<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    error.downcast_ref().or_else(|| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref())
}

/// An [`Error`] in a box. The problem is beneath it, so that [`blame_for`] finds the status again.
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

/// As a box that is made of a text.
impl fmt::Debug for BoxedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// A client that is to blame still gets its status, and what its [`Problem`] says, once [`Error::boxed`] has it back.
impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.problem_of_peer() {
            Some(problem) => Box::new(BoxedError { text, problem }),
            None => text.into(),
        }
    }
}

/// As [`Error`] goes through `?` in a `main` that returns this.
impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        error.to_string().into()
    }
}

/// What was wrong, and every cause beneath it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let mut said = self.message.to_string();
        for cause in self.causes().map(ToString::to_string) {
            // Many errors say what is beneath them themselves.
            if !said.ends_with(&cause) {
                write!(f, ": {cause}")?;
                said = cause;
            }
        }
        Ok(())
    }
}

/// As [`Display`](fmt::Display): this is what a `main` that returns the error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    //! Does an error come out of a box as it went in?

    use super::*;
    use crate::{Request, TestClient};

    type Boxed = Box<dyn StdError + Send + Sync>;

    /// What a client is told of an error, and of the same one after it was in a box.
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
            (|| Error::peer(StatusCode::NOT_FOUND, "no such item"), 404),
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
        for make in [|| Error::ours("secret"), || Error::usage("secret"), response] {
            assert_eq!(Error::boxed(make()).blame(), Blame::Ours);
        }
    }
}
