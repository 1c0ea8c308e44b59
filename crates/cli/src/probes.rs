//! `/health`, `/ready` and `/metrics`, for supervisors, proxies and Prometheus, and the dashboard.

use std::borrow::Cow;
use std::sync::Arc;

use weftwork::http::{HeaderValue, Method, StatusCode, header};
use weftwork::middleware::Metrics;
use weftwork::{Blocking, Dashboard, Handler, IntoResponse, Request, RequestLine, Response, ServerStatus};

const HEALTH: &str = "/health";
const READY: &str = "/ready";
const METRICS: &str = "/metrics";

/// Answers to all three.
pub(crate) struct Probes {
    status: ServerStatus,
    /// The page of the metrics. Absent if it is on the side listener.
    page: Option<Arc<dyn Handler>>,
    dashboard: Dashboard,
}

impl Probes {
    /// Creates the answers. `has_metrics` says whether `/metrics` is one of them.
    pub(crate) fn new(status: ServerStatus, metrics: &Metrics, has_metrics: bool) -> Probes {
        let page = has_metrics.then(|| Arc::new(metrics.page()) as Arc<dyn Handler>);
        let dashboard = Dashboard::new(metrics, status.clone());
        Probes { status, page, dashboard }
    }

    pub(crate) fn status(&self) -> &ServerStatus {
        &self.status
    }

    /// 200 while the process is alive.
    pub(crate) fn health() -> Response {
        Response::text("OK")
    }

    /// 503 from the moment on at which the server is told to stop. A proxy then sends its requests elsewhere.
    pub(crate) fn ready(&self) -> Response {
        let no_store = HeaderValue::from_static("no-store");
        let response = match self.status.is_stopping() {
            true => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
            false => Response::text("ready\n"),
        };
        response.with_header(header::CACHE_CONTROL, no_store)
    }

    pub(crate) fn metrics(&self, req: &mut Request<'_>) -> Response {
        self.page.as_ref().map_or_else(Response::decline, |page| page.call(req))
    }

    pub(crate) fn dashboard(&self, req: &mut Request<'_>) -> Response {
        self.dashboard.call(req)
    }

    /// Returns the answers of a side listener: all of them, and `/dashboard`.
    pub(crate) fn on_side_listener(self) -> impl Handler {
        let dashboard = self.dashboard.clone();
        let others = move |req: &mut Request<'_>| match req.path() {
            "/dashboard" => dashboard.call(req),
            _ => Response::decline(),
        };
        self.before(others, |_| false)
    }

    /// Puts the answers in front of a handler, except for names that the handler has itself.
    pub(crate) fn before<H, F>(self, handler: H, has_itself: F) -> impl Handler
    where
        H: Handler,
        F: Fn(&str) -> bool + Send + Sync + 'static,
    {
        WithProbes { probes: self, handler, has_itself }
    }
}

struct WithProbes<H, F> {
    probes: Probes,
    handler: H,
    has_itself: F,
}

impl<H, F: Fn(&str) -> bool> WithProbes<H, F> {
    fn probe(&self, method: &Method, path: &str) -> Option<&'static str> {
        let probe = [HEALTH, READY, METRICS].into_iter().find(|probe| *probe == path)?;
        let is_absent = probe == METRICS && self.probes.page.is_none();
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        (is_read && !is_absent && !(self.has_itself)(&probe[1..])).then_some(probe)
    }
}

impl<H: Handler, F: Fn(&str) -> bool + Send + Sync + 'static> Handler for WithProbes<H, F> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        match self.probe(req.method(), req.path()) {
            Some(HEALTH) => Probes::health(),
            Some(READY) => self.probes.ready(),
            Some(_) => self.probes.metrics(req),
            None => self.handler.call(req),
        }
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        match self.probe(line.method(), line.path()) {
            Some(_) => Blocking::Never,
            None => self.handler.blocking(line),
        }
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        self.probe(line.method(), line.path())
            .map_or_else(|| self.handler.pattern(line), |probe| Some(probe.into()))
    }

    fn check(&self) -> weftwork::Result<()> {
        self.handler.check()
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.handler.reads_ahead(line)
    }
}
