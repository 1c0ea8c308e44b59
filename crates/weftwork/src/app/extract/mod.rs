//! Arguments of handlers that are taken from the request by their type.

mod body;
mod handler;
#[cfg(feature = "json")]
mod pairs;
mod state;
#[cfg(test)]
mod tests;
#[cfg(feature = "json")]
mod values;

pub use handler::{IntoHandler, handler};
pub use state::State;
#[cfg(feature = "json")]
pub use {
    body::{Form, Json},
    values::{Cookie, Header, Path, Query},
};

use crate::error::Result;
use crate::message::{Need, Request};

/// A value that is taken from a request: an argument of a handler.
///
/// | argument | is taken from | otherwise |
/// |---|---|---|
/// | [`Path<T>`](crate::Path) | captures of the path: one value, a tuple of them, or a struct by name | 400; 500 where the route has others |
/// | [`Query<T>`](crate::Query) | the query, as a struct in which a `Vec` takes a key that comes often; all pairs as `Vec<(String, String)>` | 400 |
/// | [`Header<T>`](crate::Header) | fields, as a struct: `if_none_match` is `If-None-Match` | 400 |
/// | [`Cookie<T>`](crate::Cookie) | cookies, as a struct | 400 |
/// | [`Json<T>`](crate::Json) | a body of JSON | 415, 413, 408, 400, 422 |
/// | [`Form<T>`](crate::Form) | a body as HTML forms send it | 415, 413, 408, 400, 422 |
/// | [`Bytes`](crate::Bytes), `String` | the body as it came | 413, 408, 400 |
/// | [`State<T>`](crate::State) | what [`Router::state`](crate::Router::state) was given | the server does not start |
/// | [`Result<T>`](crate::Result) | any of them, where the handler says what happens if it cannot be taken | |
///
/// A handler takes up to six of them; `&mut Request` may come last, and `&S` first, where `S` is a state: so methods
/// of a struct are handlers. What cannot be taken is answered with a [`Problem`](crate::Problem) whose
/// member `field` names it, where it is one field.
///
/// ```
/// use serde::Deserialize;
/// use weftwork::prelude::*;
/// use weftwork::{Json, Path, Query};
///
/// #[derive(Deserialize)]
/// struct Page { page: Option<u32>, tag: Vec<String> }
///
/// #[derive(Deserialize)]
/// struct Note { text: String }
///
/// fn list(Path(user): Path<u64>, Query(q): Query<Page>) -> String {
///     format!("page {} of {user}, {} tags\n", q.page.unwrap_or(1), q.tag.len())
/// }
///
/// fn add(Path((user, day)): Path<(u64, String)>, Json(note): Json<Note>) -> (StatusCode, String) {
///     (StatusCode::CREATED, format!("{user} on {day}: {}\n", note.text))
/// }
///
/// let site = Router::new().get("/{user}/notes", list).post("/{user}/notes/{day}", add);
/// # let mut client = weftwork::TestClient::new(site);
/// # assert_eq!(client.get("/7/notes?tag=a&tag=b").send().text(), "page 1 of 7, 2 tags\n");
/// # assert_eq!(client.get("/7/notes").send().text(), "page 1 of 7, 0 tags\n");
/// # assert_eq!(client.post("/7/notes/monday").json(&serde_json::json!({"text": "x"})).send().text(), "7 on monday: x\n");
/// # assert_eq!(client.get("/x/notes?tag=a").send().status, 400);
/// ```
///
/// A type of your own is an argument, too, and as `Result<T>` it is one that may be missing:
///
/// ```
/// use weftwork::{Extract, prelude::*};
///
/// struct User(String);
///
/// impl Extract for User {
///     fn extract(req: &mut Request) -> Result<User> {
///         match req.bearer_token() {
///             Some("secret") => Ok(User("ada".into())),
///             _ => Err(Problem::new(StatusCode::UNAUTHORIZED).detail("log in first"))?,
///         }
///     }
/// }
///
/// fn account(User(name): User) -> String {
///     format!("hello {name}\n")
/// }
///
/// fn home(user: Result<User>) -> Result<Response> {
///     match user {
///         Ok(User(name)) => Ok(Response::text(format!("hello {name}\n"))),
///         Err(_) => Response::redirect("/login"),
///     }
/// }
///
/// let site = Router::new().get("/account", account).get("/", home);
/// # let mut client = weftwork::TestClient::new(site);
/// # assert_eq!(client.get("/account").send().status, 401);
/// # assert_eq!(client.get("/").send().header("location"), Some("/login"));
/// # assert_eq!(client.get("/").header("authorization", "Bearer secret").send().text(), "hello ada\n");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a request",
    label = "no argument of a handler",
    note = "arguments are `&mut Request`, `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `Header<T>`, `Cookie<T>`, `State<T>`, `Bytes` or `String`, or a `Result` of one",
    note = "what may be missing is no `Option<Query<T>>`, but a `Query<T>` whose fields are `Option`s, or a `Result<Query<T>>`"
)]
pub trait Extract: Sized {
    /// Whether it is made of the body. A body is read once, so a handler that takes two of those does not compile:
    ///
    /// ```compile_fail
    /// # use serde::Deserialize;
    /// # use weftwork::{Form, Json, Router};
    /// # #[derive(Deserialize)]
    /// # struct Note { text: String }
    /// let site = Router::new().post("/", |Json(one): Json<Note>, Form(other): Form<Note>| one.text + &other.text);
    /// ```
    ///
    /// Default: no. A type of your own that reads the body says yes.
    const IS_BODY: bool = false;

    /// Takes the value.
    ///
    /// # Errors
    /// It is not there, or not what the type wants; the error is the answer: a [`Problem`](crate::Problem), or a
    /// [`Response`](crate::Response) of its own ([`Error::response`](crate::Error::response)).
    fn extract(req: &mut Request<'_>) -> Result<Self>;

    /// The state that it is, if it is one.
    #[doc(hidden)]
    fn need() -> Option<Need> {
        None
    }
}

impl<T: Extract> Extract for Result<T> {
    const IS_BODY: bool = T::IS_BODY;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(T::extract(req))
    }

    fn need() -> Option<Need> {
        T::need()
    }
}
