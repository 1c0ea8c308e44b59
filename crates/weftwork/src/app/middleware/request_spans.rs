//! A span of the crate `tracing` for each request.

use tracing::Span;
use tracing::field::Empty;

use super::{Middleware, Next, TraceContext, error_type, method_label, run_with, version_label};
use crate::message::observer::{ResponseEnd, ResponseObserver};
use crate::message::{Request, Response};

/// Runs the handler in a span of the crate [`tracing`], so that its events belong to the request. The span is closed when the
/// last byte of the response was written, or its client has left.
///
/// The level is INFO, the name is `HTTP request`, and the fields follow the semantic conventions of OpenTelemetry:
///
/// | field | value |
/// |---|---|
/// | `otel.name` | the method and the route, for crates that export spans |
/// | `otel.kind` | `server` |
/// | `http.request.method` | the method, or `_OTHER` if neither RFC 9110 nor RFC 5789 defines it |
/// | `http.route` | the [pattern](Next::pattern) of the route, if one matches |
/// | `url.path`, `url.scheme` | as the client sent them, without the query |
/// | `network.protocol.version` | `1.0`, `1.1` or `2` |
/// | `client.address` | [`Request::client_addr`] |
/// | `trace_id` | that of [`RequestIds`](super::RequestIds), if it is around this middleware |
/// | `http.response.status_code` | the status. A client that has left counts as 499. |
/// | `error.type` | the reason if the request failed, as in the access log |
/// | `otel.status_code` | `ERROR` for 5xx |
///
/// - Handlers find the span in the extensions of the request, as [`tracing::Span`], for example to record their own fields.
///   Other threads enter it with `span.in_scope(..)`.
/// - In the engine `fibers`, requests take turns on a thread, and an entered span would get the events of others. The
///   span is not entered there. Enter it around code that does not wait.
/// - Requests that the server rejects before a handler runs have no span. [`AccessLog`](super::AccessLog) and
///   `Metrics` have them.
///
/// Put it around the router, inside `RequestIds`.
///
/// ```
/// use weftwork::middleware::RequestSpans;
/// use weftwork::prelude::*;
///
/// let site = Router::new().get("/users/{id}", || "a user").with(RequestSpans::new());
/// # assert_eq!(weftwork::TestClient::new(site).get("/users/7").send().text(), "a user");
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestSpans {}

impl RequestSpans {
    /// Creates the middleware. It has no options.
    pub fn new() -> RequestSpans {
        RequestSpans::default()
    }
}

impl Middleware for RequestSpans {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let method = method_label(Some(req.method()));
        let route = next.pattern(req);
        let name = route.as_ref().map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
        let span = tracing::info_span!(
            "HTTP request",
            otel.name = name,
            otel.kind = "server",
            http.request.method = method,
            http.route = route,
            url.path = req.sent_path(),
            url.scheme = req.scheme(),
            network.protocol.version = version_label(Some(req.version())),
            client.address = req.client_addr().map(tracing::field::display),
            trace_id = req.extension::<TraceContext>().map(TraceContext::trace_id),
            http.response.status_code = Empty,
            error.type = Empty,
            otel.status_code = Empty,
        );
        req.observe(Box::new(OpenSpan(span.clone())));
        match is_fiber() {
            true => run_with(span, req, next),
            false => span.clone().in_scope(|| run_with(span, req, next)),
        }
    }
}

/// The span of a request whose response has not ended.
struct OpenSpan(Span);

impl ResponseObserver for OpenSpan {
    fn on_end(self: Box<Self>, end: &ResponseEnd) {
        let status = end.shown_status();
        self.0.record("http.response.status_code", status);
        let error = end.error.unwrap_or_else(|| error_type(status));
        if !error.is_empty() {
            self.0.record("error.type", error);
        }
        if status >= 500 {
            self.0.record("otel.status_code", "ERROR");
        }
    }
}

#[cfg(feature = "fibers")]
fn is_fiber() -> bool {
    weftwork_fiber::in_fiber()
}

#[cfg(not(feature = "fibers"))]
fn is_fiber() -> bool {
    false
}
