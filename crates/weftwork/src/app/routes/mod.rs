//! Routes as values of an enum: what `#[derive(Routes)]` makes, and what it makes it of.

mod dispatch;
mod list;
mod miss;
mod path;
mod query;
mod verbs;

pub use dispatch::{Dispatch, routes};
pub use list::{Listed, Route};
pub use miss::{Malformed, Miss};
pub(crate) use miss::{allow, other_method};
pub use verbs::Verbs;

/// What the derive's code calls. No part of the API.
#[doc(hidden)]
pub mod derived {
    pub use super::list::{nested_pattern, path_pattern};
    pub use super::path::{PathWriter, capture, nested_path, split_segment};
    pub use super::query::{optional, repeated, required};
    pub use super::{Miss, Route, Routes, Verbs};
    pub use crate::message::Blocking;
    pub use http::Method;

    /// No route takes it; these methods would be taken.
    pub fn unmatched(allowed: Verbs) -> Miss {
        Miss::unmatched(allowed)
    }

    /// A number that names the route `index` of an enum whose own number is `seed`: well spread, as
    /// [`Blocking::Learn`] wants it.
    pub const fn route_id(seed: u64, index: u64) -> u64 {
        let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }

    /// What is known of a route inside of a nest: its own number, and the nest's.
    pub fn nested_blocking(seed: u64, inner: Blocking) -> Blocking {
        match inner {
            Blocking::Learn { route } => Blocking::Learn { route: route_id(seed, route) },
            known => known,
        }
    }
}

use std::borrow::Cow;
use std::fmt::Display;

use http::Method;
use path::PathWriter;

use crate::message::{Blocking, IntoResponse, Request, Response, escaped};

/// All routes of a site, as an enum. Derive it; [`routes`] makes a [`Handler`](crate::Handler) of it and a function.
///
/// ```
/// use weftwork::prelude::*;
///
/// #[derive(Routes)]
/// enum Site {
///     #[get("/")]
///     Home,
///     #[get("/users/{id}")]
///     User { id: u64 },
///     #[get("/search?{q}&{page}")]
///     Search { q: String, page: Option<u32> },
///     #[get("/files/{*path}")]
///     File { path: String },
///     #[nest("/admin")]
///     Admin(Admin),
/// }
///
/// #[derive(Routes)]
/// enum Admin {
///     #[get("/")]
///     Overview,
///     #[post("/users/{id}/ban")]
///     Ban { id: u64 },
/// }
///
/// fn site(route: Site, _: &mut Request) -> Result<Response> {
///     Ok(match route {
///         Site::Home => html(Site::User { id: 7 }.link("the first user")),
///         Site::User { id } => text(format!("user {id}\n")),
///         Site::Search { q, page } => text(format!("page {} of {q}\n", page.unwrap_or(1))),
///         Site::File { path } => text(format!("{path}\n")),
///         Site::Admin(Admin::Overview) => text("all is well\n"),
///         Site::Admin(Admin::Ban { id }) => Site::User { id }.redirect(),
///     })
/// }
///
/// let handler = routes(site);
/// # fn takes(_: impl Handler) {}
/// # takes(handler);
/// assert_eq!(Site::Admin(Admin::Ban { id: 7 }).to_path(), "/admin/users/7/ban");
/// assert_eq!(Site::Search { q: "a&b".into(), page: None }.to_path(), "/search?q=a%26b");
/// ```
///
/// # Attributes
///
/// | above a variant | means |
/// |---|---|
/// | `#[get("/users/{id}")]` | GET and HEAD; the field `id` is one segment of the path, not an empty one |
/// | `#[post(..)]`, `put`, `delete`, `patch`, `head`, `options`, `trace` | the same for that method |
/// | `#[any(..)]` | every method that no other route with this path takes; CONNECT has no path, and goes to the fallback |
/// | `#[get("/files/{*path}")]` | `path` is the rest, with its slashes; it may be empty, other than in a [`Router`](crate::Router) |
/// | `#[get("/search?{q}&{page}")]` | query parameters: `T` has to be there, `Option<T>` may be missing or empty, `Vec<T>` may be repeated |
/// | `#[get("/list?page-size={size}")]` | a parameter whose name is not the field's |
/// | `#[nest("/admin")] Admin(Admin)` | the routes of another enum, beneath a prefix |
/// | `#[nest("/users/{id}")] User { id: u64, page: UserPage }` | the same, with captures in the prefix |
/// | several of them | several ways in; [`to_path`](Routes::to_path) writes the first |
/// | `#[blocks]` | this route waits: its first request does not have to find that out |
/// | `#[unbuffered]` | its handler does not wait for the body: see [`unbuffered`](crate::unbuffered) |
///
/// A field is any type with `FromStr` and `Display`. Matching is by segment, from left to right, a literal
/// before a capture and a capture before a rest; among routes of other methods it goes on. Literal parts are compared
/// as they are sent, so `/%61dmin` is not `/admin`. A nest answers everything beneath its prefix, and with it what a
/// more literal route does not take: beside `#[get("/users/new")]` a POST there is for `#[nest("/users/{id}")]`, whose
/// answer is 400 where `new` is no `id`, and not 405.
///
/// The code that is derived names this library `::weftwork`. Where `Cargo.toml` gives it another name, or another crate
/// hands it on, `extern crate other as weftwork;` at the root of the crate brings that name back.
///
/// # At run time
///
/// No route: 404. Another method: 405 with `Allow`. OPTIONS: 204 with `Allow`. HEAD is answered by GET's route. A
/// capture or parameter that does not parse, or is missing: 400, as a [`Problem`](crate::Problem) whose member
/// `field` names it. As with [`Query`](crate::Query), an `Option` whose parameter is empty is `None`, and what a checkbox sends,
/// `on`, is true for a `bool` in a query.
///
/// # Round trips
///
/// What [`to_path`](Routes::to_path) writes is read back as the same value: slashes, dots, percent signs and text
/// beyond ASCII are encoded, and a capture that reads like a literal route beside it is encoded so that it is
/// not taken for it. Where no encoding helps there are exceptions:
///
/// - No capture of one segment is empty: a value that is written as nothing, as an empty `String` is, leads to a path that
///   no route takes, or another one. `Some` of such a value in a query is read back as `None`.
/// - The more literal route wins over an empty rest, if it ends in `/` there; over a rest, if it has a capture at
///   the same place; and over a capture that reads like its literal part, if each character of that has one encoding
///   alone: `%20` for a space.
/// - Links are followed by GET: that of an `#[any]` leads to the `#[get]` beside it, if they have the same path, and so
///   does [`from_path`](Routes::from_path) with its [`method`](Routes::method), which is GET.
/// - Browsers, and others that normalize paths, go from `.` and `..` to another place, also where they are encoded, as
///   they are here (URL standard, section 4.1). Where others choose such values, refuse these two before you link to
///   them, also as a segment of a rest.
/// - To a [`Proxy`](crate::Proxy), and to others that take two spellings of a letter for one (RFC 3986 section 6.2.2.2), a
///   capture that reads like a literal is that literal, and `//` in a rest may be `/`. Behind one, refuse such values.
pub trait Routes: Sized + 'static {
    /// The routes in the order of their declaration; see [`list`](Routes::list) for printing.
    const ROUTES: &'static [Route];

    #[doc(hidden)]
    fn parse(verb: Verbs, path: &[u8], query: &str) -> Result<Self, Miss>;

    #[doc(hidden)]
    fn blocking_of(verb: Verbs, path: &[u8]) -> Blocking;

    #[doc(hidden)]
    fn reads_ahead(verb: Verbs, path: &[u8]) -> Option<bool>;

    #[doc(hidden)]
    fn pattern(verb: Verbs, path: &[u8]) -> Option<Cow<'static, str>>;

    #[doc(hidden)]
    fn write(&self, out: &mut PathWriter);

    /// The method of this route, of its first attribute; GET for `#[any]`, also where a `#[get]` of the same path takes that.
    fn method(&self) -> Method;

    /// The route that `req` asks for.
    ///
    /// # Errors
    /// It asks for none of them; a [`Miss`] is an answer too.
    fn from_request(req: &Request<'_>) -> Result<Self, Miss> {
        let (method, path, query) = req.method_path_and_query();
        Self::parse(Verbs::of(method), path, query)
    }

    /// The route that a path, with its query if there is one, leads to.
    ///
    /// # Errors
    /// It leads to none of them.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// # #[derive(Routes, Debug, PartialEq)]
    /// # enum Site { #[get("/users/{id}")] User { id: u64 } }
    /// assert_eq!(Site::from_path(&Method::GET, "/users/7"), Ok(Site::User { id: 7 }));
    /// assert!(Site::from_path(&Method::GET, "/users/seven").is_err());
    /// ```
    fn from_path(method: &Method, path: &str) -> Result<Self, Miss> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self::parse(Verbs::of(method), path.as_bytes(), query)
    }

    /// The path of this route, encoded, with its query.
    fn to_path(&self) -> String {
        let mut out = PathWriter::default();
        self.write(&mut out);
        match out.finish() {
            path if path.is_empty() => "/".to_owned(),
            path => path,
        }
    }

    /// The path for an attribute of HTML: `<a href="{}">`. In its quotes it cannot end them, and it
    /// never leads to another host.
    fn href(&self) -> String {
        escaped(&local(self.to_path())).to_string()
    }

    /// A link to this route, as HTML; `text` is escaped.
    fn link(&self, text: impl Display) -> String {
        format!("<a href=\"{}\">{}</a>", self.href(), escaped(&text.to_string()))
    }

    /// 303 to this route: the client gets it with GET.
    fn redirect(&self) -> Response {
        Response::redirect(&local(self.to_path())).unwrap_or_else(IntoResponse::into_response)
    }

    /// Every route, those of nests included, for printing.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// # #[derive(Routes)]
    /// # enum Site { #[get("/users/{id}")] User { id: u64 } }
    /// assert_eq!(Site::list().to_string(), "GET  /users/{id}  User\n");
    /// ```
    fn list() -> Listed {
        Listed::of(Self::ROUTES)
    }
}

/// `//host` would be another host's address; `/.//host` is this one's path (as in the URL standard, section 4.5).
fn local(path: String) -> String {
    if path.starts_with("//") { format!("/.{path}") } else { path }
}
