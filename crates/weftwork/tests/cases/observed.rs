//! Tests that metrics and access log see what clients see, however a response is made.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use weftwork::middleware::{AccessLog, LogFormat, Metrics};
use weftwork::http::header::CONTENT_LENGTH;
use weftwork::{
    Dashboard, Feed, FeedLimits, Handler, HandlerExt, Request, Response, Router, Running, Settings,
};

use super::addresses::Path;
use super::{CASE, proxy_to};
use crate::support::{Client, Gate, Lines, eventually, is_logged, keep_log, over_http2, tls};

struct Observed {
    running: Running,
    lines: Lines,
}

impl Observed {
    fn start(site: impl Handler, change: impl FnOnce(Settings) -> Settings) -> Observed {
        Observed::start_at("127.0.0.1:0", site, change)
    }

    fn start_at(address: &str, site: impl Handler, change: impl FnOnce(Settings) -> Settings) -> Observed {
        let lines = Lines::default();
        let log = AccessLog::to(LogFormat::Json, lines.clone()).unwrap();
        let server = CASE.bind(address).settings(change);
        let metrics = Metrics::new().server(server.status());
        let server = server.admin("127.0.0.1:0", metrics.page()).unwrap();
        let running = server.start(site.with(metrics).with(log)).unwrap();
        Observed { running, lines }
    }

    fn page(&self) -> String {
        Client::connect_in_clear(&self.running.admin_addresses()[0]).get("/").text().to_owned()
    }

    /// Waits until one response has these labels, and one line these parts.
    fn sees(&self, labels: &[&str], parts: &[&str]) {
        eventually(&format!("{labels:?} on the page, {parts:?} in the log"), || {
            let page = self.page();
            let is_counted = page.lines().any(|line| {
                line.starts_with("http_server_request_duration_seconds_count")
                    && line.ends_with("} 1")
                    && labels.iter().all(|label| line.contains(label))
            });
            let lines = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
            is_counted && lines.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count() == 1
        });
    }
}

fn status(code: u16) -> String {
    format!("http_response_status_code=\"{code}\"")
}

/// The stream of the dashboard shows the requests that come while a page is open.
#[test]
fn a_dashboard_on_the_side_listener_shows_the_load() {
    let server = CASE.bind("127.0.0.1:0");
    let metrics = Metrics::new();
    let side = Router::new().get("/live", Dashboard::new(&metrics, server.status()));
    let running = server.admin("127.0.0.1:0", side).unwrap().start((|_: &mut Request| "hello").with(metrics)).unwrap();
    let connect = || Client::connect_in_clear(&running.admin_addresses()[0]);
    let page = connect().get("/live");
    assert!(page.text().contains("data-dashboard") && !page.text().contains("<style"), "{}", page.text());
    let policy = page.field("content-security-policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
    for (path, kind) in [("/live?script", "text/javascript"), ("/live?style", "text/css")] {
        let part = connect().get(path);
        assert!(part.status == 200 && part.field("content-type").unwrap().starts_with(kind), "{path}");
    }
    // No page was open, so there is no history.
    let mut stream = connect();
    stream.send("GET /live?events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(stream.answer_head().field("content-type"), Some("text/event-stream"));
    assert_eq!(stream.chunk(), b"event: history\ndata: []\n\n");
    let mut client = Client::connect(&running);
    eventually("a sample shows a request", || {
        client.get("/").is(200, "hello");
        let sample = String::from_utf8(stream.chunk()).unwrap();
        assert!(sample.starts_with("event: sample\ndata: {\"at\":"), "{sample}");
        let has_load = !sample.contains("\"p99\":null") && !sample.contains("\"requests\":0.0");
        has_load && sample.contains("\"connections\":1") && !sample.contains("\"threads\":0")
    });
    // A second page gets the samples of the first one.
    let mut second = connect();
    second.send("GET /live?events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(second.answer_head().status, 200);
    assert!(second.chunk().starts_with(b"event: history\ndata: [{\"at\":"));
}

#[test]
fn responses_of_the_server_itself_are_seen() {
    let bug = |_: &mut Request| -> Response { panic!("as expected by the test") };
    let site = Router::new().get("/bug", bug).get("/", || "hello");
    let observed = Observed::start(site, |settings| {
        settings.head_timeout(Duration::from_millis(200)).head_bytes_max(4 << 10).request_line_bytes_max(512)
    });
    for (request, code, error) in [
        ("bad\r\n\r\n".to_owned(), 400, "malformed_request"),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(600)), 414, "malformed_request"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(5000)), 431, "malformed_request"),
        ("GET / HTTP/1.1\r\nHo".to_owned(), 408, "head_timeout"),
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 421, "misdirected_request"),
    ] {
        if code == 421 && tls::is_on() {
            // Not over TLS: an https target is right there.
            continue;
        }
        let mut client = Client::connect(&observed.running);
        client.send(request);
        assert_eq!(client.answer().status, code);
        let (label, in_log) = (format!("error_type=\"{error}\""), format!("\"error\":\"{error}\""));
        observed.sees(&[&status(code), &label], &[&format!("\"status\":{code}"), &in_log]);
    }
    let mut client = Client::connect(&observed.running);
    client.send("GET /bug HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status, 500);
    observed.sees(&[&status(500), "http_route=\"/bug\""], &["\"status\":500", "\"target\":\"/bug\""]);
    let page = observed.page();
    for line in ["weftwork_timeouts_total{kind=\"head\"} 1", "weftwork_faults_total{rule=\"RFC 9112 §3\"} "] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}

/// Over TLS there is no session yet, so the client gets an alert. Its status is still that of its fault.
#[test]
fn a_client_without_a_proxy_header_is_seen_with_its_status() {
    for (trusted, code, error) in [("127.0.0.1", 400, "proxy_header"), ("192.0.2.1", 403, "untrusted_proxy")] {
        let change = |settings: Settings| settings.trusted_proxies(trusted.parse().unwrap());
        let observed = Observed::start_at("proxy+127.0.0.1:0", |_: &mut Request| "never", change);
        let mut client = Client::connect(&observed.running);
        client.send_behind("", "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.refusal();
        let (label, in_log) = (format!("error_type=\"{error}\""), format!("\"error\":\"{error}\""));
        observed.sees(&[&status(code), &label], &[&format!("\"status\":{code}"), &in_log]);
    }
}

/// Returns once the client has left, as a handler that works for long would look.
fn wait_for_leave(req: &Request) {
    eventually("the client has left", || req.client_gone());
}

/// The client leaves while the handler runs. The handler's 200 reaches nobody.
#[test]
fn a_client_that_left_is_not_a_200() {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let slow = move |req: &mut Request| {
        passed.pass();
        wait_for_leave(req);
        "passed"
    };
    let observed = Observed::start(Router::new().get("/slow", slow), |settings| settings);
    let mut client = Client::connect(&observed.running);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for(1);
    // After a plain close, the reset follows the response, on a busy host after the response was counted.
    client.reset();
    // A call of less than a millisecond counts as one during which no client leaves.
    std::thread::sleep(Duration::from_millis(5));
    gate.open();
    let labels = [&status(499), "error_type=\"client_gone\"", "http_route=\"/slow\""];
    observed.sees(&labels, &["\"status\":499", "\"error\":\"client_gone\"", "\"whole\":false"]);
    assert!(!observed.page().contains(&status(200)));
}

/// The client closes its socket while the handler runs. The response is larger than what the kernel takes at once, so a part of it
/// is sent to a client that is known to be gone.
#[test]
fn a_client_that_closes_does_not_get_its_200() {
    let path = Path::new("observed");
    for address in ["127.0.0.1:0", &path.address()] {
        let gate = Arc::new(Gate::default());
        let passed = gate.clone();
        let large = move |req: &mut Request| {
            passed.pass();
            wait_for_leave(req);
            Response::bytes(vec![b'x'; 32 << 20])
        };
        let observed = Observed::start_at(address, Router::new().get("/large", large), |settings| settings);
        let mut client = Client::connect(&observed.running);
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        gate.wait_for(1);
        drop(client);
        gate.open();
        let labels = [&status(499), "error_type=\"client_gone\"", "http_route=\"/large\""];
        observed.sees(&labels, &["\"status\":499", "\"error\":\"client_gone\"", "\"whole\":false"]);
    }
}

/// The kernel ends the connection after twice the timeout, which is no `write_timeout`.
#[test]
fn a_client_that_stops_reading_is_a_write_timeout() {
    let large = |_: &mut Request| Response::bytes(vec![b'x'; 32 << 20]);
    let observed = Observed::start(large, |settings| settings.write_timeout(Duration::from_secs(1)));
    let mut client = Client::connect(&observed.running);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let labels = [&status(499), "error_type=\"write_timeout\""];
    observed.sees(&labels, &["\"status\":499", "\"error\":\"write_timeout\"", "\"whole\":false"]);
}

/// RFC 9112 section 9.6: a client that has closed its sending side may still read.
#[test]
fn a_client_that_has_closed_its_sending_side_gets_its_200() {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let slow = move |_: &mut Request| {
        passed.pass();
        "passed"
    };
    let observed = Observed::start(slow, |settings| settings);
    let mut client = Client::connect(&observed.running);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for(1);
    client.half_close();
    std::thread::sleep(Duration::from_millis(5));
    gate.open();
    client.answer().is(200, "passed");
    observed.sees(&[&status(200)], &["\"status\":200", "\"whole\":true"]);
}

/// Returns a feed that declares this many bytes, and has another number of them.
fn feed_of(declared: usize, bytes: &'static [u8]) -> Response {
    let (sender, feed) = Feed::new(FeedLimits::default());
    sender.send(bytes).unwrap();
    Response::feed(feed).with_header(CONTENT_LENGTH, declared)
}

/// Returns the address of an upstream server that sends a part of a response, and the rest when its client has the head.
fn upstream(part: &'static str, rest: &'static str, gate: &Arc<Gate>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let gate = gate.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = BufReader::new(stream.try_clone().unwrap());
        while head.read_line(&mut String::new()).unwrap() > 2 {}
        stream.write_all(part.as_bytes()).unwrap();
        gate.pass();
        stream.write_all(rest.as_bytes()).unwrap();
    });
    address
}

/// The client waits, so it has not gone.
#[test]
fn a_response_that_the_server_breaks_off_is_cut_short() {
    keep_log();
    let name = module_path!().replace("::", "-");
    let gate = Arc::new(Gate::default());
    let early = upstream("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst", "", &gate);
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let malformed = upstream(chunks, "no length\r\n", &gate);
    let site = Router::new()
        .get("/long-feed/{name}", || feed_of(5, b"too long"))
        .get("/short-feed/{name}", || feed_of(5, b"few"))
        .get("/writer", || {
            Response::stream(|out| {
                out.write_all(b"first")?;
                out.flush()?;
                Err(io::Error::other("as asked"))
            })
        })
        .get("/early", proxy_to(&early))
        .get("/malformed", proxy_to(&malformed));
    let observed = Observed::start(site, |settings| settings);
    let [long, short] = ["long", "short"].map(|kind| format!("/{kind}-feed/{name}"));
    for path in [&long, &short, "/writer", "/malformed", "/early"] {
        gate.shut();
        let mut client = Client::connect(&observed.running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer_head().status, 200, "{path}");
        gate.open();
        assert!(!client.rest().ends_with(b"0\r\n\r\n"), "{path}");
        let route = path.replace(&name, "{name}");
        let labels = [&status(200), "error_type=\"cut_short\"", &format!("http_route=\"{route}\"")];
        observed.sees(&labels, &[path, "\"status\":200", "\"error\":\"cut_short\"", "\"whole\":false"]);
    }
    // The program has declared another length.
    for path in [long, short] {
        is_logged(&["ERROR", &format!("GET {path}"), "than its head declared"]);
    }
}

/// The client sends a part of its body, and waits.
#[test]
fn a_client_whose_body_stops_has_not_gone() {
    let echo = |_: &mut Request| {
        Response::stream(|out| {
            let mut part = Vec::with_capacity(4096);
            while out.read_request_buf(&mut part)? > 0 {
                out.write_all(&part)?;
                out.flush()?;
                part.clear();
            }
            Ok(())
        })
    };
    let observed = Observed::start(echo, |s| s.body_ahead_bytes_max(0).body_idle_timeout(Duration::from_secs(1)));
    let mut client = Client::connect(&observed.running);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nfirst");
    assert_eq!(client.answer_head().status, 200);
    assert!(!client.rest().ends_with(b"0\r\n\r\n"));
    let labels = [&status(200), "error_type=\"cut_short\""];
    observed.sees(&labels, &["\"status\":200", "\"error\":\"cut_short\"", "\"whole\":false"]);
}

/// A client that sends its head slowly is no idle one.
#[test]
fn a_part_of_a_first_head_is_read() {
    if tls::is_on() || over_http2::is_on() {
        return;
    }
    let observed = Observed::start(|_: &mut Request| "hello", |settings| settings);
    let mut client = Client::connect(&observed.running);
    client.send("GET /");
    eventually("a connection is read", || {
        observed.page().contains("weftwork_connections{state=\"reading\"} 1\n")
    });
    client.send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer().is(200, "hello");
    eventually("no connection is read", || {
        observed.page().contains("weftwork_connections{state=\"reading\"} 0\n")
    });
}

#[test]
fn a_file_that_gets_shorter_is_cut_short() {
    keep_log();
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.set_len(64 << 20).unwrap();
    let served = file.clone();
    let site = Router::new()
        .get("/hello", || "hello")
        .get("/file", move || Response::file(served.try_clone()?));
    let observed = Observed::start(site, |settings| settings);
    let mut client = Client::connect(&observed.running);
    client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /file HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer().is(200, "hello");
    assert_eq!(client.answer_head().status, 200);
    file.set_len(0).unwrap();
    client.rest();
    let labels = [&status(200), "error_type=\"cut_short\"", "http_route=\"/file\""];
    observed.sees(&labels, &["/file", "\"status\":200", "\"error\":\"cut_short\"", "\"whole\":false"]);
    // The response before it has arrived.
    observed.sees(&[&status(200), "http_route=\"/hello\""], &["/hello", "\"whole\":true"]);
    is_logged(&["ERROR", "a file got shorter while it was sent"]);
}
