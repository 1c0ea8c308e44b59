//! Request counts and durations by route and status, for Prometheus.

mod latencies;
mod text_format;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use http::{HeaderValue, header};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weftwork_wire::fields::{media_type_quality, names_media_type};

use self::latencies::Latencies;
pub(crate) use self::latencies::LatencyCounts;
use self::text_format::from_open_metrics;
use super::{Middleware, Next, error_type, method_label, version_label};
use crate::message::observer::{Event, Observer, RefusedRequest, ResponseEnd, ResponseObserver};
use crate::message::{Handler, Request, Response};

const OPEN_METRICS: &str = "application/openmetrics-text";
/// Upper bounds in seconds, from the semantic conventions of OpenTelemetry for this histogram.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Counts and times requests, and serves a page for Prometheus and compatible systems.
///
/// | name | meaning |
/// |---|---|
/// | `http_server_request_duration_seconds` | A histogram of responses by `http_request_method`, `url_scheme`, `http_route`, `http_response_status_code`, `error_type` and `network_protocol_version`. Its `_count` is the number of responses. |
/// | `http_server_active_requests` | Requests in progress, by method and scheme |
/// | `weftwork_queue_wait_seconds` | A histogram of the time that requests have waited for a thread, if no thread was free |
/// | `weftwork_connections` and others | Connections by state, threads, calls, the queue and the limits, with [`server`](Metrics::server) |
/// | `weftwork_requests_total` and others | All of [`ServerStats`](crate::ServerStats), by rule, kind or reason, with [`server`](Metrics::server) |
///
/// Names, labels and buckets follow the semantic conventions of OpenTelemetry. The route is its
/// [pattern](Next::pattern), and is empty if no route matched. A method that RFC 9110 does not define, or that has not
/// arrived as a whole, is `_OTHER`. Clients thus cannot create labels.
///
/// - **The duration** is measured from the arrival of the request to its last byte in the kernel. A request has arrived
///   when the server has read its head and the part of its body that is read ahead. So the duration contains the wait
///   for a thread, and not the time that a slow client takes to send. For a request that does not arrive as a whole, it
///   is the time since the server waits for it. An upgrade ends with its 101. The wait in the accept queue of the kernel is
///   invisible to the server.
/// - **The status** is the one that was sent, whatever sent it. If this middleware is around the whole handler, the
///   responses of the server itself count too, such as 400, 408, 431 and 503.
/// - **A client that left** before its response was written counts with status 499, as in nginx, and the `error_type`
///   `client_gone` or `write_timeout`. A client that has closed only its sending side looks the same.
/// - **`error_type`** is the reason if the server has refused the request (`queue_full`, `head_timeout`, and others),
///   `cut_short` or `shutdown` if a response broke off, and the status for other responses with 5xx. Otherwise it is
///   empty.
///
/// Add this middleware last, or just inside [`AccessLog`](super::AccessLog), and around the router. Around the
/// handler of one route, it sees only the requests of this route, and not the route. The page reveals your routes and your
/// load. Serve it on a separate port with a second server, or put [`BasicAuth`](super::BasicAuth) around it.
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
    active: Family<ActiveLabels, Gauge>,
    queue_wait: Histogram,
    /// Of whole responses, for the quantiles of a dashboard.
    latencies: Latencies,
    registry: RwLock<Registry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActiveLabels {
    http_request_method: &'static str,
    url_scheme: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    http_request_method: &'static str,
    url_scheme: &'static str,
    http_route: String,
    http_response_status_code: u16,
    error_type: &'static str,
    network_protocol_version: &'static str,
}

impl Metrics {
    /// Creates an empty set of metrics. Clones share their counts.
    pub fn new() -> Metrics {
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let (active, queue_wait) = (Family::<ActiveLabels, Gauge>::default(), Histogram::new(BUCKETS));
        let mut registry = Registry::default();
        registry.register_with_unit(
            "http_server_request_duration",
            "Duration of HTTP server requests",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register("http_server_active_requests", "HTTP requests in progress", active.clone());
        registry.register_with_unit(
            "weftwork_queue_wait",
            "Time that requests have waited for a thread, if no thread was free",
            Unit::Seconds,
            queue_wait.clone(),
        );
        let registry = RwLock::new(registry);
        Metrics {
            shared: Arc::new(Shared {
                durations,
                active,
                queue_wait,
                latencies: Latencies::default(),
                registry,
            }),
        }
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

    pub(crate) fn latencies(&self) -> LatencyCounts {
        self.shared.latencies.counts()
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
        let labels = Labels {
            http_request_method: method_label(Some(req.method())),
            url_scheme: req.scheme(),
            http_route: next.pattern(req).unwrap_or_default(),
            http_response_status_code: 0,
            error_type: "",
            network_protocol_version: version_label(Some(req.version())),
        };
        req.observe(ActiveRequest::begin(&self.shared, labels, req.arrival().at));
        next.run(req)
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        Some(Arc::new(self.shared.clone()))
    }
}

impl Observer for Arc<Shared> {
    fn on_event(&self, event: &Event) {
        if let Event::LeftQueue(waited) = event {
            self.queue_wait.observe(waited.as_secs_f64());
        }
    }

    fn on_refusal(&self, request: &RefusedRequest<'_>) -> Box<dyn ResponseObserver> {
        let labels = Labels {
            http_request_method: method_label(request.method()),
            url_scheme: request.scheme(),
            http_route: request.route.clone().unwrap_or_default(),
            http_response_status_code: 0,
            error_type: "",
            network_protocol_version: version_label(request.version()),
        };
        ActiveRequest::begin(self, labels, request.arrival.at)
    }
}

/// A request in progress.
struct ActiveRequest {
    shared: Arc<Shared>,
    arrived: Instant,
    labels: Labels,
    active: Gauge,
}

impl ActiveRequest {
    fn begin(shared: &Arc<Shared>, labels: Labels, arrived: Instant) -> Box<ActiveRequest> {
        let Labels { http_request_method, url_scheme, .. } = labels;
        let active = shared.active.get_or_create_owned(&ActiveLabels { http_request_method, url_scheme });
        active.inc();
        Box::new(ActiveRequest { shared: shared.clone(), arrived, labels, active })
    }
}

impl ResponseObserver for ActiveRequest {
    fn on_end(mut self: Box<Self>, end: &ResponseEnd) {
        let status = end.shown_status();
        self.labels.http_response_status_code = status;
        self.labels.error_type = end.error.unwrap_or_else(|| error_type(status));
        let took = self.arrived.elapsed();
        self.shared.durations.get_or_create(&self.labels).observe(took.as_secs_f64());
        // A stream that its client leaves has taken as long as the client liked.
        if end.is_whole() {
            self.shared.latencies.record(took);
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.active.dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
