//! Tests that a proxy never makes two requests of HTTP/1.1 of one of HTTP/2 (CVE-2021-33193, CVE-2021-36740).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use weftwork::http::Method;
use weftwork::{Address, Proxy, Request, Running, Server};
use weftwork_wire::{Frame, Head, Http2, Http2Settings, Limits, RequestHead};

use super::CASE;
use crate::support::TIMEOUT;

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

/// A proxy, and what reaches the server behind it: targets and bodies.
struct Proxied {
    proxy: Running,
    _behind: Running,
    reached: Arc<Mutex<Vec<(String, String)>>>,
}

fn start() -> Proxied {
    let reached = Arc::<Mutex<Vec<_>>>::default();
    let seen = reached.clone();
    let behind = move |req: &mut Request| -> weftwork::Result<&'static str> {
        let body = String::from_utf8_lossy(&req.body().bytes()?).into_owned();
        seen.lock().unwrap().push((req.target().to_owned(), body));
        Ok("reached")
    };
    let behind = Server::bind("127.0.0.1:0").unwrap().start(behind).unwrap();
    let proxy = Proxy::to(&format!("http://{}", behind.local_addr().unwrap())).unwrap();
    Proxied { proxy: CASE.start(proxy), _behind: behind, reached }
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags, 0, 0, 0, 1]);
    bytes.extend(payload);
    bytes
}

/// Encodes fields, also such that no client would send.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "its length is one byte: {text}");
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Sends a request on stream 1, and a valid one on stream 3. Returns the status of the first one, if it has one.
fn ask(server: &Running, head: &[u8], body: Option<&str>, trailers: Option<&[u8]>) -> Option<u16> {
    let Address::Tcp(address) = &server.addresses()[0] else { panic!("a TCP address") };
    let mut socket = TcpStream::connect_timeout(address, TIMEOUT).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut http, mut sent) = (Http2::client(&Http2Settings::default()), Vec::new());
    http.write_preface(&mut sent);
    sent.extend(frame(1, 4 | u8::from(body.is_none()), head));
    body.iter().for_each(|body| sent.extend(frame(0, u8::from(trailers.is_none()), body.as_bytes())));
    trailers.iter().for_each(|trailers| sent.extend(frame(1, 5, trailers)));
    let valid = RequestHead {
        method: &Method::GET,
        scheme: Some("http"),
        path: Some("/valid"),
        authority: Some("a"),
        protocol: None,
        fields: &[],
    };
    // The first one was written by hand.
    http.write_request(&valid, true, &mut Vec::new());
    http.write_request(&valid, true, &mut sent);
    socket.write_all(&sent).unwrap();
    let (mut status, mut has_first, mut has_second) = (None, false, false);
    let (mut head, mut text, mut input) = (Head::default(), Vec::new(), Vec::new());
    while !has_first || !has_second {
        let (used, frame) = http.read(&input, &Limits::default(), &mut head, &mut text).unwrap();
        input.drain(..used);
        match frame {
            Frame::Response { stream: 1, status: code, .. } => (status, has_first) = (Some(code.as_u16()), true),
            Frame::Reset { stream: 1, .. } => has_first = true,
            Frame::Response { stream: 3, status, .. } => {
                assert_eq!(status.as_u16(), 200);
                has_second = true;
            }
            Frame::GoAway { .. } => panic!("the connection ends"),
            Frame::NeedMore => {
                let mut part = [0; 4096];
                let count = socket.read(&mut part).unwrap();
                assert!(count > 0, "the connection has ended");
                input.extend_from_slice(&part[..count]);
            }
            _ => {}
        }
    }
    status
}

#[test]
fn nothing_in_a_head_becomes_a_request() {
    let Proxied { proxy, reached, .. } = &start();
    let pseudo = |name: &str, value: &str| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")];
        block(&fields.map(|(of, given)| if of == name { (of, value) } else { (of, given) }))
    };
    let field = |name: &str, value: &str| [pseudo("", ""), block(&[(name, value)])].concat();
    let split = format!("x HTTP/1.1\r\nHost: a\r\n\r\n{EVIL}");
    for (what, head) in [
        ("a value", field("x", &format!("y\r\n\r\n{EVIL}"))),
        ("a value with a bare LF", field("x", &format!("y\n\n{EVIL}"))),
        ("a value with NUL", field("x", "a\0b")),
        ("a value that begins with a space", field("content-length", " 0")),
        ("a name", field(&format!("x: y\r\n\r\n{EVIL}"), "z")),
        ("a name with a colon", field("transfer-encoding: chunked\r\nx", "y")),
        ("a name with a space", field("content-length ", "0")),
        ("a name in upper case", field("Content-Length", "0")),
        ("a target", pseudo(":path", &format!("/{split}"))),
        ("a target with a space", pseudo(":path", "/ HTTP/1.1")),
        ("a method", pseudo(":method", &format!("GET /{split}"))),
        ("an authority", pseudo(":authority", "a\r\nx: y")),
        ("an authority with a path", pseudo(":authority", "a/evil")),
        ("a scheme", pseudo(":scheme", "http://a/evil?")),
        ("transfer-encoding", field("transfer-encoding", "chunked")),
        ("transfer-encoding in another form", field("transfer-encoding", "identity")),
        ("connection", field("connection", "content-length")),
        ("upgrade", field("upgrade", "h2c")),
        ("te", field("te", "chunked")),
        ("two lengths", [field("content-length", "4"), block(&[("content-length", "0")])].concat()),
        ("a list of lengths", field("content-length", "4, 4")),
        ("a length with a sign", field("content-length", "+4")),
    ] {
        let status = ask(proxy, &head, Some("body"), None);
        assert!(status.is_none_or(|status| (400..=431).contains(&status)), "{what}: {status:?}");
        let reached = std::mem::take(&mut *reached.lock().unwrap());
        assert_eq!(reached, [("/valid".to_owned(), String::new())], "{what}");
    }
}

/// The proxy frames a body by what has arrived.
#[test]
fn nothing_in_a_body_becomes_a_request() {
    let Proxied { proxy, reached, .. } = &start();
    let head = |more: &[(&str, &str)]| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")];
        block(&[&fields[..], more].concat())
    };
    let chunks = format!("0\r\n\r\n{EVIL}");
    let length = chunks.len().to_string();
    let trailer = |name: &str, value: &str| block(&[(name, value)]);
    type Case<'a> = (&'a str, Vec<u8>, &'a str, Option<Vec<u8>>, bool);
    let cases: [Case<'_>; 8] = [
        ("chunks without a length", head(&[]), &chunks, None, true),
        ("chunks with a length", head(&[("content-length", &length)]), &chunks, None, true),
        ("more than the length", head(&[("content-length", "0")]), EVIL, None, false),
        ("a part of it", head(&[("content-length", "5")]), &chunks, None, false),
        ("less than the length", head(&[("content-length", "90")]), &chunks, None, false),
        ("a trailer that frames", head(&[]), "body", Some(trailer("content-length", "0")), false),
        ("another", head(&[]), "body", Some(trailer("transfer-encoding", "chunked")), false),
        ("a trailer that splits", head(&[]), "body", Some(trailer("x", "y\r\n\r\n")), false),
    ];
    for (what, head, body, trailers, is_valid) in cases {
        let status = ask(proxy, &head, Some(body), trailers.as_deref());
        assert_eq!(status == Some(200), is_valid, "{what}: {status:?}");
        let mut reached = std::mem::take(&mut *reached.lock().unwrap());
        reached.retain(|(target, _)| target != "/valid");
        // A request without a body is begun before its DATA comes.
        reached.retain(|(_, body)| is_valid || !body.is_empty());
        let want = is_valid.then(|| ("/x".to_owned(), body.to_owned()));
        assert_eq!(reached, Vec::from_iter(want), "{what}");
    }
}
