//! The router: routes that are put together at run time.

mod allowed;
mod build;
mod dispatch;
mod error;
mod nest;
mod pattern;
pub mod routing;
#[cfg(test)]
mod tests;

use std::any::{TypeId, type_name};
use std::fmt;
use std::sync::{Arc, OnceLock};

use http::Method;

pub(crate) use dispatch::whole_pattern;
pub use error::{PatternFault, RouteError};
pub use nest::Nest;
pub(super) use pattern::encoded;

use super::extract::IntoHandler;
use crate::message::{Handler, Shared};
use build::RouteTable;

/// Maps methods and paths to handlers at run time. Use it for closures, and for routes that are only known when
/// the program runs. If the routes are known beforehand, use [`Routes`](crate::Routes): the compiler then
/// checks the routes and the links to them.
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
/// `{name}` matches one segment, or part of one (`/{name}.json`). `{*name}` matches the rest of the path and
/// must come last. Neither matches an empty string, except `{*name}` in an enum of [routes](crate::Routes). A
/// literal takes precedence over a capture. Each method has its own routes. A path with a slash at its end and
/// a path without are two paths.
///
/// The router compares literal parts and the prefixes of mounts with the path as the client sent it. `/%61dmin`
/// is therefore not `/admin`, unless the path leads to a [`Proxy`](crate::Proxy). Captures are decoded.
///
/// One position of a path may have, side by side:
///
/// - Literals.
/// - `{name}` or `{*name}`, but not both.
/// - Captures with a suffix (`{name}.json`), or captures with a prefix (`v{name}`), or a single capture with
///   both. `{*name}` cannot be combined with a capture that has a suffix.
///
/// Other routes conflict, even if one is more literal than the other. For `/a/{x}/c` and `/a/{*rest}`,
/// [mount](Router::mount) the handler of the rest at `/a`. The router calls a mount if no route matches.
///
/// Two methods of one path are two routes: `.get("/x", list).post("/x", add)`, or `.path("/x", get(list).post(add))` with
/// [`routing`](crate::routing).
///
/// # Handlers
///
/// A handler is a function of `&mut Request`, any [`Handler`], or a function of typed arguments (see
/// [`Extract`](crate::Extract)). It returns an [`IntoResponse`](crate::IntoResponse). If a handler returns
/// [`Response::decline`](crate::Response::decline), the router tries the route for any method of this path,
/// then the next less literal route, then the mounts, then the fallback.
///
/// # At run time
///
/// - If no route matches, the fallback answers, or 404.
/// - If only routes for other methods match, the router first tries the mounts, then answers 405 with `Allow`.
/// - OPTIONS gets 204 with `Allow`.
/// - HEAD is answered by the handler of GET.
/// - If routes conflict, the server does not start. [`Handler::check`] reports the conflict earlier. A router
///   with conflicts that is called anyway answers 500.
///
/// [`with`](crate::HandlerExt::with) puts middleware around one handler or around a whole router.
/// [Nest](Router::nest) or [mount](Router::mount) a router with middleware.
#[derive(Default)]
pub struct Router {
    routes: Vec<Entry>,
    /// Errors that were found while the router was put together.
    found_errors: Vec<RouteError>,
    mounts: Vec<Mount>,
    fallback: Option<Arc<dyn Handler>>,
    states: Vec<Shared>,
    table: OnceLock<RouteTable>,
}

/// One route.
#[derive(Clone)]
struct Entry {
    /// `None` matches any method.
    method: Option<Method>,
    path: String,
    handler: Arc<dyn Handler>,
    /// States of the routers that this route was nested in, the innermost router first.
    states: Vec<Shared>,
}

/// A handler for every path under a prefix.
#[derive(Clone)]
struct Mount {
    prefix: String,
    handler: Arc<dyn Handler>,
    states: Vec<Shared>,
    /// Whether the handler sees the path without the prefix. The fallback of a nested router sees the whole path.
    strips: bool,
}

impl Router {
    /// Creates a router without routes, which answers 404 to every request.
    pub fn new() -> Router {
        Router::default()
    }

    /// Adds a route for GET and HEAD.
    #[must_use]
    pub fn get<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::GET, path, handler)
    }

    /// Adds a route for POST.
    #[must_use]
    pub fn post<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::POST, path, handler)
    }

    /// Adds a route for PUT.
    #[must_use]
    pub fn put<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::PUT, path, handler)
    }

    /// Adds a route for DELETE.
    #[must_use]
    pub fn delete<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::DELETE, path, handler)
    }

    /// Adds a route for PATCH.
    #[must_use]
    pub fn patch<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::PATCH, path, handler)
    }

    /// Adds a route for HEAD, used instead of the handler of GET.
    #[must_use]
    pub fn head<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::HEAD, path, handler)
    }

    /// Adds a route for OPTIONS, used instead of the 204 with `Allow`.
    #[must_use]
    pub fn options<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.route(Method::OPTIONS, path, handler)
    }

    /// Adds a route for every method that has no route of its own at `path`, except CONNECT. CONNECT has no
    /// path and goes to the [fallback](Router::fallback).
    #[must_use]
    pub fn any<M>(self, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.add(None, path, handler)
    }

    /// Adds a route for `method`, which may be any token. A route for CONNECT is an error, because CONNECT has
    /// no path. Answer CONNECT in the [fallback](Router::fallback).
    #[must_use]
    pub fn route<M>(self, method: Method, path: &str, handler: impl IntoHandler<M>) -> Router {
        self.add(Some(method), path, handler)
    }

    fn add<M>(mut self, method: Option<Method>, path: &str, handler: impl IntoHandler<M>) -> Router {
        let (path, handler) = (path.to_owned(), Arc::new(handler.into_handler()));
        self.routes.push(Entry { method, path, handler, states: Vec::new() });
        self.changed()
    }

    /// Adds the routes of `router` under `prefix`. The result is the same as adding them to this router: the
    /// inner `/` is the prefix itself, and the handlers see the whole path. The inner fallback answers for
    /// paths under the prefix. The prefix may have captures if `router` has neither a fallback nor mounts.
    ///
    /// A router with middleware around it (`api.with(middleware)`) is [mounted](Router::mount) instead: the middleware runs
    /// for every path under the prefix that no route of this router matches, and the handlers see the path without the
    /// prefix. Such a prefix has no captures, and [`routes`](Router::routes) does not list it.
    ///
    /// ```
    /// use weftwork::middleware::Cors;
    /// use weftwork::prelude::*;
    ///
    /// let api = Router::new().get("/users/{id}", |Path(id): Path<u64>| id.to_string());
    /// let site = Router::new().get("/", || "home").nest("/api", api.with(Cors::any_origin()));
    /// # let answer = weftwork::TestClient::new(site).get("/api/users/7").header("origin", "https://a.example").send();
    /// # assert_eq!((answer.text(), answer.header("access-control-allow-origin")), ("7", Some("*")));
    /// ```
    #[must_use]
    pub fn nest(self, prefix: &str, router: impl Nest) -> Router {
        router.add_to(self, prefix).changed()
    }

    /// Adds the routes, mounts and the fallback of `router` to this one. Its [states](Router::state) stay with its own
    /// handlers. If both routers have a fallback, the server does not start.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// let users = Router::new().get("/users", |State(name): State<String>| name.to_string()).state(String::from("ada"));
    /// let site = Router::new().get("/", || "home").merge(users);
    /// # assert_eq!(weftwork::TestClient::new(site).get("/users").send().text(), "ada");
    /// ```
    #[must_use]
    pub fn merge(mut self, router: Router) -> Router {
        // The fallback of a router that was merged before is a mount.
        let is_fallback = |mount: &Mount| !mount.strips && mount.prefix == "/";
        let has_fallback =
            |router: &Router| router.fallback.is_some() || router.mounts.iter().any(is_fallback);
        if has_fallback(&self) && has_fallback(&router) {
            self.found_errors.push(RouteError::TwoFallbacks);
        }
        self.nest("/", router)
    }

    /// Lists the routes in the order in which they were added, nested ones included: the method (`None` is any method)
    /// and the path with its prefixes. Mounts are handlers of their own, and are not listed.
    ///
    /// A description in the form of OpenAPI starts from this list. What the handlers take and return is for you to add:
    ///
    /// ```
    /// use serde_json::{Map, Value, json};
    /// use weftwork::prelude::*;
    ///
    /// fn openapi(site: &Router) -> Value {
    ///     let mut paths = Map::new();
    ///     for (method, path) in site.routes() {
    ///         let method = method.map_or("get", Method::as_str).to_ascii_lowercase();
    ///         let path = paths.entry(path.replace("{*", "{")).or_insert_with(|| json!({}));
    ///         path[method] = json!({ "responses": { "200": { "description": "OK" } } });
    ///     }
    ///     json!({ "openapi": "3.1.0", "info": { "title": "Tea", "version": "1" }, "paths": paths })
    /// }
    ///
    /// let site = Router::new().get("/teas/{id}", || "Assam").post("/teas", || StatusCode::CREATED);
    /// let description = openapi(&site);
    /// let site = site.get("/openapi.json", move || Json(description.clone()));
    /// # let text = weftwork::TestClient::new(site).get("/openapi.json").send().text().to_owned();
    /// # assert!(text.contains(r#""/teas/{id}":{"get":"#) && text.contains(r#""/teas":{"post":"#), "{text}");
    /// ```
    pub fn routes(&self) -> impl Iterator<Item = (Option<&Method>, &str)> {
        self.routes.iter().map(|route| (route.method.as_ref(), route.path.as_str()))
    }

    /// Mounts `handler` under `prefix`, for every path there that no route matches. Typical handlers are
    /// [`files`](crate::files), [`routes`](crate::routes), or another router with its own middleware. The
    /// handler sees the path without the prefix.
    ///
    /// Longer prefixes come first. Mounts with equal prefixes are tried in the order in which they were added.
    /// If a mount declines, the next one is tried. A route with a capture at that position comes before every
    /// mount: `/{page}` matches `/static`, and `/{page}/{part}` matches every path with one segment under it.
    ///
    /// A mounted router sees the [states](Router::state) of this router, also through middleware of its own.
    ///
    /// Links that a mounted enum writes do not include the prefix. Mount the enum at `/`, or use `#[nest]`.
    #[must_use]
    pub fn mount<M>(mut self, prefix: &str, handler: impl IntoHandler<M>) -> Router {
        let (prefix, handler) = (prefix.to_owned(), Arc::new(handler.into_handler()));
        self.mounts.push(Mount { prefix, handler, states: Vec::new(), strips: true });
        self.changed()
    }

    /// Sets the handler for requests that no route and no mount takes. It replaces the 404, but not the 405.
    #[must_use]
    pub fn fallback<M>(mut self, handler: impl IntoHandler<M>) -> Router {
        self.fallback = Some(Arc::new(handler.into_handler()));
        self.changed()
    }

    /// Adds a value that all handlers of this router share, one of each type. A second value of a type is an error, and
    /// the server does not start. Handlers take it as
    /// [`State`](crate::State) or as `&self`. If another part of the program shares the value, for example a
    /// thread, pass an `Arc<T>`. Handlers still take `State<T>`.
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
        if self.states.iter().any(|state| (**state).type_id() == TypeId::of::<T>()) {
            self.found_errors.push(RouteError::TwoStates { state: type_name::<T>() });
        }
        self.states.push(Arc::new(value));
        self.changed()
    }

    fn changed(mut self) -> Router {
        self.table = OnceLock::new();
        self
    }

    /// Returns the errors in the routes. The slice is empty if the router is valid. A missing state is listed
    /// here too, although a router around this one may still provide it.
    pub fn errors(&self) -> &[RouteError] {
        &self.table().errors
    }

    fn table(&self) -> &RouteTable {
        self.table.get_or_init(|| RouteTable::new(self))
    }
}

/// Shares the handlers and states with the clone.
impl Clone for Router {
    fn clone(&self) -> Router {
        Router {
            routes: self.routes.clone(),
            found_errors: self.found_errors.clone(),
            mounts: self.mounts.clone(),
            fallback: self.fallback.clone(),
            states: self.states.clone(),
            table: OnceLock::new(),
        }
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
