//! Tests that metrics and access log tell of requests of HTTP/2, and of the ends of streams and connections.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use weftwork::middleware::{AccessLog, LogFormat, Metrics};
use weftwork::prometheus_client::encoding::text::encode;
use weftwork::prometheus_client::registry::Registry;
use weftwork::{
    Feed, FeedLimits, Handler, HandlerExt, Request, Response, Result, Running, ServerStatus, Settings,
};
use weftwork_wire::ErrorCode;

use super::CASE;
use crate::support::{Http2Client, TIMEOUT, eventually, Lines, noise};

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
        Observed::start_site(answer, change)
    }

    fn start_site(site: impl Handler, change: impl FnOnce(Settings) -> Settings) -> Observed {
        let lines = Lines::default();
        let log = AccessLog::to(LogFormat::Json, lines.clone()).unwrap();
        let metrics = Metrics::new();
        let site = site.with(metrics.clone()).with(log);
        Observed { running: CASE.bind(change).start(site).unwrap(), metrics, lines }
    }

    fn log(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits until one line of the log has these parts.
    #[track_caller]
    fn logs(&self, parts: &[&str]) {
        eventually(&format!("{parts:?} in {}", self.log()), || {
            let lines = self.log();
            lines.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count() == 1
        });
    }

    #[track_caller]
    fn counts(&self, line: &str) {
        eventually(line, || page_of(self.running.status()).contains(&format!("{line}\n")));
    }
}

/// Bytes of a body that is longer than a window. So its end waits at the connection, while its request is over.
const LONG: usize = 100_000;
/// Bytes of it that a client takes without a word.
const WINDOW: usize = 65_535;
/// Paths of such bodies, one of each kind.
const LONG_PATHS: [&str; 5] = ["/bytes", "/file", "/stream", "/feed", "/later"];

fn answer(req: &mut Request) -> Result<Response> {
    Ok(match req.path() {
        "/bytes" => Response::bytes(noise(LONG)),
        "/file" => {
            let mut file = tempfile::tempfile()?;
            file.write_all(&noise(LONG))?;
            Response::file(file)?
        }
        "/stream" => Response::stream(|out| out.write_all(&noise(LONG))),
        "/feed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            std::thread::spawn(move || {
                // A client that leaves closes the feed.
                noise(LONG).chunks(10_000).for_each(|part| sender.send(part.to_vec()).unwrap_or_default());
                sender.close();
            });
            Response::feed(feed)
        }
        "/later" => {
            let (sender, response) = Response::later(TIMEOUT, "late");
            std::thread::spawn(move || sender.send(Response::bytes(noise(LONG))));
            response
        }
        "/never" => {
            let (sender, response) = Response::later(4 * TIMEOUT, "late");
            // Nothing drops it.
            std::mem::forget(sender);
            response
        }
        "/huge" => Response::bytes(noise(32 << 20)),
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
    let has = |status: &str| {
        let page = weftwork::TestClient::new(observed.metrics.page()).get("/metrics").send();
        page.text().lines().any(|line| {
            line.starts_with("http_server_request_duration_seconds_count")
                && line.contains(&format!("http_response_status_code=\"{status}\""))
                && line.ends_with("network_protocol_version=\"2\"} 1")
        })
    };
    eventually("a count of 200", || has("200"));
    // The server itself refuses this one.
    let stream = client.get("no path");
    assert_eq!(client.answer(stream).status, 400);
    eventually("a count of 400", || has("400"));
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
    client.grant(0, 1 << 20);
    let stream = client.get("/bytes?stall");
    client.wait_for_reset(stream);
    let taken = format!("\"bytes\":{WINDOW}");
    observed.logs(&["/bytes?stall", "\"status\":499", &taken, "\"error\":\"write_timeout\""]);
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

/// The request is over, and a part of its response waits at the connection.
#[test]
fn a_response_that_the_client_does_not_wait_for_is_no_200() {
    for path in LONG_PATHS {
        let observed = Observed::start(|settings| settings);
        for how in ["reset", "leave"] {
            let target = format!("{path}?{how}");
            let mut client = Http2Client::connect(&observed.running);
            client.grants = false;
            let stream = client.get(&target);
            client.wait_for_bytes(stream, WINDOW);
            assert!(!observed.log().contains(&target), "{}", observed.log());
            match how {
                "reset" => client.reset(stream),
                _ => client.vanish(),
            }
            observed.logs(&[&target, "\"status\":499", "\"whole\":false", "\"error\":\"client_gone\""]);
        }
        assert!(!observed.log().contains("\"whole\":true"), "{}", observed.log());
    }
}

/// The windows are open, and the buffers of the kernel are full.
#[test]
fn a_response_that_fills_the_socket_is_no_200() {
    let observed = Observed::start(|settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    client.grant(0, 1 << 30);
    let stream = client.get("/huge");
    client.grant(stream, 1 << 30);
    client.wait_for_bytes(stream, 2 * WINDOW);
    client.vanish();
    observed.logs(&["/huge", "\"status\":499", "\"whole\":false", "\"error\":\"client_gone\""]);
}

/// The windows are open, and the client does not read. The kernel ends the connection after twice the timeout.
#[test]
fn a_client_that_stops_reading_is_a_write_timeout() {
    let observed = Observed::start(|settings| settings.write_timeout(Duration::from_secs(1)));
    let mut client = Http2Client::connect(&observed.running);
    client.grant(0, 1 << 30);
    client.get("/never");
    let streams = client.get_all(["/huge", "/endless"]);
    streams.into_iter().for_each(|stream| client.grant(stream, 1 << 30));
    for path in ["/huge", "/endless", "/never"] {
        observed.logs(&[path, "\"status\":499", "\"whole\":false", "\"error\":\"write_timeout\""]);
    }
}

/// The client leaves as soon as it has read everything.
#[test]
fn responses_that_arrived_are_200_although_the_client_leaves() {
    let observed = Observed::start(|settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    let short = client.get_all(["/?1", "/?2", "/?3"]);
    let long = client.get_all(LONG_PATHS);
    let head = client.request("HEAD", "/bytes?head", &[], true);
    for stream in short {
        client.answer(stream).is(200, "hello");
    }
    for stream in long {
        client.answer(stream).is(200, noise(LONG));
    }
    client.answer(head).is(200, "");
    client.vanish();
    let whole = ["\"status\":200", "\"whole\":true"];
    for target in ["/?1", "/?2", "/?3"] {
        observed.logs(&[&format!("\"target\":\"{target}\""), whole[0], whole[1], "\"bytes\":5,"]);
    }
    for target in LONG_PATHS {
        observed.logs(&[&format!("\"target\":\"{target}\""), whole[0], whole[1], "\"bytes\":100000,"]);
    }
    observed.logs(&["/bytes?head", whole[0], whole[1], "\"bytes\":0,"]);
    eventually("the connection ends", || observed.running.stats().connections == 0);
    assert_eq!(observed.log().lines().count(), 3 + LONG_PATHS.len() + 1, "{}", observed.log());
}

#[test]
fn a_response_that_the_server_breaks_off_is_not_whole() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    (&*file).write_all(&noise(LONG)).unwrap();
    let served = file.clone();
    let site = move |_: &mut Request| Response::file(served.try_clone()?);
    let observed = Observed::start_site(site, |settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    client.grants = false;
    let stream = client.get("/shorter");
    client.wait_for_bytes(stream, WINDOW);
    file.set_len(WINDOW as u64).unwrap();
    client.grant(0, 1 << 20);
    client.grant(stream, 1 << 20);
    assert_eq!(client.wait_for_reset(stream), ErrorCode::INTERNAL_ERROR);
    let taken = format!("\"bytes\":{WINDOW}");
    observed.logs(&["/shorter", &taken, "\"whole\":false", "\"error\":\"cut_short\""]);
    file.set_len(LONG as u64).unwrap();
    let stream = client.get("/stopped");
    client.wait_for_head(stream);
    let Observed { running, lines, .. } = observed;
    running.shutdown(Duration::ZERO);
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line = log.lines().find(|line| line.contains("/stopped")).unwrap_or_default();
    assert!(line.contains("\"whole\":false,\"error\":\"shutdown\""), "{log}");
}

/// What is not sent takes nothing of the connection's window.
#[test]
fn responses_that_break_off_leave_the_window_to_others() {
    let site = |req: &mut Request| -> weftwork::Result<Response> {
        if req.path() != "/shorter" {
            return Ok(Response::text("whole"));
        }
        let file = tempfile::tempfile()?;
        file.set_len(LONG as u64)?;
        let response = Response::file(file.try_clone()?)?;
        file.set_len(0)?;
        Ok(response)
    };
    let observed = Observed::start_site(site, |settings| settings);
    let mut client = Http2Client::connect(&observed.running);
    client.grants = false;
    for _ in 0..5 {
        let stream = client.get("/shorter");
        assert_eq!(client.wait_for_reset(stream), ErrorCode::INTERNAL_ERROR);
    }
    let stream = client.get("/");
    client.answer(stream).is(200, "whole");
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
