//! Tests that metrics and access log tell of requests of HTTP/2, and of the ends of streams and connections.

use std::io::{Read, Write};
use std::time::Duration;

use weftwork::middleware::{AccessLog, LogFormat, Metrics};
use weftwork::prometheus_client::encoding::text::encode;
use weftwork::prometheus_client::registry::Registry;
use weftwork::{HandlerExt, Request, Response, Result, Running, ServerStatus, Settings};

use super::CASE;
use crate::support::{Http2Client, TIMEOUT, eventually, Lines};

/// Returns the numbers of a server as the page of metrics has them.
pub(super) fn page_of(status: ServerStatus) -> String {
    let (mut registry, mut page) = (Registry::default(), String::new());
    registry.register_collector(Box::new(status));
    encode(&mut page, &registry).unwrap();
    page
}

struct Observed {
    running: Running,
    metrics: Metrics,
    lines: Lines,
}

impl Observed {
    fn start(change: impl FnOnce(Settings) -> Settings) -> Observed {
        let lines = Lines::default();
        let log = AccessLog::to(LogFormat::Json, lines.clone()).unwrap();
        let metrics = Metrics::new();
        let site = answer.with(metrics.clone()).with(log);
        Observed { running: CASE.bind(change).start(site).unwrap(), metrics, lines }
    }

    /// Waits until one line of the log has these parts.
    #[track_caller]
    fn logs(&self, parts: &[&str]) {
        let lines = || String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
        eventually(&format!("{parts:?} in {}", lines()), || {
            let lines = lines();
            lines.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count() == 1
        });
    }

    #[track_caller]
    fn counts(&self, line: &str) {
        eventually(line, || page_of(self.running.status()).contains(&format!("{line}\n")));
    }
}

fn answer(req: &mut Request) -> Result<Response> {
    Ok(match req.path() {
        "/read" => {
            req.body().read_to_end(&mut Vec::new())?;
            Response::text("read")
        }
        "/endless" => Response::stream(|out| {
            loop {
                out.write_all(&[0; 1000])?;
            }
        }),
        "/close" => Response::text("last").with_close(),
        _ => Response::text("hello"),
    })
}

#[test]
fn requests_say_their_version() {
    let observed = Observed::start(|settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    let stream = client.get("/");
    client.answer(stream).is(200, "hello");
    observed.logs(&["\"target\":\"/\"", "\"version\":\"HTTP/2.0\"", "\"status\":200", "\"whole\":true"]);
    let page = observed.metrics.page();
    let response = weftwork::TestClient::new(page).get("/metrics").send();
    let text = response.text();
    let line = text.lines().find(|line| line.starts_with("http_server_request_duration_seconds_count")).unwrap();
    assert!(line.contains("network_protocol_version=\"2\"") && line.ends_with("} 1"), "{line}");
}

#[test]
fn lines_say_how_a_stream_ended() {
    let observed = Observed::start(|settings| settings.write_timeout(Duration::from_millis(300)));
    let mut client = Http2Client::connect(&observed.running);
    // The client resets it.
    client.grants = false;
    let stream = client.get("/endless?reset");
    client.wait_for_head(stream);
    client.reset(stream);
    observed.logs(&["/endless?reset", "\"status\":499", "\"error\":\"client_gone\"", "\"whole\":false"]);
    observed.counts("weftwork_http2_resets_received_total{code=\"cancel\"} 1");
    // The client opens no window.
    let stream = client.get("/endless?stall");
    client.wait_for_reset(stream);
    observed.logs(&["/endless?stall", "\"status\":499", "\"error\":\"write_timeout\"", "\"whole\":false"]);
    // The client breaks a rule.
    let fields = [("content-length", "5"), ("expect", "100-continue")];
    let stream = client.request("POST", "/read", &fields, false);
    client.wait("100 Continue", |client| !client.interim(stream).is_empty());
    client.send_data(stream, b"too long", false);
    client.wait_for_reset(stream);
    observed.logs(&["/read", "\"status\":499", "\"error\":\"client_gone\""]);
    observed.counts("weftwork_http2_resets_sent_total{code=\"protocol_error\"} 1");
    // The request is refused.
    client.grant(0, 1 << 20);
    let stream = client.get("no path");
    assert_eq!(client.answer(stream).status, 400);
    observed.logs(&["\"status\":400", "\"error\":\"malformed_request\""]);
    // The whole connection ends.
    let stream = client.get("/endless?vanish");
    client.wait_for_head(stream);
    client.vanish();
    observed.logs(&["/endless?vanish", "\"status\":499", "\"error\":\"client_gone\""]);
}

#[test]
fn streams_in_progress_are_counted() {
    let observed = Observed::start(|settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    let length = [("content-length", "4")];
    let opened: Vec<_> = (0..3).map(|_| client.request("POST", "/read", &length, false)).collect();
    observed.counts("weftwork_http2_streams 3");
    client.send_data(opened[0], b"body", true);
    client.answer(opened[0]).is(200, "read");
    observed.counts("weftwork_http2_streams 2");
    assert_eq!(observed.running.stats().http2_streams, 2);
    client.vanish();
    observed.counts("weftwork_http2_streams 0");
}

#[test]
fn goaways_are_counted_by_reason() {
    let never = |_: &mut Http2Client| {};
    let close = |client: &mut Http2Client| {
        let stream = client.get("/close");
        client.answer(stream).is(200, "last");
    };
    let get = |client: &mut Http2Client| {
        let stream = client.get("/");
        client.answer(stream).is(200, "hello");
    };
    let part = |client: &mut Http2Client| {
        client.ping();
        client.send(b"\0\0");
    };
    let short = Duration::from_millis(200);
    type Change = Box<dyn FnOnce(Settings) -> Settings>;
    type Act<'a> = &'a dyn Fn(&mut Http2Client);
    let cases: [(&str, Change, Act<'_>); 4] = [
        ("close", Box::new(|settings| settings), &close),
        ("age", Box::new(move |settings| settings.age_max(short)), &never),
        ("idle", Box::new(move |settings| settings.idle_timeout(short)), &get),
        ("timeout", Box::new(move |settings| settings.head_timeout(short)), &part),
    ];
    for (reason, change, act) in cases {
        let observed = Observed::start(change);
        let mut client = Http2Client::connect(&observed.running);
        act(&mut client);
        client.wait_for_goaways(1);
        client.ends();
        observed.counts(&format!("weftwork_http2_goaways_total{{reason=\"{reason}\"}} 1"));
        assert_eq!(observed.running.stats().http2_goaways, 1, "{reason}");
        let late = observed.running.stats().timeouts;
        assert_eq!(late, u64::from(reason == "timeout"), "{reason}");
    }
    let observed = Observed::start(|settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    get(&mut client);
    let status = observed.running.status();
    let stop = std::thread::spawn(move || observed.running.shutdown(TIMEOUT));
    client.wait_for_goaways(2);
    client.ends();
    stop.join().unwrap();
    assert!(page_of(status).contains("weftwork_http2_goaways_total{reason=\"stop\"} 1\n"));
}
