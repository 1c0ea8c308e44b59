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
    values::{Cookies, Header, Path, Query},
};

use crate::error::{Error, Result};
use crate::message::{Request, RequiredState};

/// A value that a handler takes from the request as an argument.
///
/// | argument | source | if it fails |
/// |---|---|---|
/// | [`Path<T>`][crate::Path] | Captures of the path: one value, a tuple, or a struct by name | 400, or 500 if the route has other captures |
/// | [`Query<T>`][crate::Query] | The query, as a struct. A `Vec` takes a repeated key. `Vec<(String, String)>` takes all pairs. | 400 |
/// | [`Header<T>`][crate::Header] | Header fields, as a struct. `if_none_match` is `If-None-Match`. | 400 |
/// | [`Cookies<T>`][crate::Cookies] | Cookies, as a struct | 400 |
/// | [`Json<T>`][crate::Json] | A JSON body | 415, 413, 408, 400, 422 |
/// | [`Form<T>`][crate::Form] | The body of an HTML form | 415, 413, 408, 400, 422 |
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
    note = "arguments are `&mut Request`, `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `Header<T>`, `Cookies<T>`, `State<T>`, `Bytes` or `String`",
    note = "an argument may be an `Option` or a `Result` of one"
)]
#[cfg_attr(not(feature = "json"), doc = include_str!("../../links_without_json.txt"))]
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
    /// The error is that of a constant: `two arguments read the body`. `cargo build` finds it, and `cargo check` does not.
    /// Traits cannot find it at the line of the handler: a bound cannot compare constants, and an associated type in place
    /// of this constant cannot have a default, so each type of yours would have to set that type.
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

    /// Returns whether the request has nothing to read the value from, so that an argument `Option<Self>` is `None`. An
    /// invalid value is an error also in an `Option`.
    ///
    /// Default: `false`. It is true without a query ([`Query`][crate::Query]), without a body
    /// ([`Json`][crate::Json], [`Form`][crate::Form], `Bytes`, `String`), without cookies and without captures.
    #[cfg_attr(not(feature = "json"), doc = include_str!("../../links_without_json.txt"))]
    fn is_missing(req: &Request<'_>) -> bool {
        let _ = req;
        false
    }

    /// Returns the states that [`extract`](Extract::extract) takes. If no router provides one, the server does not start.
    /// Without this function, the first request gets 500.
    ///
    /// Default: no states. A type that reads a [`State`] itself passes on what the state requires:
    ///
    /// ```
    /// use weftwork::{Extract, RequiredState, prelude::*};
    ///
    /// struct Users(Vec<String>);
    /// struct Admin(String);
    ///
    /// impl Extract for Admin {
    ///     fn extract(req: &mut Request) -> Result<Admin> {
    ///         let State(users) = State::<Users>::extract(req)?;
    ///         let name = users.0.first().context("there are no users")?;
    ///         Ok(Admin(name.clone()))
    ///     }
    ///
    ///     fn required_states() -> Vec<RequiredState> { State::<Users>::required_states() }
    /// }
    ///
    /// let site = || Router::new().get("/", |Admin(name): Admin| name);
    /// assert!(Server::bind("127.0.0.1:0")?.start(site()).is_err());
    /// let site = site().state(Users(vec!["ada".into()]));
    /// # assert_eq!(weftwork::TestClient::new(site).get("/").send().text(), "ada");
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    fn required_states() -> Vec<RequiredState> {
        Vec::new()
    }
}

/// Gives the handler the error instead of a response. `E` is [`Error`], or a type of yours that `?` converts it to.
impl<T: Extract, E: From<Error>> Extract for std::result::Result<T, E> {
    const IS_BODY: bool = T::IS_BODY;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(T::extract(req).map_err(E::from))
    }

    fn is_missing(req: &Request<'_>) -> bool {
        T::is_missing(req)
    }

    fn required_states() -> Vec<RequiredState> {
        T::required_states()
    }
}

/// Gives the handler `None` if the request has no such value: see [`is_missing`](Extract::is_missing).
///
/// ```
/// use weftwork::prelude::*;
///
/// #[derive(serde::Deserialize)]
/// struct Page { number: u32 }
///
/// let site = Router::new().get("/", |page: Option<Query<Page>>| page.map_or(1, |page| page.number).to_string());
/// let mut client = weftwork::TestClient::new(site);
/// assert_eq!(client.get("/").send().text(), "1");
/// assert_eq!(client.get("/?number=7").send().text(), "7");
/// assert_eq!(client.get("/?number=x").send().status, 400);
/// ```
impl<T: Extract> Extract for Option<T> {
    const IS_BODY: bool = T::IS_BODY;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        if T::is_missing(req) { Ok(None) } else { T::extract(req).map(Some) }
    }

    fn required_states() -> Vec<RequiredState> {
        T::required_states()
    }
}

/// Lets a handler use the value in the wrapper directly.
#[cfg(feature = "json")]
macro_rules! dereferences {
    ($($name:ident)*) => {
        $(
            impl<T> std::ops::Deref for $name<T> {
                type Target = T;

                fn deref(&self) -> &T {
                    &self.0
                }
            }

            impl<T> std::ops::DerefMut for $name<T> {
                fn deref_mut(&mut self) -> &mut T {
                    &mut self.0
                }
            }
        )*
    };
}

#[cfg(feature = "json")]
dereferences!(Cookies Form Header Json Path Query);
