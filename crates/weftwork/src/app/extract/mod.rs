//! Extractors: handler arguments that are read from the request by their type.

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
use crate::message::{Request, RequiredState};

/// A value that a handler takes from the request as an argument.
///
/// | argument | source | if it fails |
/// |---|---|---|
/// | [`Path<T>`](crate::Path) | Captures of the path: one value, a tuple, or a struct by name | 400, or 500 if the route has other captures |
/// | [`Query<T>`](crate::Query) | The query, as a struct. A `Vec` takes a repeated key. `Vec<(String, String)>` takes all pairs. | 400 |
/// | [`Header<T>`](crate::Header) | Header fields, as a struct. `if_none_match` is `If-None-Match`. | 400 |
/// | [`Cookie<T>`](crate::Cookie) | Cookies, as a struct | 400 |
/// | [`Json<T>`](crate::Json) | A JSON body | 415, 413, 408, 400, 422 |
/// | [`Form<T>`](crate::Form) | The body of an HTML form | 415, 413, 408, 400, 422 |
/// | [`Bytes`](crate::Bytes), `String` | The raw body | 413, 408, 400 |
/// | [`State<T>`](crate::State) | A value given to [`Router::state`](crate::Router::state) | The server does not start |
/// | [`Result<T>`](crate::Result) | Any argument above. The handler decides what happens on failure. | |
///
/// A handler takes up to six arguments. `&mut Request` may come last. `&S` may come first if `S` is a state, so
/// methods of a struct are handlers. If an argument cannot be read, the answer is a
/// [`Problem`](crate::Problem). If one field is at fault, its member `field` names that field.
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
/// You can implement `Extract` for your own types. As `Result<T>`, an argument is optional:
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
    message = "`{Self}` cannot be read from a request",
    label = "not an argument of a handler",
    note = "arguments are `&mut Request`, `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `Header<T>`, `Cookie<T>`, `State<T>`, `Bytes` or `String`, or a `Result` of one",
    note = "for an optional argument, use a `Query<T>` whose fields are `Option`s, or a `Result<Query<T>>`, instead of `Option<Query<T>>`"
)]
pub trait Extract: Sized {
    /// Whether the value is read from the body. A body can be read only once, so a handler with two body
    /// arguments does not compile:
    ///
    /// ```compile_fail
    /// # use serde::Deserialize;
    /// # use weftwork::{Form, Json, Router};
    /// # #[derive(Deserialize)]
    /// # struct Note { text: String }
    /// let site = Router::new().post("/", |Json(one): Json<Note>, Form(other): Form<Note>| one.text + &other.text);
    /// ```
    ///
    /// Default: `false`. Set it to `true` in a type that reads the body.
    const IS_BODY: bool = false;

    /// Reads the value from the request.
    ///
    /// # Errors
    /// Returns an error if the value is missing or invalid. The error becomes the response: a
    /// [`Problem`](crate::Problem), or any [`Response`](crate::Response) (see
    /// [`Error::response`](crate::Error::response)).
    fn extract(req: &mut Request<'_>) -> Result<Self>;

    /// Returns the state that this argument requires, if any.
    #[doc(hidden)]
    fn need() -> Option<RequiredState> {
        None
    }
}

impl<T: Extract> Extract for Result<T> {
    const IS_BODY: bool = T::IS_BODY;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(T::extract(req))
    }

    fn need() -> Option<RequiredState> {
        T::need()
    }
}
