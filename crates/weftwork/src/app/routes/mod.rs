//! Typed routes: the trait behind `#[derive(Routes)]`, and the functions that the derived code calls.

mod dispatch;
mod list;
mod match_error;
mod method_filter;
mod path;
mod query;

pub use dispatch::{RoutesHandler, routes};
pub use list::{Route, RouteList};
pub use match_error::{InvalidParam, MatchError};
pub(crate) use match_error::{allow, other_method};
pub use method_filter::MethodFilter;

/// Functions that the derived code calls. Not part of the API.
#[doc(hidden)]
pub mod derived {
    pub use super::list::{nested_pattern, path_pattern};
    pub use super::path::{PathWriter, capture, nested_path, split_segment};
    pub use super::query::{optional, repeated, required};
    pub use super::{MatchError, MethodFilter, Route, Routes};
    pub use crate::message::Blocking;
    pub use http::Method;

    /// Returns the error for a path that no route matches. `allowed` are the methods of routes with the same
    /// path.
    pub fn unmatched(allowed: MethodFilter) -> MatchError {
        MatchError::unmatched(allowed)
    }

    /// Returns a well-distributed number for the route `index` of the enum with number `seed`, for
    /// [`Blocking::Learn`].
    pub const fn route_id(seed: u64, index: u64) -> u64 {
        let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }

    /// Combines the number of a route with the number of the nest around it.
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

/// All routes of a site, as an enum. Derive this trait, and pass a function to [`routes`] to get a
/// [`Handler`](crate::Handler).
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
/// | attribute of a variant | meaning |
/// |---|---|
/// | `#[get("/users/{id}")]` | GET and HEAD. The field `id` is one segment of the path and is not empty. |
/// | `#[post(..)]`, `put`, `delete`, `patch`, `head`, `options`, `trace` | A route for that method. |
/// | `#[any(..)]` | Every method that no other route with this path takes, except CONNECT. CONNECT has no path and goes to the fallback. |
/// | `#[get("/files/{*path}")]` | `path` is the rest of the path with its slashes. It may be empty, unlike in a [`Router`](crate::Router). |
/// | `#[get("/search?{q}&{page}")]` | Query parameters. `T` is required, `Option<T>` may be missing or empty, `Vec<T>` may be repeated. |
/// | `#[get("/list?page-size={size}")]` | A parameter with another name than the field. |
/// | `#[nest("/admin")] Admin(Admin)` | The routes of another enum under a prefix. |
/// | `#[nest("/users/{id}")] User { id: u64, page: UserPage }` | A nest with captures in the prefix. |
/// | several attributes | Several paths for one variant. [`to_path`](Routes::to_path) writes the first. |
/// | `#[blocks]` | The route is known to block, so the engine does not learn that from its first request. |
/// | `#[unbuffered]` | The handler does not wait for the body. See [`unbuffered`](crate::unbuffered). |
///
/// A field is any type with `FromStr` and `Display`. Segments are matched from left to right: a literal before
/// a capture, and a capture before a rest. If a route has another method, the search goes on. Literal parts are
/// compared as they are sent, so `/%61dmin` is not `/admin`.
///
/// A nest answers every path under its prefix, including paths that a more literal route does not take. For
/// example, `#[get("/users/new")]` does not answer POST. The POST goes to `#[nest("/users/{id}")]`. If `new` is
/// not a valid `id`, the answer is 400, not 405.
///
/// The derived code refers to this library as `::weftwork`. If `Cargo.toml` gives the library another name, or
/// another crate re-exports it, put `extern crate other as weftwork;` at the root of your crate.
///
/// # At run time
///
/// - If no route matches, the answer is 404.
/// - If only routes for other methods match, the answer is 405 with `Allow`.
/// - OPTIONS gets 204 with `Allow`.
/// - HEAD is answered by the route of GET.
/// - If a capture or parameter is missing or does not parse, the answer is 400. The response is a
///   [`Problem`](crate::Problem) whose member `field` names the part.
///
/// As with [`Query`][crate::Query], an empty parameter is `None` for an `Option`. The value `on`, which a
/// checkbox sends, is true for a `bool` in a query.
///
/// # Round trips
///
/// [`to_path`](Routes::to_path) writes a path that is read back as the same value. Slashes, dots, percent signs
/// and text beyond ASCII are encoded. A capture that equals a literal route at the same position is encoded
/// differently, so that it does not match that route. In the following cases no encoding helps:
///
/// - A capture of one segment is never empty. A value that is written as nothing, for example an empty
///   `String`, leads to a path that no route matches or that another route matches. In a query, `Some` of such
///   a value is read back as `None`.
/// - The more literal route wins over an empty rest if that route ends in `/`. It wins over a rest if it has a
///   capture at the same position. It wins over a capture that equals its literal part if each character has a
///   single encoding, for example `%20` for a space.
/// - Clients follow links with GET. A link to an `#[any]` route leads to the `#[get]` route with the same path.
///   So does [`from_path`](Routes::from_path) with its [`method`](Routes::method), which is GET.
/// - Browsers and other clients that normalize paths resolve `.` and `..`, even if they are encoded as they are
///   here (URL standard, section 4.1). If such values come from outside, reject these two before you link to
///   them. This also holds for the segments of a rest.
/// - A [`Proxy`](crate::Proxy), and other software that treats two spellings of a letter as one (RFC 3986
///   section 6.2.2.2), takes a capture that equals a literal for that literal. `//` in a rest may become `/`.
///   Reject such values behind a proxy.
#[cfg_attr(not(feature = "json"), doc = include_str!("../../links_without_json.txt"))]
pub trait Routes: Sized + 'static {
    /// The routes in the order of their declaration. To print them, use [`list`](Routes::list).
    const ROUTES: &'static [Route];

    #[doc(hidden)]
    fn parse(method: MethodFilter, path: &[u8], query: &str) -> Result<Self, MatchError>;

    #[doc(hidden)]
    fn blocking_of(filter: MethodFilter, path: &[u8]) -> Option<Blocking>;

    #[doc(hidden)]
    fn reads_ahead(method: MethodFilter, path: &[u8]) -> Option<bool>;

    #[doc(hidden)]
    fn pattern(method: MethodFilter, path: &[u8]) -> Option<Cow<'static, str>>;

    #[doc(hidden)]
    fn write(&self, out: &mut PathWriter);

    /// Returns the method of the first attribute. For `#[any]` the method is GET, even if a `#[get]` route with
    /// the same path takes GET.
    fn method(&self) -> Method;

    /// Returns the route that matches `req`.
    ///
    /// # Errors
    /// Returns a [`MatchError`] if no route matches. A [`MatchError`] can be returned as a response.
    fn from_request(req: &Request<'_>) -> Result<Self, MatchError> {
        let (method, path, query) = req.method_path_and_query();
        Self::parse(MethodFilter::of(method), path, query)
    }

    /// Returns the route that matches `method` and `path`. `path` may have a query.
    ///
    /// # Errors
    /// Returns a [`MatchError`] if no route matches.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// # #[derive(Routes, Debug, PartialEq)]
    /// # enum Site { #[get("/users/{id}")] User { id: u64 } }
    /// assert_eq!(Site::from_path(&Method::GET, "/users/7"), Ok(Site::User { id: 7 }));
    /// assert!(Site::from_path(&Method::GET, "/users/seven").is_err());
    /// ```
    fn from_path(method: &Method, path: &str) -> Result<Self, MatchError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self::parse(MethodFilter::of(method), path.as_bytes(), query)
    }

    /// Returns the path of this route, encoded, with its query.
    fn to_path(&self) -> String {
        let mut out = PathWriter::default();
        self.write(&mut out);
        match out.finish() {
            path if path.is_empty() => "/".to_owned(),
            path => path,
        }
    }

    /// Returns the path for an attribute of HTML, as in `<a href="{}">`. The path cannot end the quotes and
    /// never leads to another host.
    fn href(&self) -> String {
        escaped(&local(self.to_path())).to_string()
    }

    /// Returns an HTML link to this route. `text` is escaped.
    fn link(&self, text: impl Display) -> String {
        format!("<a href=\"{}\">{}</a>", self.href(), escaped(&text.to_string()))
    }

    /// Returns a 303 redirect to this route. The client follows it with GET.
    fn redirect(&self) -> Response {
        Response::redirect(&local(self.to_path())).unwrap_or_else(IntoResponse::into_response)
    }

    /// Returns all routes for printing, including the routes of nests.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// # #[derive(Routes)]
    /// # enum Site { #[get("/users/{id}")] User { id: u64 } }
    /// assert_eq!(Site::list().to_string(), "GET  /users/{id}  User\n");
    /// ```
    fn list() -> RouteList {
        RouteList::of(Self::ROUTES)
    }
}

/// `//host` would be the address of another host. `/.//host` is a path of this host (URL standard, section
/// 4.5).
fn local(path: String) -> String {
    if path.starts_with("//") { format!("/.{path}") } else { path }
}
