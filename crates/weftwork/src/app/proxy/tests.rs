//! Tests which paths and fields a server receives.

mod paths;
mod urls;

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, header};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::request::{Outgoing, forwards_left, http1_head};
use super::{Failure, Proxy};
use crate::engine::{BlockingHook, Work, enter};
use crate::message::Request;
use crate::message::testing::Canned;
use crate::middleware::{Deadline, RequestIds};
use crate::{HandlerExt, IntoResponse, Server, Settings, TestClient};

#[track_caller]
fn sees(proxy: &Proxy, request: &str) -> Result<String, u16> {
    sees_from("192.0.2.7:1", proxy, request)
}

/// 10.0.0.0/8 is trusted.
#[track_caller]
fn sees_from(peer: &str, proxy: &Proxy, request: &str) -> Result<String, u16> {
    let mut canned = Canned::new(request);
    canned.peer = peer.parse().ok();
    canned.settings = Settings::default().trusted_proxies("10.0.0.0/8".parse().unwrap());
    let request = canned.request(1 << 20);
    head_of(proxy, &request).map_err(|failure| failure.into_response().status().as_u16())
}

fn head_of(proxy: &Proxy, req: &Request<'_>) -> Result<String, Failure> {
    let (head, _) = http1_head(req, &Outgoing::of(req, forwards_left(req)?, proxy)?, proxy);
    Ok(String::from_utf8(head).unwrap())
}

#[track_caller]
fn path(proxy: &Proxy, target: &str) -> Result<String, u16> {
    let head = sees(proxy, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))?;
    Ok(head.split(' ').nth(1).unwrap().to_owned())
}

#[test]
fn the_path_is_passed_on() {
    let plain = Proxy::to("http://127.0.0.1:1").unwrap();
    for target in ["/", "/a/b?c=d", "/a%2Fb", "/a/..b/c../...", "/a%252e.", "/?", "/?../.."] {
        assert_eq!(path(&plain, target), Ok(target.to_owned()));
    }
    assert_eq!(path(&plain, "http://evil.example/a?b"), Ok("/a?b".to_owned()));
    let below = Proxy::to("http://127.0.0.1:1/base/").unwrap().strip_prefix("/api/");
    assert_eq!(path(&below, "/api/a?b"), Ok("/base/a?b".to_owned()));
    assert_eq!(path(&below, "/api"), Ok("/base/".to_owned()));
    assert_eq!(path(&below, "/api/"), Ok("/base/".to_owned()));
    assert_eq!(path(&below, "/apis"), Err(404));
    assert_eq!(path(&below, "/"), Err(404));
    let spaced = Proxy::to("http://127.0.0.1:1").unwrap().strip_prefix("/my api");
    assert_eq!(path(&spaced, "/my%20api/a"), Ok("/a".to_owned()));
    // RFC 9112 section 3.2.4: of the server as a whole, not of a part of it.
    let asterisk = "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(sees(&plain, asterisk).is_ok_and(|head| head.starts_with("OPTIONS * HTTP/1.1\r\n")));
    let whole = "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(sees(&plain, whole).is_ok_and(|head| head.starts_with("OPTIONS * HTTP/1.1\r\n")));
    assert_eq!(path(&plain, "http://a"), Ok("/".to_owned()));
    assert_eq!(sees(&Proxy::to("http://127.0.0.1:1/base").unwrap(), asterisk), Err(404));
    for target in
        ["/../a", "/%2e%2E/a", "/a/.%2e", "/..%2fa", "/x%2F..%2Fa", "/x%5C..%5ca", "/..;/a", "/..%3Bx/a"]
    {
        assert_eq!(path(&plain, target), Err(400), "{target}");
        assert_eq!(path(&below, &format!("/api{target}")), Err(400), "{target}");
    }
}

/// RFC 9110 section 15.6.2: this server opens no tunnels. A 405 would require an `Allow`.
#[test]
fn connect_is_refused() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    assert_eq!(sees(&proxy, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"), Err(501));
}

#[test]
fn fields_for_one_connection_stay_and_ours_are_said() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
                   Keep-Alive: 5\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nVia: 1.1 before\r\n\
                   Proxy-Connection: x\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: c\r\n\r\n";
    let head = sees(&proxy, request).unwrap();
    let expected = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: c\r\n\
                    X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: a.example\r\nX-Forwarded-Proto: http\r\n\
                    Via: 1.1 before\r\nVia: 1.1 weftwork\r\n";
    assert!(head.starts_with(expected), "{head}");
    let with_host = sees(&proxy.upstream_host(), request).unwrap();
    assert!(with_host.contains("\r\nHost: 127.0.0.1:1\r\n"), "{with_host}");
}

/// RFC 3875 section 4.1.18: servers that turn fields into variables see no difference.
#[test]
fn fields_for_one_connection_stay_in_any_spelling() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop\r\nTransfer-Encoding: chunked\r\nX_Hop: 1\r\n\
                   Transfer_Encoding: gzip\r\nkeep_alive: 5\r\nProxy_Connection: x\r\nContent_Length: 1\r\n\
                   Trailer: X-Sum\r\nX-Stays: 1\r\n\r\n";
    let head = sees(&proxy, request).unwrap();
    let names: Vec<&str> = head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let expected = ["Host", "X-Stays", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Via"];
    assert_eq!(names, [&expected[..], &["Transfer-Encoding"]].concat());
}

#[test]
fn forwards_are_counted_where_they_count() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let passes_on = |method: &str, fields: &str| {
        let head = sees(&proxy, &format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))?;
        let lines = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("max"));
        Ok(lines.collect::<Vec<_>>().join(", "))
    };
    let is = |line: &str| Ok(line.to_owned());
    assert_eq!(passes_on("OPTIONS", "Max-Forwards: 3\r\n"), is("Max-Forwards: 2"));
    assert_eq!(passes_on("TRACE", "Max-Forwards: 010\r\n"), is("Max-Forwards: 9"));
    assert_eq!(passes_on("GET", "Max-Forwards: 3\r\n"), is("Max-Forwards: 3"));
    // Exactly one number, and only in its canonical form. A number too large to count is a number as well.
    for wrong in ["Max-Forwards: 5\r\nMax-Forwards: 0\r\n", "Max-Forwards: many\r\n", "Max-Forwards: +3\r\n"]
    {
        assert_eq!(passes_on("OPTIONS", wrong), Err(400), "{wrong}");
    }
    assert_eq!(passes_on("OPTIONS", "Max_Forwards: 7\r\nMax-Forwards: 2\r\n"), is("Max-Forwards: 1"));
    assert_eq!(passes_on("OPTIONS", "Max_Forwards: 7\r\n"), is(""));
    let many = format!("Max-Forwards: {}\r\n", "9".repeat(30));
    assert_eq!(passes_on("OPTIONS", &many), Ok(format!("Max-Forwards: {}", u64::MAX - 1)));
}

/// Only a trusted proxy may set the fields about the client's own request.
#[test]
fn forwarded_fields_of_trusted_peers_are_passed_on() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let request = "GET / HTTP/1.1\r\nHost: inner\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
                   X-Forwarded-Host: a.example\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Port: 443\r\n\
                   X-Forwarded-Ssl: on\r\nX_Forwarded_For: 6.6.6.6\r\nx_real_ip: 6.6.6.6\r\n\
                   X.Forwarded.For: 6.6.6.6\r\nX+Real~IP: 6.6.6.6\r\nProxy: http://6.6.6.6\r\n\r\n";
    let believed = sees_from("10.0.0.1:1", &proxy, request).unwrap();
    let expected = "GET / HTTP/1.1\r\nHost: inner\r\nX-Forwarded-Port: 443\r\n\
                    X-Forwarded-Ssl: on\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
                    X-Forwarded-Host: a.example\r\nX-Forwarded-Proto: https\r\nVia: 1.1 weftwork\r\n";
    assert!(believed.starts_with(expected), "{believed}");
    let said = proxy
        .set_header(HeaderName::from_static("x-real-ip"), |_| Some(HeaderValue::from_static("192.0.2.1")));
    let seen = sees_from("10.0.0.1:1", &said.unwrap(), request).unwrap();
    assert!(
        seen.to_ascii_lowercase().matches("x-real-ip: ").count() == 1
            && seen.contains("x-real-ip: 192.0.2.1\r\n"),
        "{seen}"
    );
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    // A proxy that sets no other field.
    let only = "GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 192.0.2.9\r\n\r\n";
    let seen = sees_from("10.0.0.1:1", &proxy, only).unwrap();
    assert!(
        seen.contains("\r\nX-Real-IP: 192.0.2.9\r\n") && seen.contains("\r\nX-Forwarded-For: 10.0.0.1\r\n"),
        "{seen}"
    );
    // A proxy before this one that adds its client's address, and forwards the client's own claims.
    let forged = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9\r\nX-Real-IP: 127.0.0.1\r\n\r\n";
    let seen = sees_from("10.0.0.1:1", &proxy, forged).unwrap();
    assert!(seen.contains("\r\nX-Real-IP: 192.0.2.9\r\n") && !seen.contains("127.0.0.1\r\n"), "{seen}");
    let from_anybody = sees(&proxy, request).unwrap();
    let expected = "GET / HTTP/1.1\r\nHost: inner\r\nX-Forwarded-For: 192.0.2.7\r\n\
                    X-Forwarded-Host: inner\r\nX-Forwarded-Proto: http\r\nVia: 1.1 weftwork\r\n";
    assert!(from_anybody.starts_with(expected), "{from_anybody}");
}

#[test]
fn fields_set_by_the_proxy_replace_those_of_the_client() {
    let name = HeaderName::from_static;
    let user = |req: &Request<'_>| HeaderValue::from_str(req.query()?).ok();
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let proxy = proxy.set_header(name("x-user"), |_| None).unwrap().set_header(name("x-user"), user).unwrap();
    let proxy = proxy.set_header(header::COOKIE, |_| None).unwrap();
    let fields =
        "Host: a\r\nX-User: admin\r\nx_user: admin\r\nX.User: admin\r\nX-User-Id: 7\r\nCookie: a=b\r\n";
    let said = |target: &str| -> Vec<String> {
        let head =
            sees(&proxy, &format!("GET {target} HTTP/1.1\r\n{fields}\r\n")).unwrap().to_ascii_lowercase();
        head.lines()
            .filter(|line| line.contains("user") || line.contains("cookie"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(said("/?ann"), ["get /?ann http/1.1", "x-user-id: 7", "x-user: ann"][1..]);
    assert_eq!(said("/"), ["x-user-id: 7"]);
    for taken in
        ["host", "content-length", "x-forwarded-for", "x_forwarded_for", "te", "connection", "max-forwards"]
    {
        let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
        let error = proxy.set_header(name(taken), |_| None).unwrap_err().to_string();
        assert!(error.contains(taken), "{error}");
    }
}

/// RFC 9110 section 10.1.4: the proxy writes the client's TE field again, as far as it forwards trailers.
#[test]
fn that_trailers_are_taken_is_passed_on() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let says = |line: &str, fields: &str| {
        let head = sees(&proxy, &format!("GET / {line}\r\nHost: a\r\n{fields}\r\n")).unwrap();
        let mut lines =
            head.lines().filter(|line| line.starts_with("Connection:") || line.starts_with("TE:"));
        (lines.next().map(str::to_owned), lines.next().map(str::to_owned))
    };
    let both = |connection: &str| (Some(connection.to_owned()), Some("TE: trailers".to_owned()));
    assert_eq!(says("HTTP/1.1", "TE: gzip;q=0.5, trailers\r\nConnection: TE\r\n"), both("Connection: TE"));
    let upgrade = "TE: trailers\r\nConnection: TE, upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(says("HTTP/1.1", upgrade), both("Connection: upgrade, TE"));
    assert_eq!(says("HTTP/1.1", "TE: gzip\r\nConnection: TE\r\n"), (None, None));
    assert_eq!(says("HTTP/1.0", "TE: trailers\r\n"), (None, None));
}

/// The client's own field, in any spelling, is left to `RequestIds`.
#[test]
fn what_request_ids_have_settled_is_passed_on() {
    let shown = |req: &mut Request<'_>| head_of(&Proxy::to("http://127.0.0.1:1").unwrap(), req);
    let of_trace = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::to_ascii_lowercase);
        lines.filter(|line| line.contains("trace") || line.contains("request")).collect()
    };
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut plain = TestClient::new(shown);
    let alone = plain.get("/").header("traceparent", PARENT).header("x-request-id", "a b").send();
    assert_eq!(of_trace(alone.text()), [format!("traceparent: {PARENT}"), "x-request-id: a b".to_owned()]);
    let mut client = TestClient::new(shown.with(RequestIds::new()));
    let kept = client.get("/").header("traceparent", PARENT).header("x-request-id", "7");
    let kept = kept.header("tracestate", "a=1").header("tracestate", "b=2").send();
    let trace = kept.header("traceresponse").unwrap();
    assert!(trace.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && trace != PARENT, "{trace}");
    let expected =
        ["x-request-id: 7".to_owned(), format!("traceparent: {trace}"), "tracestate: a=1,b=2".to_owned()];
    assert_eq!(of_trace(kept.text()), expected);
    let made = client.get("/").header("traceparent", "none").header("tracestate", "a=1");
    let made = made.header("x-request-id", "a b").header("x_request_id", "6").send();
    let id = made.header("x-request-id").unwrap();
    let trace = made.header("traceresponse").unwrap();
    let expected = [format!("x-request-id: {id}"), format!("traceparent: {trace}")];
    assert_eq!(of_trace(made.text()), expected);
}

#[test]
fn an_upgrade_is_asked_for_where_the_client_asks_and_may() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap().allow_upgrade("x");
    let asks = |fields: &str| {
        let head = sees(&proxy, &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).unwrap();
        let (_, rest) = head.split_once("Connection: upgrade\r\nUpgrade: ")?;
        rest.lines().next().map(str::to_owned)
    };
    assert_eq!(
        asks("Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n").as_deref(),
        Some("websocket")
    );
    assert_eq!(asks("Connection: upgrade\r\nUpgrade: h2c, x\r\n").as_deref(), Some("x"));
    assert_eq!(asks("Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n"), None);
    assert_eq!(asks("Upgrade: x\r\n"), None);
    assert_eq!(asks("Connection: upgrade\r\n"), None);
}

/// An address that never answers, not even with a refusal: its queue of connections is full.
struct BlackHole {
    address: SocketAddr,
    _held: (OwnedFd, Vec<OwnedFd>),
}

impl BlackHole {
    fn new() -> BlackHole {
        let socket = || {
            let flags = SocketFlags::NONBLOCK;
            net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = socket();
        net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        net::listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&listener).unwrap()).unwrap();
        let clients: Vec<OwnedFd> = (0..4).map(|_| socket()).collect();
        for client in &clients {
            // The connection attempt never completes.
            let _ = net::connect(client, &address);
        }
        BlackHole { address, _held: (listener, clients) }
    }
}

#[test]
fn an_address_that_does_not_respond_leaves_time_for_the_other_addresses() {
    let hole = BlackHole::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let proxy = Proxy::to(&format!("http://{at}")).unwrap().connect_timeout(Duration::from_secs(6));
    proxy.upstream.addresses.set(vec![hole.address, at]);
    let begun = Instant::now();
    assert!(proxy.upstream.acquire(None, Duration::MAX).is_ok());
    // Half of the time is for the first address.
    assert!(begun.elapsed() < Duration::from_millis(5500), "{:?}", begun.elapsed());
    assert_eq!(proxy.upstream.addresses.known(), [at, hole.address], "the next one begins with it");
}

/// Refuses connections: the socket owns its port, so that no other process gets it, and does not listen.
struct RefusingServer(OwnedFd);

impl RefusingServer {
    fn new() -> RefusingServer {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        RefusingServer(socket)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::try_from(net::getsockname(&self.0).unwrap()).unwrap()
    }
}

#[test]
fn the_name_of_an_upstream_is_looked_up_again_after_it_moved() {
    let hole = BlackHole::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf = RefusingServer::new();
    let at = server.local_addr().unwrap();
    let proxy = Proxy::to(&format!("http://{at}")).unwrap().connect_timeout(Duration::from_millis(500));
    // The old address does not answer: the whole time is used up, and the next request finds the new address.
    proxy.upstream.addresses.set(vec![hole.address]);
    let failed = proxy.upstream.acquire(None, Duration::MAX).err();
    assert!(matches!(failed, Some(Failure::Unreachable(error)) if error.kind() == io::ErrorKind::TimedOut));
    assert!(proxy.upstream.acquire(None, Duration::MAX).is_ok());
    // The address refuses, so there is time for a lookup at once.
    let proxy = Proxy::to(&format!("http://{at}")).unwrap();
    proxy.upstream.addresses.set(vec![deaf.address()]);
    assert!(proxy.upstream.acquire(None, Duration::MAX).is_ok());
}

struct Counting(Cell<usize>);

impl BlockingHook for Counting {
    fn blocking(&self, work: Work) {
        self.0.set(self.0.get() + 1);
        work();
    }

    fn sleep(&self, _: Duration) {}
}

/// A lookup may take long. The engine frees the thread for it, and other requests do not wait for it.
#[test]
fn a_name_is_looked_up_where_it_may_wait_and_not_for_each_request() {
    static LOOKED_UP: AtomicUsize = AtomicUsize::new(0);
    let deaf = RefusingServer::new();
    let mut proxy = Proxy::to(&format!("http://{}", deaf.address())).unwrap();
    proxy.upstream.addresses.resolve = |_| {
        LOOKED_UP.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::NotFound.into())
    };
    let ground = Rc::new(Counting(Cell::new(0)));
    let _entered = enter(ground.clone());
    for _ in 0..3 {
        assert!(proxy.upstream.acquire(None, Duration::MAX).is_err());
    }
    assert_eq!((LOOKED_UP.load(Ordering::Relaxed), ground.0.get()), (1, 1));
}

#[test]
fn times_without_end_are_times() {
    let upstream = Server::bind("127.0.0.1:0").unwrap().start(|_: &mut Request<'_>| "hello").unwrap();
    let proxy = Proxy::to(&format!("http://{}", upstream.local_addr().unwrap())).unwrap();
    let proxy =
        proxy.connect_timeout(Duration::MAX).response_timeout(Duration::MAX).idle_timeout(Duration::MAX);
    let mut client = TestClient::new(proxy);
    for _ in 0..2 {
        let answer = client.get("/").send();
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello"));
    }
}

/// As a client of a database passes it on.
#[test]
fn the_deadline_of_a_request_holds_for_the_upstream() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hole = BlackHole::new();
    for address in [silent.local_addr().unwrap(), hole.address] {
        let proxy = Proxy::to(&format!("http://{address}")).unwrap().connect_timeout(Duration::from_secs(60));
        let begun = Instant::now();
        let budget = Deadline::new(Duration::from_millis(100));
        let answer = TestClient::new(proxy.with(budget)).get("/").send();
        assert_eq!(answer.status.as_u16(), 504, "{}", answer.text());
        assert!(begun.elapsed() < Duration::from_secs(30), "the server had all of its own time");
    }
}

/// The client has sent a part of a body, and stops.
#[test]
fn the_deadline_of_a_request_holds_for_its_body() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap();
    let server = server.settings(|s| s.request_timeout(Duration::from_millis(100))).start(proxy).unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    // Less than `body_idle_timeout`.
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n").unwrap();
    client.write_all(&[b'x'; 70_000]).unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 408", "it is not the upstream that is late");
}

/// The log line names the setting to change.
#[test]
fn a_timeout_is_logged_with_the_peer_and_the_limit() {
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    for bound in ["idle_timeout", "response_timeout"] {
        let failure = Failure::of(late(), bound);
        assert_eq!(failure.for_log().unwrap(), format!("timed out ({bound})"));
    }
}

/// Its name is looked up again with the port that it has.
#[test]
fn an_address_of_ipv6_without_a_port_has_one() {
    for (url, named) in [
        ("http://[::1]", "[::1]:80"),
        ("http://[::1]:81", "[::1]:81"),
        ("http://127.0.0.1/a", "127.0.0.1:80"),
    ] {
        assert_eq!(Proxy::to(url).unwrap().upstream.addresses.name, named);
    }
}

/// A server that sends `begin` and then `more` repeatedly while a client reads, for three seconds at most.
fn chatters(begin: &'static str, more: &'static str) -> (Proxy, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let speaker = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut is_heard = stream.write_all(begin.as_bytes()).is_ok();
        for _ in 0..1500 {
            is_heard = is_heard && stream.write_all(more.as_bytes()).is_ok();
            if !is_heard {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    });
    (proxy.response_timeout(Duration::from_millis(100)), speaker)
}

/// The same whether or not it has the whole request by then.
#[test]
fn an_upstream_that_sends_only_interim_responses_times_out() {
    for (begin, more) in [
        ("", "HTTP/1.1 102 Processing\r\n\r\n"),
        ("HTTP/1.1 102 ", "Processing\r\n\r\nHTTP/1.1 102 "),
        ("HTTP/1.1 200 OK\r\nX: ", "x"),
    ] {
        for bytes in [0, 32 << 20] {
            let (proxy, speaker) = chatters(begin, more);
            let mut client = TestClient::new(proxy).settings(|s| s.body_bytes_max(64 << 20));
            let answer = client.post("/").body(vec![b'x'; bytes]).http10().send();
            assert_eq!(answer.status.as_u16(), 504, "{begin:?}, {more:?}, {bytes} bytes");
            drop(client);
            speaker.join().unwrap();
        }
    }
}
