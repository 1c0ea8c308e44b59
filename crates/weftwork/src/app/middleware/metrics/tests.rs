//! Tests that each request is counted once, under labels that a client cannot invent, and that the page shows
//! it.

use std::io::{self, Write};

use http::StatusCode;

use super::*;
use crate::app::middleware::HandlerExt;
use crate::{Problem, Router, Server, TestClient};

const ACTIVE: &str = "http_server_active_requests{http_request_method=\"GET\",url_scheme=\"http\"} ";

/// Returns the lines of a page that begin with `name`.
fn lines(page: &str, name: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

#[test]
fn requests_are_counted_by_route_method_and_status() {
    let metrics = Metrics::new();
    let site = Router::new()
        .get("/users/{id}", |_: &mut Request<'_>| "a user")
        .any("/any", |_: &mut Request<'_>| StatusCode::IM_A_TEAPOT);
    let mut client = TestClient::new(site.with(metrics.clone()));
    for target in ["/users/7", "/users/8?a=b", "/nobody", "/nor/here"] {
        client.get(target).send();
    }
    for method in ["BREW", "PURGE", "TRACE"] {
        client.request(method.parse().unwrap(), "/any").send();
    }
    let counts = lines(&metrics.text(), "http_server_request_duration_seconds_count{");
    for (method, route, status, count) in [
        ("GET", "/users/{id}", 200, 2),
        ("GET", "", 404, 2),
        ("_OTHER", "/any", 418, 2),
        ("TRACE", "/any", 418, 1),
    ] {
        let wanted = format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{method}\",url_scheme=\"http\",\
             http_route=\"{route}\",http_response_status_code=\"{status}\",error_type=\"\",\
             network_protocol_version=\"1.1\"}} {count}"
        );
        assert!(counts.contains(&wanted), "{wanted} is not in {counts:#?}");
    }
    assert_eq!(counts.len(), 4, "{counts:#?}");
    assert_eq!(
        lines(&metrics.text(), "http_server_active_requests{http_request_method=\"GET\""),
        [ACTIVE.to_owned() + "0"]
    );
}

/// A proxy in front speaks TLS with its client, and may speak HTTP/1.0 with this server.
#[test]
fn scheme_and_version_are_those_of_the_request() {
    let metrics = Metrics::new();
    let client = TestClient::new((|_: &mut Request<'_>| "x").with(metrics.clone()));
    let client = client.settings(|settings| settings.trusted_proxies("127.0.0.1".parse().unwrap()));
    for (version, scheme, more, status) in [
        ("1.0", "https", "", 200),
        ("1.1", "https", "", 200),
        ("1.1", "http", "", 200),
        // The server itself refuses this one.
        ("1.1", "https", "Transfer-Encoding: chunked\r\n\r\nno length", 400),
    ] {
        let mut connection = client.connect();
        connection
            .send(format!("GET / HTTP/{version}\r\nHost: a\r\nX-Forwarded-Proto: {scheme}\r\n{more}\r\n"));
        assert_eq!(connection.response().status, status);
        let counts = lines(&metrics.text(), "http_server_request_duration_seconds_count{");
        let labels = [
            format!("url_scheme=\"{scheme}\""),
            format!("network_protocol_version=\"{version}\"}} 1"),
            format!("status_code=\"{status}\""),
        ];
        let is_there = counts.iter().any(|line| labels.iter().all(|label| line.contains(label)));
        assert!(is_there, "{labels:?}: {counts:#?}");
    }
}

#[test]
fn a_response_that_comes_later_counts_with_its_own_status() {
    let metrics = Metrics::new();
    let handler = |_: &mut Request<'_>| {
        let (sender, response) = Response::later(std::time::Duration::from_secs(60), StatusCode::NO_CONTENT);
        sender.send("news").unwrap();
        response
    };
    TestClient::new(handler.with(metrics.clone())).get("/").send();
    let counts = lines(&metrics.text(), "http_server_request_duration_seconds_count{");
    assert!(counts.len() == 1 && counts[0].contains("status_code=\"200\""), "{counts:#?}");
}

#[test]
fn a_stream_is_in_progress_until_it_is_over() {
    let (metrics, inside) = (Metrics::new(), Metrics::new());
    let seen = metrics.clone();
    let stream = move |_: &mut Request<'_>| {
        let seen = seen.clone();
        Response::stream(move |out| out.write_all(seen.text().as_bytes()))
    };
    let page = TestClient::new(stream.with(metrics.clone()).with(inside)).get("/").send();
    assert_eq!(
        lines(page.text(), "http_server_active_requests{http_request_method=\"GET\""),
        [ACTIVE.to_owned() + "1"]
    );
    assert_eq!(lines(page.text(), "http_server_request_duration_seconds_count"), [""; 0]);
    assert_eq!(
        lines(&metrics.text(), "http_server_active_requests{http_request_method=\"GET\""),
        [ACTIVE.to_owned() + "0"]
    );
    assert_eq!(lines(&metrics.text(), "http_server_request_duration_seconds_count").len(), 1);
}

#[test]
fn a_panic_is_a_500() {
    let metrics = Metrics::new();
    let handler = (|_: &mut Request<'_>| -> Response { panic!("a bug") }).with(metrics.clone());
    assert_eq!(TestClient::new(handler).get("/").send().status, 500);
    let counts = lines(&metrics.text(), "http_server_request_duration_seconds_count{");
    assert!(counts.len() == 1 && counts[0].contains("status_code=\"500\",error_type=\"500\""), "{counts:?}");
    assert_eq!(
        lines(&metrics.text(), "http_server_active_requests{http_request_method=\"GET\""),
        [ACTIVE.to_owned() + "0"]
    );
}

#[test]
fn a_stream_that_does_not_begin_counts_with_the_status_that_it_gets() {
    let metrics = Metrics::new();
    let busy = || Response::stream(|_| Err(io::Error::other(Problem::new(StatusCode::SERVICE_UNAVAILABLE))));
    let site = Router::new().get("/busy", busy).with(metrics.clone());
    assert_eq!(TestClient::new(site).get("/busy").send().status, 503);
    let counts = lines(&metrics.text(), "http_server_request_duration_seconds_count{");
    assert!(counts.len() == 1 && counts[0].contains("status_code=\"503\",error_type=\"503\""), "{counts:?}");
}

#[test]
fn durations_fall_into_their_buckets() {
    let metrics = Metrics::new();
    let labels = Labels {
        http_request_method: "GET",
        url_scheme: "http",
        http_route: String::new(),
        http_response_status_code: 200,
        error_type: "",
        network_protocol_version: "1.1",
    };
    for seconds in [0.001, 0.2, 20.0] {
        metrics.shared.durations.get_or_create(&labels).observe(seconds);
    }
    let buckets = lines(&metrics.text(), "http_server_request_duration_seconds_bucket");
    assert_eq!(buckets.len(), BUCKETS.len() + 1);
    for (bound, count) in [("0.005", 1), ("0.1", 1), ("0.25", 2), ("10.0", 2), ("+Inf", 3)] {
        let (label, end) = (format!("le=\"{bound}\""), format!(" {count}"));
        let is_there = buckets.iter().any(|line| line.contains(&label) && line.ends_with(&end));
        assert!(is_there, "{label}{end}: {buckets:#?}");
    }
}

#[test]
fn the_page_has_the_format_that_was_asked_for() {
    let metrics = Metrics::new().server(Server::bind("127.0.0.1:0").unwrap().status());
    let mut client = TestClient::new(metrics.page());
    let open_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, is_open) in [
        // As Prometheus 2 and 3 send it.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            true,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.2,*/*;q=0.1",
            true,
        ),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.3", false),
        ("application/openmetrics-text;q=0", false),
        ("text/html,application/xhtml+xml,*/*;q=0.8", false),
        ("*/*", false),
    ] {
        let page = client.get("/metrics").header("accept", accept).send();
        let wanted = if is_open { open_type } else { "text/plain; version=0.0.4; charset=utf-8" };
        assert_eq!(page.header("content-type"), Some(wanted), "{accept}");
        assert_eq!((page.header("vary"), page.header("cache-control")), (Some("accept"), Some("no-store")));
        assert_eq!(page.text().ends_with("# EOF\n"), is_open, "{}", page.text());
        let counter = if is_open {
            "# TYPE weftwork_accepted counter"
        } else {
            "# TYPE weftwork_accepted_total counter"
        };
        assert!(page.text().lines().any(|line| line == counter), "{}", page.text());
    }
}

#[test]
fn the_server_and_measurements_of_ones_own_are_on_the_page() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let metrics = Metrics::new().server(server.status());
    let orders = <prometheus_client::metrics::counter::Counter>::default();
    metrics.register(|registry| registry.register("orders", "Orders taken", orders.clone()));
    orders.inc();
    let before = metrics.text();
    assert_eq!(lines(&before, "orders_total"), ["orders_total 1"]);
    assert_eq!(lines(&before, "weftwork_threads "), ["weftwork_threads 0"]);
    let running = server.start(metrics.page()).unwrap();
    let after = metrics.text();
    assert_ne!(lines(&after, "weftwork_threads "), ["weftwork_threads 0"]);
    for name in [
        "connections{state=\"idle\"}",
        "connections{state=\"sending\"}",
        "queue_length",
        "calls",
        "stopping",
        "requests_total",
        "shed_total{reason=\"queue_full\"}",
        "timeouts_total{kind=\"head\"}",
        "faults_total{rule=\"RFC 9112 §3\"}",
        "panics_total",
        "accept_errors_total",
    ] {
        assert_eq!(lines(&after, &format!("weftwork_{name} ")), [format!("weftwork_{name} 0")], "{after}");
    }
    let help = lines(&after, "# HELP weftwork_shed ");
    assert_eq!(
        help,
        [
            "# HELP weftwork_shed Requests rejected with 503 because too many waited, and upgraded connections that ended because no thread was free."
        ]
    );
    drop(running);
}
