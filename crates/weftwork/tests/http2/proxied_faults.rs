//! Tests what a proxy does if a server of HTTP/2 refuses, breaks a rule or goes away, and that no message becomes another
//! one between the two protocols.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use weftwork::{Proxy, Running, unbuffered};
use weftwork_wire::{ErrorCode, Frame, Http2};

use super::CASE;
use crate::support::http2_peer::{Http2Peer, headers};
use crate::support::{ANNOUNCED, Client, Http2Client, is_logged, keep_log};

const OK: [(&str, &[u8]); 1] = [(":status", b"200")];

/// Starts a proxy to a server that `serve` plays.
fn before<T: Send + 'static>(
    serve: impl FnOnce(&TcpListener) -> T + Send + 'static,
    change: impl FnOnce(Proxy) -> Proxy,
) -> (Running, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(&format!("h2c://{}", listener.local_addr().unwrap())).unwrap();
    let server = std::thread::spawn(move || serve(&listener));
    (CASE.start(unbuffered(change(proxy))), server)
}

fn answer(peer: &mut Http2Peer, stream: u32, body: &str) {
    peer.head(stream, &OK, false);
    peer.data(stream, body.as_bytes(), true);
}

/// Starts a proxy to a server that answers each request with these bytes, which `write` makes.
fn answering(write: impl Fn(u32) -> Vec<u8> + Send + 'static) -> (Running, JoinHandle<()>) {
    let serve = move |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        while let Some(stream) = peer.request() {
            let bytes = write(stream);
            peer.send(&bytes);
        }
    };
    before(serve, |proxy| proxy)
}

fn post(client: &mut Client, body: &str) -> (u16, String) {
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let answer = client.answer();
    (answer.status, String::from_utf8(answer.body).unwrap())
}

/// RFC 9113 section 8.7. The server has not begun it, so the method does not matter.
#[test]
fn a_refused_request_is_sent_again() {
    let serve = |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        let mut out = Vec::new();
        Http2::write_reset(peer.request().unwrap(), ErrorCode::REFUSED_STREAM, &mut out);
        peer.send(&out);
        let stream = peer.request().unwrap();
        answer(&mut peer, stream, "second");
        // A connection that ends, and says which requests it had.
        let stream = peer.request().unwrap();
        let mut out = Vec::new();
        Http2::write_goaway(stream - 2, ErrorCode::NO_ERROR, &mut out);
        peer.send(&out);
        let mut next = Http2Peer::accept(listener);
        let stream = next.request().unwrap();
        answer(&mut next, stream, "third");
        // A server that never begins one.
        let mut count = 0;
        while let Some(stream) = next.request() {
            count += 1;
            let mut out = Vec::new();
            Http2::write_reset(stream, ErrorCode::REFUSED_STREAM, &mut out);
            next.send(&out);
        }
        count
    };
    let (proxy, server) = before(serve, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    assert_eq!(post(&mut client, "body"), (200, "second".to_owned()));
    assert_eq!(post(&mut client, "body"), (200, "third".to_owned()));
    assert_eq!(post(&mut client, "body").0, 502);
    drop((client, proxy));
    assert_eq!(server.join().unwrap(), 3);
}

/// GOAWAY in two steps: no new request goes there, and those that are there are answered.
#[test]
fn requests_before_a_goaway_are_answered() {
    let serve = |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        let stream = peer.request().unwrap();
        let mut out = Vec::new();
        Http2::write_goaway(ANNOUNCED, ErrorCode::NO_ERROR, &mut out);
        Http2::write_ping(*b"8 bytes.", &mut out);
        peer.send(&out);
        assert_eq!(peer.frame(), Some(Frame::PingAcked(*b"8 bytes.")));
        answer(&mut peer, stream, "old");
        assert_eq!(peer.request(), None, "the connection ends with its last request");
        let mut next = Http2Peer::accept(listener);
        let stream = next.request().unwrap();
        answer(&mut next, stream, "new");
        next
    };
    let (proxy, server) = before(serve, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "old");
    client.get("/").is(200, "new");
    drop(server.join().unwrap());
}

/// Only a request that may be repeated is sent again, and once.
#[test]
fn a_connection_that_dies_is_a_bad_gateway() {
    let serve = |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        let stream = peer.request().unwrap();
        answer(&mut peer, stream, "first");
        peer.request().unwrap();
        drop(peer);
        let mut next = Http2Peer::accept(listener);
        let stream = next.request().unwrap();
        answer(&mut next, stream, "again");
        next.request().unwrap();
        drop(next);
        let mut last = Http2Peer::accept(listener);
        last.request().unwrap();
        drop(last);
    };
    let (proxy, server) = before(serve, |proxy| proxy);
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "first");
    client.get("/").is(200, "again");
    assert_eq!(post(&mut client, "body").0, 502);
    assert_eq!(client.get("/").status, 502, "a new connection is not tried again");
    server.join().unwrap();
}

#[test]
fn a_server_without_http_2_is_named() {
    keep_log();
    let serve = |listener: &TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 1000]);
    };
    let (proxy, server) = before(serve, |proxy| proxy);
    assert_eq!(Client::connect(&proxy).get("/").status, 502);
    is_logged(&["WARN", "does not speak HTTP/2", "http://"]);
    server.join().unwrap();
}

/// They wait for one attempt.
#[test]
fn requests_that_wait_for_a_connection_fail_with_it() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = CASE.start(Proxy::to(&format!("h2c://{closed}")).unwrap());
    let mut client = Http2Client::connect(&proxy);
    for stream in client.get_all(["/"; 20]) {
        assert_eq!(client.answer(stream).status, 502);
    }
}

/// The stream ends, and the connection goes on.
#[test]
fn a_server_that_is_late_is_a_gateway_timeout() {
    let serve = |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        let late = peer.request().unwrap();
        assert_eq!(peer.reset(), (late, ErrorCode::CANCEL));
        // Frames that are on their way reach nobody.
        answer(&mut peer, late, "late");
        let stream = peer.request().unwrap();
        answer(&mut peer, stream, "in time");
        peer
    };
    let (proxy, server) = before(serve, |proxy| proxy.response_timeout(Duration::from_millis(50)));
    let mut client = Client::connect(&proxy);
    assert_eq!(client.get("/").status, 504);
    client.get("/").is(200, "in time");
    drop(server.join().unwrap());
}

/// A server that lets nothing be sent.
#[test]
fn a_server_without_a_window_is_a_gateway_timeout() {
    let serve = |listener: &TcpListener| {
        let settings = weftwork_wire::Http2Settings { window: 0, ..Default::default() };
        let mut peer = Http2Peer::accept_with(listener, &settings);
        let stream = peer.reset().0;
        let next = loop {
            if let Frame::Head { stream, .. } = peer.frame().unwrap() {
                break stream;
            }
        };
        assert!(next > stream);
        let mut out = Vec::new();
        Http2::write_window_update(next, 4, &mut out);
        peer.send(&out);
        let Some(Frame::Data { len: 4, .. }) = peer.frame() else { panic!("4 bytes fit") };
        Http2::write_window_update(next, 4, &mut out);
        peer.send(&out[out.len() / 2..]);
        assert!(matches!(peer.frame(), Some(Frame::Data { len: 4, ends: true, .. })));
        answer(&mut peer, next, "taken");
        peer
    };
    let (proxy, server) = before(serve, |proxy| proxy.idle_timeout(Duration::from_millis(300)));
    let mut client = Client::connect(&proxy);
    assert_eq!(post(&mut client, "body").0, 504);
    drop(client);
    assert_eq!(post(&mut Client::connect(&proxy), "8 bytes."), (200, "taken".to_owned()));
    drop(server.join().unwrap());
}

/// No length and no name slips from HTTP/2 to HTTP/1.1. The server sends what HTTP/1.1 would read as another response.
#[test]
fn a_malformed_response_is_a_bad_gateway() {
    let ok = (":status", &b"200"[..]);
    let data = |stream, content: &[u8]| {
        let mut out = Vec::new();
        Http2::write_data(stream, content, true, &mut out);
        out
    };
    let heads: Vec<Vec<(&str, &[u8])>> = vec![
        vec![ok, ("x", b"a\r\nx-y: b")],
        vec![ok, ("x", b"a\nb")],
        vec![ok, ("x", b"a\0b")],
        vec![ok, ("x\r\ny", b"a")],
        vec![ok, ("x y", b"a")],
        vec![ok, ("x:", b"a")],
        vec![ok, ("X", b"a")],
        vec![ok, ("x", b" a")],
        vec![ok, ("transfer-encoding", b"chunked")],
        vec![ok, ("connection", b"close")],
        vec![ok, ("content-length", b"3")],
        vec![ok, ("content-length", b"5")],
        vec![ok, ("content-length", b"4"), ("content-length", b"4")],
        vec![ok, ("content-length", b"+4")],
        vec![ok, ("content-length", b"4, 4")],
        vec![ok, ok],
        vec![("x", b"a")],
        vec![(":status", b"2000")],
        vec![(":status", b"101")],
        vec![(":path", b"/"), ok],
    ];
    for head in heads {
        let what = format!("{head:?}");
        let head: Vec<(String, Vec<u8>)> =
            head.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        let (proxy, server) = answering(move |stream| {
            let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
            [headers(stream, &head, false), data(stream, b"body")].concat()
        });
        let mut client = Client::connect(&proxy);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.answer_head();
        // A length that is not kept may be noticed when the head has been forwarded.
        if head.status == 200 {
            assert!(what.contains("content-length"), "{what}");
            assert!(client.rest().len() < 4, "{what}");
        } else {
            assert_eq!(head.status, 502, "{what}");
        }
        drop(proxy);
        server.join().unwrap();
    }
}

/// A body that must not be there.
#[test]
fn a_body_without_a_place_reaches_nobody() {
    for (method, status) in [("HEAD", "200"), ("GET", "204"), ("GET", "304")] {
        let (proxy, server) = answering(move |stream| {
            let mut out = headers(stream, &[(":status", status.as_bytes())], false);
            Http2::write_data(stream, b"HTTP/1.1 200 OK\r\n\r\n", true, &mut out);
            out
        });
        let mut client = Client::connect(&proxy);
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to_head();
        assert!([502, status.parse().unwrap()].contains(&answer.status), "{method} {status}: {answer:?}");
        drop(client);
        drop(proxy);
        server.join().unwrap();
    }
}

/// A response that its server gives up is not whole for the client.
#[test]
fn a_reset_within_a_response_reaches_the_client() {
    let (proxy, server) = answering(|stream| {
        let mut out = headers(stream, &OK, false);
        Http2::write_data(stream, b"begin", false, &mut out);
        Http2::write_reset(stream, ErrorCode::INTERNAL_ERROR, &mut out);
        out
    });
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.answer_head();
    // If nothing was sent yet, it is a 502.
    assert!([200, 502].contains(&head.status), "{head:?}");
    assert!(head.status == 502 || !client.rest().ends_with(b"0\r\n\r\n"), "the client can tell");
    let mut client = Http2Client::connect(&proxy);
    let stream = client.get("/");
    client.wait("an end", |client| client.reset_of(stream).is_some() || client.has_answer(stream));
    if client.reset_of(stream).is_none() {
        assert_eq!(client.answer(stream).status, 502);
    }
    drop((client, proxy));
    server.join().unwrap();
}

/// The server needs no more of the request: RFC 9113 section 8.1.
#[test]
fn an_early_response_is_whole() {
    let serve = |listener: &TcpListener| {
        let mut peer = Http2Peer::accept(listener);
        let Some(Frame::Head { stream, .. }) = peer.frame() else { panic!("a request") };
        let mut out = headers(stream, &OK, false);
        Http2::write_data(stream, b"enough", true, &mut out);
        Http2::write_reset(stream, ErrorCode::NO_ERROR, &mut out);
        peer.send(&out);
        while peer.frame().is_some() {}
    };
    let (proxy, server) = before(serve, |proxy| proxy);
    let mut client = Http2Client::connect(&proxy);
    let stream = client.request("POST", "/", &[("content-length", "1000000")], false);
    client.send_data(stream, b"begin", false);
    client.wait_for_bytes(stream, 6);
    drop((client, proxy));
    server.join().unwrap();
}
