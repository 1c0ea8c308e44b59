//! What runs around a handler: it may answer in its place, change its request, or change its response.

mod access_log;
#[cfg(feature = "auth")]
mod basic_auth;
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
#[cfg(feature = "metrics")]
mod metrics;
pub(in crate::app) mod origin;
mod rate_limit;
mod request_id;
mod response_cache;
mod security_headers;
mod user;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use access_log::{AccessLog, LogFormat};
#[cfg(feature = "auth")]
pub use basic_auth::BasicAuth;
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
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use rate_limit::RateLimit;
pub use request_id::{RequestId, RequestIds, TraceContext};
pub use response_cache::ResponseCache;
pub use security_headers::SecurityHeaders;
pub use user::User;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::router::whole_pattern;
use crate::error::Result;
use crate::message::{Asked, Blocking, Handler, IntoResponse, Need, Problem, Request, Response};

/// Runs around a handler. Every `Fn(&mut Request, Next) -> R` is one, where `R` is an [`IntoResponse`].
///
/// It is the linear style: what stands before [`Next::run`] happens before the handler, what stands behind it
/// happens after. Not calling it answers in the handler's place. A body that the handler streams is written
/// later, when every middleware has returned: [`Response::filter_stream`] is how to see or change it.
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
    note = "write `fn(req: &mut Request, next: Next) -> Response`, and call `next.run(req)` in it; a closure has to name both types"
)]
pub trait Middleware: Send + Sync + 'static {
    /// Answers one request, most often with what `next` answers.
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response;
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

/// One middleware for several handlers, with one state: a rate limit that they share, say.
impl<M: Middleware + ?Sized> Middleware for Arc<M> {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        self.as_ref().handle(req, next)
    }
}

/// What a [`Middleware`] stands in front of: the rest of them, and the handler.
pub struct Next<'h> {
    handler: &'h dyn Handler,
}

impl<'h> Next<'h> {
    /// The rest of the way is `handler`. For a router of one's own, and to test a middleware.
    pub fn new(handler: &'h dyn Handler) -> Next<'h> {
        Next { handler }
    }

    /// The pattern of the route that takes `req`, with the prefixes of the routers around this: `/users/{id}`, where
    /// `path` has `/users/7`. None, if no route takes it, or if there are none. What is counted by path is counted by this:
    /// clients choose paths, and you the routes. Around the handler of a single route nothing is known of it: put what asks
    /// around the router. A route that [declines](Response::decline) is told all the same.
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
        let asked = Asked::new(req.method(), req.path().as_bytes());
        let pattern = self.handler.pattern(&asked)?;
        match (req.mounted_at(), &*pattern) {
            ("", "") => None,
            (prefix, inner) => Some(whole_pattern(prefix, inner)),
        }
    }

    /// Whether a request for the same path with this method would be its own.
    pub(in crate::app) fn takes(&self, method: &Method, req: &Request<'_>) -> bool {
        self.handler.pattern(&Asked::new(method, req.path().as_bytes())).is_some()
    }

    /// Has the request answered.
    pub fn run(self, req: &mut Request<'_>) -> Response {
        self.handler.call(req)
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// Puts middleware around any [`Handler`].
pub trait HandlerExt: Handler + Sized {
    /// This handler behind `middleware`, which wraps all that stands before it. So the one added **last** is
    /// outermost: it sees the request first and the response last (as axum's `layer`; unlike Express's `use`).
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
    fn with<M: Middleware>(self, middleware: M) -> With<Self, M> {
        With { handler: self, middleware }
    }
}

impl<H: Handler> HandlerExt for H {}

/// A handler behind a middleware; made by [`HandlerExt::with`].
pub struct With<H, M> {
    handler: H,
    middleware: M,
}

impl<H: Handler, M: Middleware> Handler for With<H, M> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.middleware.handle(req, Next::new(&self.handler))
    }

    fn reads_ahead(&self, asked: &Asked<'_>) -> bool {
        self.handler.reads_ahead(asked)
    }

    fn blocking(&self, asked: &Asked<'_>) -> Blocking {
        self.handler.blocking(asked)
    }

    fn pattern(&self, asked: &Asked<'_>) -> Option<Cow<'_, str>> {
        self.handler.pattern(asked)
    }

    fn check(&self) -> Result<()> {
        self.handler.check()
    }

    fn needs(&self) -> Vec<Need> {
        self.handler.needs()
    }
}

impl<H, M> fmt::Debug for With<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}

/// What a middleware answers in a handler's place.
fn refusal(status: StatusCode, detail: &str) -> Response {
    Problem::new(status).detail(detail).into_response()
}

/// Says that the response depends on the request field `name`, unless it says so already (RFC 9110 §12.5.5).
fn vary(response: &mut Response, name: HeaderName) {
    let says = |value: &HeaderValue| {
        let names = value.to_str().unwrap_or_default().split(',').map(str::trim);
        names.into_iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name.as_str()))
    };
    if !response.header_values(header::VARY).any(says) {
        response.append_header(header::VARY, name.into());
    }
}

#[cfg(test)]
mod tests;
