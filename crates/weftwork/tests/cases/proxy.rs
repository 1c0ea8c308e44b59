//! Tests that a message passes a proxy unchanged and without delay, and that a failure gets the right status.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketType};
use weftwork::http::{HeaderValue, StatusCode};
use weftwork::{Event, EventHub, Proxy, Request, Response, Running, unbuffered};

use super::{CASE, proxy_to, proxy_to_server, seen_at};
use crate::support::{over_http2, tls};
use crate::support::{Client, TIMEOUT, Site, chunks, eventually, is_logged, keep_log, noise};

/// An upstream and a proxy, both on the tested engine.
struct Pair {
    upstream: Site,
    proxy: Running,
}

fn pair() -> Pair {
    let upstream = CASE.start();
    let proxy = before(&upstream.running, |proxy| proxy);
    Pair { upstream, proxy }
}

pub(crate) fn before(server: &Running, change: impl FnOnce(Proxy) -> Proxy) -> Running {
    started(change(proxy_to_server(server)))
}

pub(crate) fn before_address(address: &str, change: impl FnOnce(Proxy) -> Proxy) -> Running {
    started(change(proxy_to(address)))
}

fn started(proxy: Proxy) -> Running {
    CASE.bind("127.0.0.1:0").settings(|s| s.body_bytes_max(64 << 20)).start(proxy).unwrap()
}

/// A proxy that does not buffer.
fn unbuffered_before(address: &str) -> Running {
    CASE.bind("127.0.0.1:0").start(unbuffered(proxy_to(address))).unwrap()
}

impl Pair {
    fn client(&self) -> Client {
        Client::connect(&self.proxy)
    }

    #[track_caller]
    fn ends_well(self) {
        self.client().get("/").is(200, "hello");
        eventually("every client's connection ends", || self.proxy.stats().connections == 0);
        drop(self.proxy);
        eventually("every upstream connection ends", || self.upstream.running.stats().connections == 0);
    }
}

/// A server that reads one head from each connection, sends `answer`, and sends nothing more.
fn says(answer: &'static str) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let mut served = 0;
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            if !read_head(&mut stream).starts_with("GET /") {
                return served;
            }
            stream.write_all(answer.as_bytes()).unwrap();
            served += 1;
        }
    });
    (address, thread)
}

pub(crate) fn read_head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Ends [`says`]. Returns how many connections it answered.
fn stop(address: &str, thread: JoinHandle<usize>) -> usize {
    drop(TcpStream::connect(address).unwrap());
    thread.join().unwrap()
}

#[test]
fn requests_and_responses_are_forwarded() {
    let pair = pair();
    let mut client = pair.client();
    for _ in 0..3 {
        client.get("/").is(200, "hello");
    }
    client.get("/status/404").is(404, "text");
    assert_eq!(client.get("/bytes/3000000").body, noise(3_000_000));
    assert_eq!(client.get("/stream/300000").body, noise(300_000));
    let sent = noise(100_000);
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", sent.len()));
    client.send(&sent);
    client.answer().is(200, &sent);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunks(&sent, 999));
    client.send("0\r\n\r\n");
    client.answer().is(200, &sent);
    client.send("HEAD /bytes/7 HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("7")));
    // An unknown length is not 0.
    client.send("HEAD /stream/300000 HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, None));
    assert_eq!(client.get("/status/204").status, 204);
    client.get("/").is(200, "hello");
    assert_eq!(pair.upstream.running.stats().accepted, 3, "the connection is kept, except after HEAD");
    drop(client);
    pair.ends_well();
}

#[test]
fn a_large_body_goes_both_ways_at_once() {
    let pair = pair();
    let mut client = pair.client();
    let sent = noise(8 << 20);
    client.send("POST /echo-stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut framed = chunks(&sent, 100_000);
    framed.extend_from_slice(b"0\r\n\r\n");
    let aside = client.send_aside(framed);
    assert!(client.answer().body == sent);
    aside.join().unwrap().unwrap();
    drop(client);
    pair.ends_well();
}

#[test]
fn a_streamed_response_is_forwarded_without_buffering() {
    let pair = pair();
    let mut client = pair.client();
    client.send("GET /gate-stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(client.chunk(), b"before ");
    pair.upstream.inside.gate.open();
    assert_eq!(client.chunk(), b"after");
    assert_eq!(client.chunk(), b"");
    drop(client);
    pair.ends_well();
}

#[test]
fn events_are_forwarded_and_disconnects_reach_the_upstream() {
    let hub = EventHub::default();
    let own = hub.clone();
    let upstream = CASE.bind("127.0.0.1:0").start(move |req: &mut Request| own.join(req)).unwrap();
    let proxy = before(&upstream, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_head().field("content-type"), Some("text/event-stream"));
    for word in ["one", "two"] {
        assert_eq!(hub.send(&Event::new(word)), 1);
        assert_eq!(client.chunk(), format!("data: {word}\n\n").as_bytes());
    }
    drop(client);
    eventually("the upstream notices", || hub.clients() == 0);
}

#[test]
fn forwarded_fields_are_added_and_hop_by_hop_fields_removed() {
    let upstream = CASE.bind("127.0.0.1:0").start(|req: &mut Request| {
        let mut text = String::new();
        for (name, value) in req.header_lines() {
            text += &format!("{name}: {}\n", String::from_utf8_lossy(value));
        }
        Response::text(text)
            .with_header(weftwork::http::header::CONNECTION, HeaderValue::from_static("x-hop"))
            .with_header("x-hop", HeaderValue::from_static("1"))
            .with_header("x-end", HeaderValue::from_static("1"))
    });
    let upstream = upstream.unwrap();
    let proxy = before(&upstream, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 6.6.6.6\r\nX-One: 1\r\n\r\n");
    let answer = client.answer();
    let expected = "Host: a.example\nX-One: 1\nX-Forwarded-For: 127.0.0.1\nX-Forwarded-Host: a.example\n\
                    X-Forwarded-Proto: SCHEME\nVia: 1.1 weftwork\n";
    let scheme = if tls::is_on() { "https" } else { "http" };
    // HTTP/2 has names in lower case, and its own version.
    let expected = if over_http2::is_on() { expected.replace("X-One", "x-one").replace("1.1", "2.0") } else { expected.into() };
    answer.is(200, expected.replace("SCHEME", scheme));
    assert_eq!((answer.field("x-hop"), answer.field("x-end")), (None, Some("1")));
}

#[test]
fn a_disconnected_client_is_not_answered() {
    let pair = pair();
    let mut client = pair.client();
    client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    pair.upstream.inside.gate.wait_for(1);
    drop(client);
    eventually("the proxy gives it up", || pair.proxy.stats().connections == 0);
    pair.upstream.inside.gate.open();
    pair.ends_well();
}

#[test]
fn a_server_that_cannot_answer_is_a_bad_gateway() {
    keep_log();
    // The socket owns its port, so that no other process gets it, and does not listen.
    let deaf = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&deaf, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(net::getsockname(&deaf).unwrap()).unwrap();
    let proxy = before_address(&address.to_string(), |proxy| proxy);
    assert_eq!(Client::connect(&proxy).get("/").status, 502);
    for answer in [
        "",
        "HTTP/1.1 200",
        "no HTTP at all\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ] {
        let (address, thread) = says(answer);
        let proxy = before_address(&address, |proxy| proxy);
        assert_eq!(Client::connect(&proxy).get("/").status, 502, "{answer:?}");
        is_logged(&["WARN", &format!("proxy to {}: ", seen_at(&address))]);
        drop(proxy);
        stop(&address, thread);
    }
}

/// The client also gets the answer while it still sends.
#[test]
fn an_early_answer_whose_body_is_malformed_is_a_bad_gateway() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = proxy_to(&listener.local_addr().unwrap().to_string());
    let proxy = CASE.bind("127.0.0.1:0").start(unbuffered(proxy)).unwrap();
    let mut client = Client::connect(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
    let (mut upstream, _) = listener.accept().unwrap();
    read_head(&mut upstream);
    upstream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n").unwrap();
    client.send("b");
    assert_eq!(client.answer().status, 502);
}

#[test]
fn a_server_that_is_late_is_a_gateway_timeout() {
    let upstream = CASE.start();
    let proxy = before(&upstream.running, |proxy| proxy.response_timeout(Duration::from_millis(50)));
    let mut client = Client::connect(&proxy);
    assert_eq!(client.get("/gate").status, 504);
    upstream.inside.gate.open();
}

#[test]
fn a_truncated_upstream_response_is_truncated_for_the_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nthe begi",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nthe begi\r\n",
    ] {
        let (address, thread) = says(answer);
        let proxy = before_address(&address, |proxy| proxy);
        let mut client = Client::connect(&proxy);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = String::from_utf8(client.rest()).unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
        assert!(!got.ends_with("0\r\n\r\n") && !got.ends_with("the begin"), "{got}");
        drop(proxy);
        stop(&address, thread);
    }
}

#[test]
fn a_body_until_the_end_is_whole() {
    let (address, thread) = says("HTTP/1.0 200 OK\r\n\r\nuntil the end");
    let proxy = before_address(&address, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "until the end");
    client.get("/").is(200, "until the end");
    drop(proxy);
    assert_eq!(stop(&address, thread), 2);
}

#[test]
fn a_kept_connection_that_was_closed_costs_nothing() {
    let (address, thread) = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = before_address(&address, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    for _ in 0..5 {
        client.get("/").is(200, "ok");
    }
    drop(proxy);
    assert_eq!(stop(&address, thread), 5);
}

/// On a kept connection: the interim response shows that the server has the request.
#[test]
fn a_request_is_not_retried_after_an_interim_response() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = before_address(&listener.local_addr().unwrap().to_string(), |proxy| proxy);
    let thread = std::thread::spawn(move || {
        let (mut kept, _) = listener.accept().unwrap();
        for said in ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
            read_head(&mut kept);
            kept.write_all(said.as_bytes()).unwrap();
        }
        drop(kept);
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "ok");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let got = String::from_utf8(client.rest()).unwrap();
    assert!(got.starts_with("HTTP/1.1 103 ") && got.contains("\r\n\r\nHTTP/1.1 502 "), "{got}");
    assert!(thread.join().unwrap().accept().is_err(), "it was asked again");
}

#[test]
fn an_early_refusal_is_forwarded() {
    let upstream = CASE.bind("127.0.0.1:0").start(|_: &mut Request| {
        Response::text("too much").with_status(StatusCode::PAYLOAD_TOO_LARGE)
    });
    let upstream = upstream.unwrap();
    let proxy = before(&upstream, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
    let aside = client.send_aside(noise(30_000_000));
    client.answer().is(413, "too much");
    drop(client);
    let _ = aside.join().unwrap();
}

#[test]
fn an_alternating_exchange_is_forwarded_in_order() {
    let pair = pair();
    let mut client = pair.client();
    client.send("POST /echo-stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    // The answer to the first part has not been sent before the second part arrives.
    client.send("3\r\ntwo\r\n0\r\n\r\n");
    client.answer().is(200, "onetwo");
    drop(client);
    pair.ends_well();
}

/// Each part waits for the answer to the previous one.
#[test]
fn an_unbuffered_exchange_is_forwarded() {
    let upstream = CASE.bind("127.0.0.1:0").start(unbuffered(super::bodies::talk)).unwrap();
    let proxy = CASE.bind("127.0.0.1:0").start(unbuffered(proxy_to_server(&upstream))).unwrap();
    let mut client = Client::connect(&proxy);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n");
    assert_eq!(client.answer_head().status, 200);
    for part in ["3\r\ntwo\r\n", "5\r\nthree\r\n", "0\r\n\r\n"] {
        let before = if part.starts_with('3') { "4\r\nping\r\n" } else { "" };
        assert_eq!(client.exactly(before.len()), before.as_bytes());
        client.send(part);
        assert_eq!(client.exactly(part.len()), part.as_bytes());
    }
}

/// A client that pauses may wait for exactly that refusal.
#[test]
fn a_refusal_is_forwarded_while_the_body_pauses() {
    let (address, thread) = says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let proxy = unbuffered_before(&address);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nword");
    assert_eq!(client.answer_head().status, 401);
    drop((client, proxy));
    stop(&address, thread);
}

/// The client may wait for the end of the answer before it ends its own body.
#[test]
fn the_end_of_a_response_reaches_a_client_that_pauses_its_body() {
    let (address, thread) = says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    let proxy = unbuffered_before(&address);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n");
    assert_eq!(client.answer_head().status, 200);
    assert_eq!(client.exactly(12), b"2\r\nhi\r\n0\r\n\r\n");
    drop((client, proxy));
    stop(&address, thread);
}

#[test]
fn a_trailer_that_may_be_none_is_left_out_and_the_body_is_whole() {
    let (address, thread) = says(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nSet-Cookie: a=b\r\nX-Sum: 7\r\n\r\n",
    );
    let proxy = before_address(&address, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n");
    let got = String::from_utf8(client.rest()).unwrap();
    assert!(got.ends_with("5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"), "{got}");
    drop(proxy);
    stop(&address, thread);
}

#[test]
fn an_unknown_interim_response_is_forwarded() {
    let (address, thread) =
        says("HTTP/1.1 104 Upload Resumption Supported\r\nLocation: /u\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    let proxy = before_address(&address, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let interim = client.answer_head();
    assert_eq!((interim.status, interim.field("location")), (104, Some("/u")));
    assert_eq!(client.answer_head().status, 204);
    drop((client, proxy));
    stop(&address, thread);
}

/// Also if the server answers while the body still arrives.
#[test]
fn a_body_is_bounded_however_early_its_answer() {
    const LIMIT: u64 = 300_000;
    let upstream = CASE.start();
    let to = proxy_to_server(&upstream.running);
    let proxy = CASE.bind("127.0.0.1:0").settings(|s| s.body_bytes_max(LIMIT));
    let proxy = proxy.start(to).unwrap();
    let mut client = Client::connect(&proxy);
    client.send("POST /echo-stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let aside = client.send_aside(chunks(&noise(8 << 20), 10_000));
    let got = client.rest();
    assert!(got.len() < 2 * LIMIT as usize && !got.ends_with(b"0\r\n\r\n"), "{} bytes came back", got.len());
    let _ = aside.join().unwrap();
}

#[test]
fn a_request_with_max_forwards_0_is_answered_by_the_proxy() {
    let pair = pair();
    let mut client = pair.client();
    for (method, status) in [("OPTIONS", 204), ("TRACE", 501)] {
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"));
        assert_eq!(client.answer().status, status, "{method}");
    }
    assert_eq!(pair.upstream.running.stats().accepted, 0);
    drop(client);
    pair.ends_well();
}

/// RFC 9110 section 10.1.1: the last server decides whether the body is requested, unless that server does not
/// answer.
#[test]
fn expect_100_continue_is_answered_by_the_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = before_address(&listener.local_addr().unwrap().to_string(), |proxy| proxy.idle_connections_max(0));
    let expects = |client: &mut Client| {
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
        let (mut upstream, _) = listener.accept().unwrap();
        assert!(read_head(&mut upstream).to_ascii_lowercase().contains("\r\nexpect: 100-continue\r\n"));
        upstream
    };
    for (status, name) in [(401, "Unauthorized"), (417, "Expectation Failed"), (200, "OK")] {
        let mut client = Client::connect(&proxy);
        let mut upstream = expects(&mut client);
        write!(upstream, "HTTP/1.1 {status} {name}\r\nContent-Length: 2\r\n\r\nno").unwrap();
        let answer = client.answer();
        assert!(answer.closes_over_http1(), "{answer:?}");
        answer.is(status, "no");
        assert_eq!(upstream.read(&mut [0]).unwrap(), 0, "the body was not requested");
    }
    // The body is requested in the same write as another message, or never.
    let all_at_once = |framing: &str| format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (said, rest, text) in [
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", answer, "ok"),
        ("", answer, "ok"),
        (&all_at_once("Transfer-Encoding: chunked"), "2\r\nok\r\n0\r\n\r\n", "ok"),
        (&all_at_once("Content-Length: 2"), "ok", "ok"),
        (&all_at_once("Content-Length: 0"), "", ""),
    ] {
        let mut client = Client::connect(&proxy);
        let mut upstream = expects(&mut client);
        upstream.write_all(said.as_bytes()).unwrap();
        if said.contains(" 103 ") {
            assert_eq!(client.answer_head().status, 103);
        }
        assert_eq!(client.answer_head().status, 100, "{said}");
        client.send("body");
        let mut body = [0; 4];
        upstream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"body");
        upstream.write_all(rest.as_bytes()).unwrap();
        client.answer().is(200, text);
    }
}
