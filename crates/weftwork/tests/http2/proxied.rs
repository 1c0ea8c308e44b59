//! Tests that requests pass a proxy to a server of HTTP/2 unchanged, and share its connections.

use std::time::Duration;

use weftwork::http::{HeaderName, HeaderValue, StatusCode};
use weftwork::{Proxy, Request, Response, Running};

use super::CASE;
use crate::Waits;
use crate::support::{Client, Http2Client, Site, chunks, eventually, noise, own_address};

const MIB: usize = 1 << 20;

/// Starts a proxy to a server in clear.
pub(crate) fn before(server: &Running, change: impl FnOnce(Proxy) -> Proxy) -> Running {
    let proxy = Proxy::to(&format!("h2c://{}", server.local_addr().unwrap())).unwrap();
    CASE.bind(|settings| settings.body_bytes_max(64 << 20)).start(change(proxy)).unwrap()
}

fn pair() -> (Site, Running) {
    let upstream = CASE.site_with(|settings| settings.body_bytes_max(64 << 20));
    let proxy = before(&upstream.running, |proxy| proxy);
    (upstream, proxy)
}

#[track_caller]
fn is_well(upstream: &Site, proxy: Running) {
    Client::connect(&proxy).get("/").is(200, "hello");
    eventually("every client's connection ends", || proxy.stats().connections == 0);
    drop(proxy);
    eventually("every upstream connection ends", || upstream.running.stats().connections == 0);
}

#[test]
fn requests_of_http_1_pass_on_one_connection() {
    let (upstream, proxy) = pair();
    let mut client = Client::connect(&proxy);
    for _ in 0..3 {
        client.get("/").is(200, "hello");
    }
    client.get("/status/404").is(404, "text");
    assert_eq!(client.get("/bytes/3000000").body, noise(3_000_000));
    assert_eq!(client.get("/stream/300000").body, noise(300_000));
    let sent = noise(3 * MIB);
    for path in ["/echo-any", "/echo-stream"] {
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", sent.len()));
        let aside = client.send_aside(sent.clone());
        client.answer().is(200, &sent);
        aside.join().unwrap().unwrap();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let aside = client.send_aside([chunks(&sent, 9_999), b"0\r\n\r\n".to_vec()].concat());
        client.answer().is(200, &sent);
        aside.join().unwrap().unwrap();
    }
    client.send("HEAD /bytes/7 HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("7")));
    client.send("HEAD /stream/300000 HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, None));
    assert_eq!(client.get("/status/204").status, 204);
    assert_eq!(client.get("/status/304").status, 304);
    client.get("/").is(200, "hello");
    assert_eq!(upstream.running.stats().accepted, 1, "all share a connection");
    drop(client);
    is_well(&upstream, proxy);
}

#[test]
fn requests_of_http_2_pass() {
    let (upstream, proxy) = pair();
    let mut client = Http2Client::connect(&proxy);
    for size in [0, 1, 1000, 70_000, MIB] {
        for path in ["/echo-any", "/echo-stream"] {
            for has_length in [true, false] {
                let stream = client.post(path, &noise(size), has_length);
                client.answer(stream).is(200, noise(size));
            }
        }
    }
    let stream = client.request("HEAD", "/bytes/7", &[], true);
    assert_eq!(client.answer(stream).field("content-length"), Some("7"));
    for status in [204, 304, 404] {
        let stream = client.get(&format!("/status/{status}"));
        assert_eq!(client.answer(stream).status, status);
    }
    drop(client);
    is_well(&upstream, proxy);
}

/// Fields for one connection stay, and the server learns who asks.
#[test]
fn the_server_gets_the_head_in_http_2() {
    let upstream = CASE.start(|req: &mut Request| {
        let fields = req.header_lines().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
        let mut fields: Vec<_> = fields.filter(|field| !field.starts_with("x-forwarded-for")).collect();
        fields.sort();
        format!("{:?} {} {} {}", req.version(), req.host().unwrap(), req.target(), fields.join(" "))
    });
    let proxy = before(&upstream, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send(
        "GET /a?b HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
         Keep-Alive: 5\r\nUpgrade: websocket\r\nProxy-Connection: x\r\nX-Mixed: A, b\r\n\r\n",
    );
    let seen = "HTTP/2.0 a.example /a?b host=a.example te=trailers via=1.1 weftwork x-forwarded-host=a.example \
                x-forwarded-proto=http x-mixed=A, b";
    client.answer().is(200, seen);
    let mut client = Http2Client::connect(&proxy);
    let stream = client.request("GET", "/a?b", &[("te", "trailers"), ("cookie", "c")], true);
    let seen = "HTTP/2.0 a /a?b cookie=c host=a te=trailers via=2.0 weftwork x-forwarded-host=a x-forwarded-proto=http";
    client.answer(stream).is(200, seen);
}

#[test]
fn many_requests_at_once_share_a_connection() {
    let Some(gate) = CASE.gate() else { return };
    let (upstream, proxy) = pair();
    let mut client = Http2Client::connect(&proxy);
    let streams = client.get_all([gate; 20]);
    eventually("all requests arrive", || upstream.calls() == 20);
    assert_eq!(upstream.running.stats().accepted, 1);
    // A request passes the others.
    let stream = client.get("/");
    client.answer(stream).is(200, "hello");
    upstream.inside.gate.open();
    streams.into_iter().for_each(|stream| client.answer(stream).is(200, "passed"));
    drop(client);
    is_well(&upstream, proxy);
}

/// SETTINGS_MAX_CONCURRENT_STREAMS.
#[test]
fn a_connection_has_as_many_requests_as_its_server_takes() {
    let Some(gate) = CASE.gate() else { return };
    let upstream = CASE.site_with(|settings| settings.http2_streams_max(2));
    let proxy = before(&upstream.running, |proxy| proxy);
    let mut client = Http2Client::connect(&proxy);
    let streams = client.get_all([gate; 6]);
    eventually("all requests arrive", || upstream.calls() == 6);
    assert_eq!(upstream.running.stats().accepted, 3);
    upstream.inside.gate.open();
    streams.into_iter().for_each(|stream| client.answer(stream).is(200, "passed"));
}

#[test]
fn a_dialogue_passes_in_order() {
    let (upstream, proxy) = pair();
    let mut client = Http2Client::connect(&proxy);
    let fields = [("expect", "100-continue")];
    let stream = client.request("POST", "/echo-stream", &fields, false);
    client.wait("100", |client| client.interim(stream) == [100]);
    for count in 1..=20 {
        client.send_data(stream, b"part", false);
        client.wait_for_bytes(stream, 4 * count);
    }
    client.send_data(stream, b"", true);
    client.answer(stream).is(200, b"part".repeat(20));
    drop(client);
    is_well(&upstream, proxy);
}

/// gRPC has its status in them.
#[test]
fn trailers_pass_both_ways() {
    let (upstream, proxy) = pair();
    let mut client = Http2Client::connect(&proxy);
    let fields = [("te", "trailers")];
    for path in ["/trailers-out/", "/trailers-out/first"] {
        let stream = client.request("GET", path, &fields, true);
        let answer = client.answer(stream);
        assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())], "{path}");
    }
    for fields in [&[][..], &[("content-length", "4")]] {
        for waits in [false, true] {
            let stream = client.request("POST", "/trailers", fields, false);
            client.send_data(stream, b"body", false);
            if waits {
                client.ping();
            }
            client.send_trailers(stream, &[("x-sum", "7"), ("traceparent", "1"), ("x_real_ip", "1")]);
            client.answer(stream).is(200, "body|x-sum=7");
        }
    }
    drop(client);
    let mut client = Client::connect(&proxy);
    client.send("GET /trailers-out/ HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(client.answer().trailers, [("x-sum".to_owned(), "7".to_owned())]);
    client.send("POST /trailers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n");
    client.answer().is(200, "body|x-sum=7");
    drop(client);
    is_well(&upstream, proxy);
}

#[test]
fn interim_responses_pass() {
    let upstream = CASE.start(|req: &mut Request| -> weftwork::Result<Response> {
        let link = (HeaderName::from_static("link"), HeaderValue::from_static("</a>"));
        req.interim(StatusCode::EARLY_HINTS, &[link])?;
        Ok(Response::text("done"))
    });
    let proxy = before(&upstream, |proxy| proxy);
    let mut client = Http2Client::connect(&proxy);
    let stream = client.get("/");
    client.answer(stream).is(200, "done");
    assert_eq!(client.interim(stream), [103]);
}

/// The server's handler learns that its client has gone.
#[test]
fn a_client_that_leaves_ends_its_request_alone() {
    // The handler waits on its own, and stops a loop.
    if CASE.waits != Waits::Anyhow {
        return;
    }
    let (upstream, proxy) = pair();
    let mut other = Http2Client::connect(&proxy);
    let stream = other.get("/gate");
    let client = {
        let mut client = Http2Client::connect(&proxy);
        client.get("/gone");
        client
    };
    eventually("both requests arrive", || upstream.calls() == 2);
    client.vanish();
    eventually("the handler sees it", || {
        upstream.inside.left.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    upstream.inside.gate.open();
    other.answer(stream).is(200, "passed");
    assert_eq!(upstream.running.stats().accepted, 1, "the connection goes on");
    drop(other);
    is_well(&upstream, proxy);
}

/// What it does not read waits at the server.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    // The proxy waits for its client, and its loop waits too.
    if CASE.waits == Waits::ForClient {
        return;
    }
    let (upstream, proxy) = pair();
    let mut slow = Client::connect(&proxy);
    slow.send("GET /stream/30000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(slow.answer_head().status, 200);
    let mut client = Client::connect(&proxy);
    for _ in 0..20 {
        assert_eq!(client.get("/bytes/1000000").body, noise(1_000_000));
    }
    assert_eq!(upstream.running.stats().accepted, 1);
    assert!(upstream.running.stats().connections > 0);
    // The rest comes when it reads.
    let mut count = 0;
    loop {
        let chunk = slow.chunk();
        count += chunk.len();
        if chunk.is_empty() {
            break;
        }
    }
    assert_eq!(count, 30_000_000);
    drop((slow, client));
    is_well(&upstream, proxy);
}

#[test]
fn a_connection_is_not_kept_if_none_may_be() {
    let upstream = CASE.site();
    let proxy = before(&upstream.running, |proxy| proxy.idle_connections_max(0));
    let mut client = Client::connect(&proxy);
    for count in 1..=3 {
        client.get("/").is(200, "hello");
        assert_eq!(upstream.running.stats().accepted, count);
    }
    eventually("every upstream connection ends", || upstream.running.stats().connections == 0);
}

#[test]
fn a_server_that_stops_and_another_one_that_starts_are_noticed() {
    let upstream = CASE.bind_at(&own_address(), |s| s).start(|_: &mut Request| "hello").unwrap();
    let address = upstream.local_addr().unwrap();
    let proxy = before(&upstream, |proxy| proxy.connect_timeout(Duration::from_secs(2)));
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "hello");
    drop(upstream);
    assert_eq!(client.get("/").status, 502, "nobody is there");
    let again = CASE.bind_at(&address.to_string(), |s| s).start(|_: &mut Request| "again").unwrap();
    client.get("/").is(200, "again");
    drop(again);
}
