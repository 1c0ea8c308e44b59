//! Routes that are put together while the program runs.

mod allowed;
mod build;
mod dispatch;
mod error;
mod pattern;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::Method;

pub(crate) use dispatch::whole_pattern;
pub use error::{PatternFault, RouteError};
pub(super) use pattern::encoded;

use super::extract::IntoHandler;
use crate::message::{Handler, Shared};
use build::RouteTable;

/// Paths and their handlers, for closures and for what is only known when the program runs. Where the routes are
/// known beforehand, [`Routes`](crate::Routes) checks them, and the links to them, when the program is compiled.
///
/// ```
/// use weftwork::prelude::*;
///
/// fn greet(req: &mut Request) -> String {
///     format!("hello, {}\n", req.param("name").unwrap_or_default())
/// }
///
/// let site = Router::new()
///     .get("/", || "welcome\n")
///     .get("/hello/{name}", greet)
///     .post("/echo", |req: &mut Request| -> Result<Vec<u8>> { Ok(req.body().bytes()?.into()) })
///     .fallback(|| (StatusCode::NOT_FOUND, "no such page\n"));
/// # let mut client = weftwork::TestClient::new(site);
/// # assert_eq!(client.get("/hello/you").send().text(), "hello, you\n");
/// # assert_eq!(client.get("/hello").send().text(), "no such page\n");
/// ```
///
/// # Paths
///
/// `{name}` is one segment, or a part of one (`/{name}.json`); `{*name}` is the rest, at the end. Neither matches
/// nothing (in an enum of [routes](crate::Routes) the rest does). A literal goes before a capture; each method has routes of its own. A path with and
/// one without a slash at its end are two paths. Literal parts and the prefixes of mounts are compared as they are sent, so
/// `/%61dmin` is not `/admin`; captures are decoded.
///
/// At one place there may be literals, and beside them `{name}` or `{*name}`, not both; and captures with something behind them
/// (`{name}.json`), or with something before (`v{name}`), or a single one with both. `{*name}` goes with none that has something
/// behind. Other routes conflict, also where one is the more literal: for `/a/{x}/c` and `/a/{*rest}`, [mount](Router::mount) at
/// `/a` what is to have the rest; it is asked where no route takes the path.
///
/// # Handlers
///
/// A function of `&mut Request`, any [`Handler`], or a function of typed arguments: see [`Extract`](crate::Extract).
/// What it returns is an [`IntoResponse`](crate::IntoResponse). One that returns
/// [`Response::decline`](crate::Response::decline) leaves the request to the route for any method of this path, to the
/// next less literal one, then to the mounts, then to the fallback.
///
/// # At run time
///
/// No route: the fallback, or 404. Another method: 405 with `Allow`, once the mounts were asked. OPTIONS: 204 with
/// `Allow`. HEAD is answered by GET's handler. Routes that conflict are an error when a server starts with them
/// ([`Handler::check`] asks earlier); a router that is called all the same answers 500.
///
/// [`with`](crate::HandlerExt::with) puts middleware around one handler, or around a whole router; that one is then
/// mounted.
#[derive(Default)]
pub struct Router {
    routes: Vec<Entry>,
    mounts: Vec<Mount>,
    fallback: Option<Arc<dyn Handler>>,
    states: Vec<Shared>,
    table: OnceLock<RouteTable>,
}

/// A route.
struct Entry {
    /// None: any.
    method: Option<Method>,
    path: String,
    handler: Arc<dyn Handler>,
    /// Of the routers that it was nested by, the inner one's first.
    states: Vec<Shared>,
}

/// A handler for everything beneath a prefix.
struct Mount {
    prefix: String,
    handler: Arc<dyn Handler>,
    states: Vec<Shared>,
    /// Whether it sees what is behind the prefix alone.
    strips: bool,
}

impl Router {
    /// A router without routes: 404 for everything.
    pub fn new() -> Router {
        Router::default()
    }

    /// GET and HEAD of `path`.
    #[must_use]
    pub fn get<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::GET, path, handler)
    }

    /// POST to `path`.
    #[must_use]
    pub fn post<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::POST, path, handler)
    }

    /// PUT to `path`.
    #[must_use]
    pub fn put<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::PUT, path, handler)
    }

    /// DELETE of `path`.
    #[must_use]
    pub fn delete<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::DELETE, path, handler)
    }

    /// PATCH of `path`.
    #[must_use]
    pub fn patch<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::PATCH, path, handler)
    }

    /// HEAD of `path`, where GET's handler shall not answer it.
    #[must_use]
    pub fn head<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::HEAD, path, handler)
    }

    /// OPTIONS of `path`, instead of the answer with `Allow`.
    #[must_use]
    pub fn options<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::OPTIONS, path, handler)
    }

    /// Every method of `path` that has no route of its own there; CONNECT has no path, and goes to the
    /// [fallback](Router::fallback).
    #[must_use]
    pub fn any<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.add(None, path, handler)
    }

    /// `method` of `path`; any token is a method. A route for CONNECT is an error, as that has no path: answer it in the
    /// [fallback](Router::fallback).
    #[must_use]
    pub fn route<M>(self, method: Method, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.add(Some(method), path, handler)
    }

    fn add<M>(mut self, method: Option<Method>, path: &str, handler: impl IntoHandler<M>) -> Router {
        let (path, handler) = (path.to_owned(), handler.into_handler());
        self.routes.push(Entry { method, path, handler, states: Vec::new() });
        self.changed()
    }

    /// The routes of `router` beneath `prefix`. They are as good as written here: its `/` is the prefix, and its
    /// handlers see the whole path. Its fallback is asked beneath the prefix. That may have captures, where `router` has
    /// neither a fallback nor mounts. A router with middleware around it is no router any more, as its routes are behind that and
    /// can no longer be told apart from here: [`mount`](Router::mount) it.
    #[must_use]
    pub fn nest(mut self, prefix: &str, router: Router) -> Router {
        // Whoever looks for one takes the first here, and of two of one type that is the later.
        let states: Vec<Shared> = router.states.into_iter().rev().collect();
        let inherited = |own: Vec<Shared>| own.into_iter().chain(states.iter().cloned()).collect();
        for Entry { method, path, handler, states } in router.routes {
            let (path, states) = (pattern::join(prefix, &path), inherited(states));
            self.routes.push(Entry { method, path, handler, states });
        }
        for mount in router.mounts {
            let (prefix, states) = (pattern::join(prefix, &mount.prefix), inherited(mount.states));
            self.mounts.push(Mount { prefix, states, ..mount });
        }
        if let Some(handler) = router.fallback {
            let (prefix, states) = (prefix.to_owned(), inherited(Vec::new()));
            self.mounts.push(Mount { prefix, handler, states, strips: false });
        }
        self.changed()
    }

    /// Everything beneath `prefix` that no route takes: [`files`](crate::files), [`routes`](crate::routes), another
    /// router behind its own middleware. It sees what is behind the prefix as the path. Longer prefixes are asked
    /// first, and among equal ones the earlier; one that declines leaves the request to the next. A route with a capture in
    /// that place takes what it matches before any mount: `/{page}` takes `/static`, and `/{page}/{part}` all that is one
    /// segment beneath it.
    ///
    /// A router that is mounted sees the [states](Router::state) of this one, also from behind middleware of its own.
    ///
    /// Links that a mounted enum writes do not know of the prefix: mount it at `/`, or use `#[nest]`.
    #[must_use]
    pub fn mount<M>(mut self, prefix: &str, handler: impl IntoHandler<M>) -> Router {
        let (prefix, handler) = (prefix.to_owned(), handler.into_handler());
        self.mounts.push(Mount { prefix, handler, states: Vec::new(), strips: true });
        self.changed()
    }

    /// Answers what no route and no mount takes; instead of 404, not of 405.
    #[must_use]
    pub fn fallback<M>(mut self, handler: impl IntoHandler<M>) -> Router {
        self.fallback = Some(handler.into_handler());
        self.changed()
    }

    /// A value that all handlers of this router share, by [`State`](crate::State) or as methods: one of each type.
    /// What the rest of the program shares as well, a thread of its own say, is given as its `Arc<T>`, and taken as `T`.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use weftwork::prelude::*;
    ///
    /// #[derive(Default)]
    /// struct App { visits: AtomicU64 }
    ///
    /// impl App {
    ///     fn visit(&self, _: &mut Request) -> String {
    ///         format!("visit {}\n", self.visits.fetch_add(1, Ordering::Relaxed) + 1)
    ///     }
    /// }
    ///
    /// let site = Router::new().get("/", App::visit).state(App::default());
    /// # let mut client = weftwork::TestClient::new(site);
    /// # assert_eq!(client.get("/").send().text(), "visit 1\n");
    /// # assert_eq!(client.get("/").send().text(), "visit 2\n");
    /// ```
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Router {
        self.states.push(Arc::new(value));
        self.changed()
    }

    fn changed(mut self) -> Router {
        self.table = OnceLock::new();
        self
    }

    /// What is wrong with the routes; nothing, one would hope. A state that is missing is told here as well, and may
    /// still be given by a router in which this one is mounted.
    pub fn errors(&self) -> &[RouteError] {
        &self.table().errors
    }

    fn table(&self) -> &RouteTable {
        self.table.get_or_init(|| RouteTable::new(self))
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self
            .routes
            .iter()
            .map(|route| format!("{} {}", route.method.as_ref().map_or("any", Method::as_str), route.path));
        f.debug_list().entries(routes).entries(self.mounts.iter().map(|mount| &mount.prefix)).finish()
    }
}
