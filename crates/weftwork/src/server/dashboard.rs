//! A page with live charts of a server, for its side listener.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::ServerStatus;
use crate::app::middleware::{LatencyCounts, Metrics};
use crate::app::{Event, EventHub};
use crate::message::{FeedLimits, Handler, IntoResponse, Request, Response};
use crate::transport::events::ServerStats;

const PAGE: &str = include_str!("dashboard/page.html");
const SCRIPT: &str = include_str!("dashboard/script.js");
const STYLE: &str = include_str!("dashboard/style.css");

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Samples that a page gets when it opens.
const SAMPLES_MAX: usize = 120;
/// Only the dashboard's own files are loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page with live charts of a server: requests/s, latencies (p50 and p99), threads, connections, and the event loops
/// that moved away from handlers that block.
///
/// It is one handler at one path. The same path with `?events` is a stream of server-sent events, which has an
/// event `sample` with a JSON object each second. Its first event is `history`: the last two minutes, if a page was open
/// then. While no page is open, the dashboard costs nothing. While pages are open, one thread takes the samples for all of
/// them. The page loads nothing from other hosts.
///
/// | member of a sample | meaning |
/// |---|---|
/// | `at` | Milliseconds since 1970 |
/// | `requests` | Requests per second |
/// | `p50`, `p99` | Quantiles of the latency in microseconds, at most a sixteenth too long: from the arrival of the request to the last byte of its response in the kernel. `null` without requests |
/// | `threads`, `connections` | Their number now |
/// | `moved` | Loops per second that moved to another thread while a handler blocked |
/// | `avoided` | Loops per second that moved before a handler that would block |
/// | `queued` | Requests per second that waited for a thread |
/// | `rejected` | Requests per second that got 503 |
///
/// The latencies are those of `metrics`, which must be around the site. The page shows your load, so put it on the
/// [side listener](super::Server::admin), or behind [`BasicAuth`](crate::middleware::BasicAuth).
///
/// ```
/// use weftwork::middleware::Metrics;
/// use weftwork::prelude::*;
/// use weftwork::Dashboard;
///
/// let server = Server::bind("127.0.0.1:0")?;
/// let metrics = Metrics::new();
/// let side = Router::new().get("/", Dashboard::new(&metrics, server.status()));
/// let site = (|_: &mut Request| "hello").with(metrics);
/// let running = server.admin("127.0.0.1:0", side)?.start(site)?;
/// println!("live charts at {}", running.admin_addresses()[0]);
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone)]
pub struct Dashboard {
    shared: Arc<Shared>,
}

struct Shared {
    metrics: Metrics,
    status: ServerStatus,
    hub: EventHub,
    sampler: Mutex<Sampler>,
}

#[derive(Default)]
struct Sampler {
    is_running: bool,
    samples: VecDeque<String>,
}

/// What the next sample is compared with.
struct Before {
    at: Instant,
    stats: ServerStats,
    latencies: LatencyCounts,
}

impl Dashboard {
    /// Creates the dashboard of a server from its metrics and its status.
    pub fn new(metrics: &Metrics, status: ServerStatus) -> Dashboard {
        let hub = EventHub::new(FeedLimits::default());
        let shared = Shared { metrics: metrics.clone(), status, hub, sampler: Mutex::default() };
        Dashboard { shared: Arc::new(shared) }
    }

    fn events(&self, req: &Request<'_>) -> Response {
        let mut sampler = self.shared.sampler();
        if !sampler.is_running {
            let shared = self.shared.clone();
            let before = shared.before();
            let started = Builder::new().name("dashboard".into()).spawn(move || shared.take_samples(before));
            if let Err(error) = started {
                log::error!("cannot start the thread of the dashboard: {error}");
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
            sampler.is_running = true;
        }
        let samples: Vec<&str> = sampler.samples.iter().map(String::as_str).collect();
        let history = Event::new(format!("[{}]", samples.join(","))).name("history");
        // The lock is held, so that no sample is missed or sent twice.
        self.shared.hub.join_with(req, (), [history])
    }
}

impl Handler for Dashboard {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let (text, content_type) = match req.query() {
            Some("events") => return self.events(req),
            Some("script") => (SCRIPT, "text/javascript; charset=utf-8"),
            Some("style") => (STYLE, "text/css; charset=utf-8"),
            _ => (PAGE, "text/html; charset=utf-8"),
        };
        const CSP: HeaderName = header::CONTENT_SECURITY_POLICY;
        Response::text(text)
            .with_content_type(HeaderValue::from_static(content_type))
            .with_header(CSP, HeaderValue::from_static(POLICY))
            .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .with_header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
    }
}

impl Shared {
    fn sampler(&self) -> MutexGuard<'_, Sampler> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self) -> Before {
        Before { at: Instant::now(), stats: self.status.stats(), latencies: self.metrics.latencies() }
    }

    /// Takes a sample each second, until no page is open.
    fn take_samples(&self, mut before: Before) {
        loop {
            std::thread::sleep(INTERVAL);
            let now = self.before();
            let sample = self.sample(&before, &now);
            before = now;
            let mut sampler = self.sampler();
            let event = Event::new(sample.as_str()).name("sample");
            if self.hub.send(&event) == 0 {
                // The next page would draw the time between as if it had been watched.
                *sampler = Sampler::default();
                return;
            }
            if sampler.samples.len() == SAMPLES_MAX {
                sampler.samples.pop_front();
            }
            sampler.samples.push_back(sample);
        }
    }

    /// Returns a sample as JSON.
    fn sample(&self, before: &Before, now: &Before) -> String {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (stats, old) = (&now.stats, &before.stats);
        let quantiles = now.latencies.quantiles_since(&before.latencies, [0.5, 0.99]);
        let [p50, p99] =
            quantiles.map_or(["null".to_owned(), "null".to_owned()], |us| us.map(|us| us.to_string()));
        let mut json = format!(
            "{{\"at\":{at},\"p50\":{p50},\"p99\":{p99},\"threads\":{},\"connections\":{}",
            self.status.threads(),
            now.stats.connections
        );
        let rates = [
            ("requests", rate(stats.requests, old.requests)),
            ("moved", rate(stats.loops_retaken, old.loops_retaken)),
            ("avoided", rate(stats.loops_handed_off, old.loops_handed_off)),
            ("queued", rate(stats.queued, old.queued)),
            ("rejected", rate(stats.shed, old.shed)),
        ];
        for (name, rate) in rates {
            // Cannot fail: writing to a `String` does not fail.
            let _ = write!(json, ",\"{name}\":{rate:.1}");
        }
        json.push('}');
        json
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("pages", &self.shared.hub.clients()).finish_non_exhaustive()
    }
}
