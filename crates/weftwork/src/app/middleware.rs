//! Middleware: code around a handler that can answer instead of it, or change its request or response.

mod access_log;
#[cfg(feature = "auth")]
mod basic_auth;
mod bearer_auth;
mod body_limit;
#[cfg(feature = "compression")]
mod compression;
mod concurrency_limit;
mod cors;
mod csrf;
mod deadline;
#[cfg(feature = "compression")]
mod decompression;
mod etags;
mod handle_error;
#[cfg(feature = "metrics")]
mod metrics;
pub(in crate::app) mod origin;
mod rate_limit;
mod request_id;
#[cfg(feature = "tracing")]
mod request_spans;
mod response_cache;
mod security_headers;
#[cfg(feature = "sessions")]
mod sessions;
mod user;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use access_log::{AccessLog, LogFormat};
#[cfg(feature = "auth")]
pub use basic_auth::BasicAuth;
pub use bearer_auth::BearerAuth;
pub use body_limit::BodyLimit;
#[cfg(feature = "compression")]
pub use compression::Compression;
pub use concurrency_limit::ConcurrencyLimit;
pub use cors::Cors;
pub(super) use cors::preflighted;
pub use csrf::Csrf;
pub use deadline::Deadline;
#[cfg(feature = "compression")]
pub use decompression::Decompression;
pub use etags::ETags;
pub use handle_error::HandleError;
#[cfg(feature = "metrics")]
pub(crate) use metrics::LatencyCounts;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use rate_limit::RateLimit;
pub use request_id::{RequestId, RequestIds, TraceContext};
#[cfg(feature = "tracing")]
pub use request_spans::RequestSpans;
pub use response_cache::ResponseCache;
pub use security_headers::SecurityHeaders;
#[cfg(feature = "sessions")]
pub use sessions::{MemoryStore, Session, SessionRecord, SessionStore, Sessions};
pub use user::User;

#[cfg(any(feature = "metrics", feature = "tracing"))]
use http::Version;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::router::whole_pattern;
use crate::error::{Error, Result};
use crate::message::observer::Observer;
use crate::message::{
    Blocking, Handler, IntoResponse, Problem, Request, RequestLine, RequiredState, Response,
};

/// Runs around a handler. Every `Fn(&mut Request, Next) -> R` is a middleware if `R` is an [`IntoResponse`].
///
/// Code before [`Next::run`] runs before the handler, and code after it runs after the handler. A middleware
/// that does not call it answers instead of the handler. The body of a streamed response is written later,
/// after every middleware has returned. To see or change it, use [`Response::filter_stream`].
///
/// ```
/// use weftwork::prelude::*;
///
/// fn only_with_a_key(req: &mut Request, next: Next) -> Response {
///     if req.header("x-key") != Some("sesame") {
///         return StatusCode::FORBIDDEN.into_response();
///     }
///     let mut response = next.run(req);
///     response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("private"));
///     response
/// }
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "the treasure").with(only_with_a_key));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a middleware",
    label = "not a middleware",
    note = "write `fn(req: &mut Request, next: Next) -> Response`, and call `next.run(req)` in it; a closure must name both types"
)]
pub trait Middleware: Send + Sync + 'static {
    /// Answers one request, usually with the response of `next`.
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response;

    /// Returns an observer of all responses of the server, if this middleware is around the whole handler.
    #[doc(hidden)]
    fn observer(&self) -> Option<Arc<dyn Observer>> {
        None
    }
}

impl<F, R> Middleware for F
where
    F: Fn(&mut Request<'_>, Next<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        self(req, next).into_response()
    }
}

/// Shares one middleware and its state between several handlers, for example a rate limit.
impl<M: Middleware + ?Sized> Middleware for Arc<M> {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        self.as_ref().handle(req, next)
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.as_ref().observer()
    }
}

/// The rest of the chain after a [`Middleware`]: further middleware and the handler.
pub struct Next<'h> {
    handler: &'h dyn Handler,
}

impl<'h> Next<'h> {
    /// Creates a chain that ends in `handler`. Use it to write a router or to test a middleware.
    pub fn new(handler: &'h dyn Handler) -> Next<'h> {
        Next { handler }
    }

    /// Returns the pattern of the route that matches `req`, including the prefixes of the routers around this
    /// middleware: `/users/{id}` for the path `/users/7`. `None` if no route matches, or if there are no
    /// routes.
    ///
    /// Count requests by pattern instead of by path, because clients choose paths. Put such middleware around a
    /// router: around the handler of a single route, the pattern is unknown. The pattern is also returned for a
    /// route that [declines](Response::decline).
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn named(req: &mut Request, next: Next) -> String {
    ///     next.pattern(req).unwrap_or_default()
    /// }
    /// let site = Router::new().get("/users/{id}", || "a user").with(named);
    /// # let mut client = weftwork::TestClient::new(site);
    /// # assert_eq!(client.get("/users/7").send().text(), "/users/{id}");
    /// # assert_eq!(client.get("/user").send().text(), "");
    /// ```
    pub fn pattern(&self, req: &Request<'_>) -> Option<String> {
        let line = RequestLine::new(req.method(), req.path().as_bytes());
        let pattern = self.handler.pattern(&line)?;
        match (req.mounted_at(), &*pattern) {
            ("", "") => None,
            (prefix, inner) => Some(whole_pattern(prefix, inner)),
        }
    }

    /// Returns whether a route matches a request for the same path with this method.
    pub(in crate::app) fn takes(&self, method: &Method, req: &Request<'_>) -> bool {
        self.handler.pattern(&RequestLine::new(method, req.path().as_bytes())).is_some()
    }

    /// Runs the rest of the chain and returns its response.
    pub fn run(self, req: &mut Request<'_>) -> Response {
        self.handler.call(req)
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// Adds middleware to any [`Handler`].
pub trait HandlerExt: Handler + Sized {
    /// Wraps this handler in `middleware`. The middleware that is added **last** is outermost: it sees the
    /// request first and the response last. This is the same as axum's `layer` and unlike Express's `use`.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn inner(req: &mut Request, next: Next) -> Response { next.run(req) }
    /// fn outer(req: &mut Request, next: Next) -> Response { next.run(req) }
    ///
    /// fn takes(_: impl Handler) {}
    /// takes((|_: &mut Request| "hello").with(inner).with(outer)); // outer(inner(hello))
    /// ```
    fn with<M: Middleware>(self, middleware: M) -> Layered<Self, M> {
        Layered { handler: self, middleware }
    }
}

impl<H: Handler> HandlerExt for H {}

/// A handler with a middleware around it. [`HandlerExt::with`] creates it.
#[derive(Clone)]
pub struct Layered<H, M> {
    pub(super) handler: H,
    pub(super) middleware: M,
}

impl<H: Handler, M: Middleware> Handler for Layered<H, M> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.middleware.handle(req, Next::new(&self.handler))
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.handler.reads_ahead(line)
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        self.handler.blocking(line)
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        self.handler.pattern(line)
    }

    fn check(&self) -> Result<()> {
        self.handler.check()
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        self.handler.normal_path(line)
    }

    fn needs(&self) -> Vec<RequiredState> {
        self.handler.needs()
    }

    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.middleware.observer().into_iter().chain(self.handler.observers()).collect()
    }
}

impl<H, M> fmt::Debug for Layered<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").finish_non_exhaustive()
    }
}

/// Returns the response of a middleware that rejects a request.
fn refusal(status: StatusCode, detail: &str) -> Response {
    Problem::new(status).detail(detail).into_response()
}

/// Returns a method that RFC 9110 or RFC 5789 defines, and `_OTHER` for others, as the semantic conventions of OpenTelemetry
/// say.
#[cfg(any(feature = "metrics", feature = "tracing"))]
fn method_label(method: Option<&Method>) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    method.and_then(|method| KNOWN.into_iter().find(|name| *name == method.as_str())).unwrap_or("_OTHER")
}

/// Returns the error of a response without any other reason: its status, if the server is to blame.
#[cfg(any(feature = "metrics", feature = "tracing"))]
fn error_type(status: u16) -> &'static str {
    match status {
        500 => "500",
        501 => "501",
        502 => "502",
        503 => "503",
        504 => "504",
        505.. => "5xx",
        _ => "",
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
fn version_label(version: Option<Version>) -> &'static str {
    match version {
        Some(Version::HTTP_10) => "1.0",
        Some(Version::HTTP_2) => "2",
        Some(_) => "1.1",
        None => "",
    }
}

/// Returns the `WWW-Authenticate` of a scheme (RFC 9110 section 11.6.1). `parameters` follow the realm.
fn challenge(scheme: &str, realm: &str, parameters: &str) -> Result<HeaderValue> {
    let is_plain = realm.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte));
    match HeaderValue::from_str(&format!("{scheme} realm=\"{realm}\"{parameters}")) {
        Ok(challenge) if is_plain => Ok(challenge),
        _ => Err(Error::setting("realm", realm, "printable ASCII without quotes and backslashes")),
    }
}

/// Runs the rest of the chain with `value` in the extensions of the request.
fn run_with<T: Clone + Send + Sync + 'static>(value: T, req: &mut Request<'_>, next: Next<'_>) -> Response {
    let before = req.extensions_mut().insert(value);
    let response = next.run(req);
    if response.is_declined() {
        // The handler that answers instead is outside of this middleware.
        match before {
            Some(before) => drop(req.extensions_mut().insert(before)),
            None => drop(req.extensions_mut().remove::<T>()),
        }
    }
    response
}

/// Adds `name` to `Vary`, unless it is there already (RFC 9110 §12.5.5).
fn vary(response: &mut Response, name: HeaderName) {
    let says = |value: &HeaderValue| {
        let names = value.to_str().unwrap_or_default().split(',').map(str::trim);
        names.into_iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name.as_str()))
    };
    if !response.header_values(header::VARY).any(says) {
        response.append_header(header::VARY, name);
    }
}

#[cfg(test)]
mod tests;
