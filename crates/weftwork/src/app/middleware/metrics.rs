//! How many requests, of which route, with which status, and how long did they take? As Prometheus reads it.

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
use weftwork_wire::fields::names_media_type;

use super::{Middleware, Next};
use crate::message::{BodyWriter, Handler, Request, Response, StreamFilter};

/// Upper bounds in seconds, those of the semantic conventions of OpenTelemetry for this histogram.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Counts and times requests, and has a page that Prometheus and its like read (OpenMetrics 1.0).
///
/// | name | what |
/// |---|---|
/// | `http_server_request_duration_seconds` | a histogram, by `http_request_method`, `http_route` and `http_response_status_code`; its `_count` is how many there were |
/// | `http_server_active_requests` | how many are in progress |
/// | `weftwork_connections`, `weftwork_threads` | how many there are now; with [`server`](Metrics::server) |
/// | `weftwork_requests_total` and others | all of [`Counts`](crate::Counts); with [`server`](Metrics::server) |
///
/// Names, labels and buckets are those of OpenTelemetry's semantic conventions. The route is its
/// [pattern](Next::pattern), and empty where no route took the request; a method that RFC 9110 does not know is `_OTHER`.
/// So a client cannot make up labels. The duration goes from the call of this middleware to the response; when that
/// streams, to its end. A handler that panics counts with its 500. A stream that fails
/// counts with the status that it began with; if it had not begun, with that of the error. What is refused before any handler runs is in the server's counts alone.
///
/// Add it last, or just inside of [`AccessLog`](super::AccessLog), around the router: around the handler of one route it
/// does not see which route that is. Whoever can ask for the page learns your routes and how
/// busy they are: a port of its own for a second server, or [`BasicAuth`](super::BasicAuth) around it, keep it to
/// yourself.
///
/// ```
/// use weftwork::middleware::Metrics;
/// use weftwork::prelude::*;
///
/// let server = Server::bind("127.0.0.1:0")?;
/// let metrics = Metrics::new().server(server.view());
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
    /// Nothing is counted yet. Clones count together.
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

    /// Puts what a server counts onto the page: give it the server's [`View`](crate::View). One server, once: a second one
    /// would repeat the names of the first, and scrapers refuse such a page.
    #[must_use]
    pub fn server(self, view: impl Collector) -> Metrics {
        self.register(|registry| registry.register_collector(Box::new(view)));
        self
    }

    /// Lets `add` put measurements of your own onto the page.
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

    /// A handler that answers with all of it, as OpenMetrics: by that name to who asks for it, as Prometheus does, else
    /// as `text/plain`, which browsers show.
    pub fn page(&self) -> impl Handler + use<> {
        let metrics = self.clone();
        move |req: &mut Request<'_>| {
            let accepted: Vec<_> = req.header_values(header::ACCEPT).collect();
            let content_type = match names_media_type(&accepted, "application/openmetrics-text") {
                true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
                false => "text/plain; charset=utf-8",
            };
            Response::text(metrics.text())
                .with_content_type(HeaderValue::from_static(content_type))
                .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.shared.registry.read().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String does not fail.
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
            // Until there is a response it is that of a handler that panicked.
            http_response_status_code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
        };
        let mut active_request =
            ActiveRequest { shared: self.shared.clone(), started: Instant::now(), labels };
        let response = next.run(req);
        active_request.labels.http_response_status_code = response.status().as_u16();
        response.filter_stream(active_request)
    }
}

/// A request in progress. It is over when this is dropped: with the response, with the stream that it watches, or with
/// a panic.
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
