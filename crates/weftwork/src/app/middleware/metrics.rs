//! Request counts and durations by route and status, for Prometheus.

mod text_format;

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use http::{HeaderValue, Method, StatusCode, header};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weftwork_wire::fields::{media_type_quality, names_media_type};

use self::text_format::from_open_metrics;
use super::{Middleware, Next};
use crate::message::{BodyWriter, Handler, Request, Response, StreamFilter};

const OPEN_METRICS: &str = "application/openmetrics-text";
/// Upper bounds in seconds, from the semantic conventions of OpenTelemetry for this histogram.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Counts and times requests, and serves a page for Prometheus and compatible systems (OpenMetrics 1.0).
///
/// | name | meaning |
/// |---|---|
/// | `http_server_request_duration_seconds` | A histogram by `http_request_method`, `http_route` and `http_response_status_code`. Its `_count` is the number of requests. |
/// | `http_server_active_requests` | Requests in progress |
/// | `weftwork_connections`, `weftwork_threads` | Current numbers, with [`server`](Metrics::server) |
/// | `weftwork_requests_total` and others | All of [`ServerStats`](crate::ServerStats), with [`server`](Metrics::server) |
///
/// Names, labels and buckets follow the semantic conventions of OpenTelemetry. The route is its
/// [pattern](Next::pattern), and is empty if no route matched. A method that RFC 9110 does not define is
/// `_OTHER`. Clients thus cannot create labels.
///
/// The duration is measured from the call of this middleware to the response, or to the end of a stream. If a
/// handler panics, the request counts with status 500. If a stream fails, the request counts with the status
/// that was sent, or with the status of the error if nothing was sent. Requests that are rejected before any
/// handler runs appear only in the counters of the server.
///
/// Add this middleware last, or just inside [`AccessLog`](super::AccessLog), and around the router. Around the
/// handler of one route, it does not see the route. The page reveals your routes and your load. Serve it on a
/// separate port with a second server, or put [`BasicAuth`](super::BasicAuth) around it.
///
/// ```
/// use weftwork::middleware::Metrics;
/// use weftwork::prelude::*;
///
/// let server = Server::bind("127.0.0.1:0")?;
/// let metrics = Metrics::new().server(server.status());
/// let site = Router::new()
///     .get("/users/{id}", || "a user")
///     .get("/metrics", metrics.page())
///     .with(metrics);
/// let running = server.start(site)?;
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    active: Gauge,
    registry: RwLock<Registry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    http_request_method: &'static str,
    http_route: String,
    http_response_status_code: u16,
}

impl Metrics {
    /// Creates an empty set of metrics. Clones share their counts.
    pub fn new() -> Metrics {
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let (active, mut registry) = (Gauge::default(), Registry::default());
        registry.register_with_unit(
            "http_server_request_duration",
            "Duration of HTTP server requests",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register("http_server_active_requests", "HTTP requests in progress", active.clone());
        Metrics { shared: Arc::new(Shared { durations, active, registry: RwLock::new(registry) }) }
    }

    /// Adds the counters of a server to the page. Pass the server's [`ServerStatus`](crate::ServerStatus). Call it for a single
    /// server: a second one would repeat the names, and scrapers reject such a page.
    #[must_use]
    pub fn server(self, view: impl Collector) -> Metrics {
        self.register(|registry| registry.register_collector(Box::new(view)));
        self
    }

    /// Adds your own metrics to the page.
    ///
    /// ```
    /// use weftwork::middleware::Metrics;
    /// use weftwork::prometheus_client::metrics::counter::Counter;
    ///
    /// let (metrics, orders) = (Metrics::new(), <Counter>::default());
    /// metrics.register(|registry| registry.register("orders", "Orders taken", orders.clone()));
    /// orders.inc();
    /// ```
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.shared.registry.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns a handler for the page. Clients that prefer OpenMetrics, such as Prometheus, get OpenMetrics 1.0. Others, such
    /// as browsers, get the text format 0.0.4 of Prometheus (`text/plain`), which has the same samples.
    pub fn page(&self) -> impl Handler + use<> {
        let metrics = self.clone();
        move |req: &mut Request<'_>| {
            let accepted: Vec<_> = req.header_values(header::ACCEPT).collect();
            // A range with a star names no format, and every reader takes the older one.
            let is_open = names_media_type(&accepted, OPEN_METRICS)
                && media_type_quality(&accepted, OPEN_METRICS) >= media_type_quality(&accepted, "text/plain");
            let page = metrics.text();
            let (page, content_type) = match is_open {
                true => (page, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
                false => (from_open_metrics(&page), "text/plain; version=0.0.4; charset=utf-8"),
            };
            Response::text(page)
                .with_content_type(HeaderValue::from_static(content_type))
                .with_header(header::VARY, HeaderValue::from_static("accept"))
                .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.shared.registry.read().unwrap_or_else(PoisonError::into_inner);
        // Cannot fail: writing to a `String` does not fail.
        let _ = encode(&mut out, &registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Middleware for Metrics {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        self.shared.active.inc();
        let labels = Labels {
            http_request_method: method_label(req.method()),
            http_route: next.pattern(req).unwrap_or_default(),
            // Until there is a response, the status is that of a handler that panicked.
            http_response_status_code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
        };
        let mut active_request =
            ActiveRequest { shared: self.shared.clone(), started: Instant::now(), labels };
        let response = next.run(req);
        active_request.labels.http_response_status_code = response.status().as_u16();
        response.filter_stream(active_request)
    }
}

/// A request in progress. It ends on drop: with the response, at the end of its stream, or with a panic.
struct ActiveRequest {
    shared: Arc<Shared>,
    started: Instant,
    labels: Labels,
}

impl StreamFilter for ActiveRequest {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        out.write_all(data)
    }

    fn failed(&mut self, instead: Option<StatusCode>) {
        if let Some(status) = instead {
            self.labels.http_response_status_code = status.as_u16();
        }
    }

    fn answered(&mut self, response: &Response) {
        self.labels.http_response_status_code = response.status().as_u16();
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.shared.active.dec();
        self.shared.durations.get_or_create(&self.labels).observe(self.started.elapsed().as_secs_f64());
    }
}

fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|name| *name == method.as_str()).unwrap_or("_OTHER")
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
