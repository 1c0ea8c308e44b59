//! Tests which proxies may set the client's address, by PROXY headers and by header fields.

use std::time::{Duration, Instant};

use weftwork::Settings;
#[cfg(feature = "websocket")]
use weftwork::{HandlerExt, Request, Router, middleware::Csrf, websocket};

use super::CASE;
#[cfg(feature = "websocket")]
use super::proxy::before;
use crate::support::{Answer, Client, Site, eventually, is_logged, keep_log};

const GET: &str = "GET /client HTTP/1.1\r\nHost: a\r\n\r\n";
const LINE: &str = "PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n";
/// LOCAL, and the same client by TCP over IPv4 with a TLV after it.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11\xc0\0\x02\x07\xcb\0\x71\x01\xdc\x04\x01\xbb\x04\0\x02xx";

fn start(change: impl FnOnce(Settings) -> Settings) -> Site {
    let server = CASE.bind("proxy+127.0.0.1:0");
    Site::start(server.settings(|s| change(s.trusted_proxies("127.0.0.0/8".parse().unwrap()))))
}

#[track_caller]
fn check(site: &Site, header: &[u8], client_addr: &str) {
    let mut whole = site.client();
    whole.send_behind(header, GET);
    whole.answer().is(200, client_addr);
    // The header counts for the connection, not only for its first request.
    whole.get("/client").is(200, client_addr);
    let mut dribbled = site.client();
    header.chunks(1).for_each(|byte| dribbled.send_in_clear(byte));
    dribbled.send_by(1, GET);
    dribbled.answer().is(200, client_addr);
    let mut apart = site.client();
    apart.send_in_clear(header);
    apart.send(GET);
    apart.answer().is(200, client_addr);
}

#[test]
fn a_proxy_header_names_the_client() {
    let site = start(|s| s);
    check(&site, LINE.as_bytes(), "192.0.2.7 via 127.0.0.1");
    check(&site, BINARY, "192.0.2.7 via 127.0.0.1");
    check(&site, b"PROXY TCP6 2001:db8::7 ::1 56324 443\r\n", "2001:db8::7 via 127.0.0.1");
    check(&site, LOCAL, "127.0.0.1 via 127.0.0.1");
    check(&site, b"PROXY UNKNOWN\r\n", "127.0.0.1 via 127.0.0.1");
    // Section 2.2: for every family and every body.
    check(&site, b"\r\n\r\n\0\r\nQUIT\n\x20\x41\0\x03odd", "127.0.0.1 via 127.0.0.1");
    site.is_well_after(LOCAL);
}

/// A proxy that names no client passes on the client's own field. A proxy that speaks for itself (LOCAL) is the
/// client.
#[test]
fn a_client_without_an_address_does_not_choose_one() {
    let site = start(|s| s);
    let unix = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8"[..], &[b'/'; 216]].concat();
    for (header, client_addr) in [
        (&b"PROXY UNKNOWN\r\n"[..], "127.0.0.1 via 127.0.0.1"),
        (b"PROXY UNKNOWN 192.0.2.7 ::1 1 2\r\n", "127.0.0.1 via 127.0.0.1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0", "127.0.0.1 via 127.0.0.1"),
        (&unix, "127.0.0.1 via 127.0.0.1"),
        (LOCAL, "6.6.6.6 via 127.0.0.1"),
    ] {
        let mut client = site.client();
        client.send_in_clear(header);
        client.send("GET /client HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
        client.answer().is(200, client_addr);
    }
}

/// Sends a request behind what comes in place of a PROXY header.
fn behind(header: impl AsRef<[u8]>) -> impl FnOnce(&mut Client) -> Option<Answer> {
    move |client| {
        client.send_behind(header, GET);
        client.refusal()
    }
}

#[track_caller]
fn refused(site: &Site, ask: impl FnOnce(&mut Client) -> Option<Answer>, status: u16, said: &str) {
    let faults = site.running.stats().faults;
    let mut client = site.client();
    if let Some(answer) = ask(&mut client) {
        assert!(answer.status == status && answer.closes(), "{answer:?}");
        assert!(answer.text().contains(said) && !answer.text().contains('_'), "{answer:?}");
    }
    client.ends();
    assert_eq!((site.calls(), site.running.stats().faults), (0, faults + 1));
}

#[test]
fn without_a_proxy_header_no_request_is_run() {
    keep_log();
    let site = start(|s| s);
    let expected = "this listener expects the PROXY protocol";
    refused(&site, behind(""), 400, expected);
    refused(&site, behind("PROXY TCP4 192.0.2.7 x 1 2\r\n"), 400, expected);
    let long = format!("{}\r\n", "PROXY UNKNOWN ".repeat(9));
    refused(&site, behind(long), 400, "The PROXY header is too long.");
    is_logged(&["proxy_header_bytes_max is 4KiB; 107 bytes in version 1"]);
}

/// Without the setting a PROXY header is not a valid request.
#[test]
fn an_unexpected_proxy_header_is_refused() {
    let site = CASE.start_with(|s| s.trusted_proxies("127.0.0.1".parse().unwrap()));
    for header in [LINE.as_bytes(), BINARY] {
        let as_request = |client: &mut Client| {
            client.send([header, GET.as_bytes()].concat());
            Some(client.answer())
        };
        refused(&site, as_request, 400, "RFC 9112");
    }
}

#[test]
fn untrusted_peers_are_refused() {
    keep_log();
    let server = CASE.bind("127.0.0.1:0");
    let server = server.settings(|s| s.proxy_protocol(true).trusted_proxies("192.0.2.0/24,unix".parse().unwrap()));
    refused(&Site::start(server), behind(LINE), 403, "only trusted proxies may connect");
    is_logged(&["its address is not in trusted_proxies (192.0.2.0/24,unix)"]);
}

#[test]
fn a_listener_with_proxy_headers_needs_trusted_networks() {
    let server = CASE.bind("proxy+127.0.0.1:0");
    let error = server.start(|_: &mut weftwork::Request| "never").unwrap_err().to_string();
    assert!(error.contains("trusted_proxies") && error.contains("10.0.0.0/8"), "{error}");
}

#[test]
fn one_listener_may_expect_proxy_headers_and_another_not() {
    let server = CASE.bind("proxy+127.0.0.1:0").and_bind("127.0.0.1:0").unwrap();
    let site = Site::start(server.settings(|s| s.trusted_proxies("127.0.0.1".parse().unwrap())));
    let addresses = site.running.addresses().to_vec();
    let mut proxied = Client::connect_to(&addresses[0]);
    proxied.send_behind(LINE, GET);
    proxied.answer().is(200, "192.0.2.7 via 127.0.0.1");
    let mut plain = Client::connect_to(&addresses[1]);
    plain.get("/client").is(200, "127.0.0.1 via 127.0.0.1");
}

/// An incomplete header ends its connection at the header's own deadline, however slowly it arrives.
#[test]
fn a_proxy_header_has_its_own_deadline() {
    const SHORT: Duration = Duration::from_millis(250);
    keep_log();
    let site = start(|s| s.proxy_header_timeout(SHORT));
    for start in ["", "PROXY TC"] {
        let begun = Instant::now();
        let mut client = site.client();
        let client_name = client.name();
        client.send_in_clear(start);
        client.sees_end_before_tls();
        is_logged(&[&client_name, "its PROXY header", &site.setting("proxy_header_timeout")]);
        let took = begun.elapsed();
        assert!(took + Duration::from_millis(2) >= SHORT && took < Duration::from_secs(5), "{took:?}");
    }
    assert_eq!(site.running.stats().timeouts, 2);
    // The head after it has the deadline of a head.
    let mut slow = site.client();
    slow.send_in_clear(LINE);
    std::thread::sleep(SHORT * 2);
    slow.send(GET);
    slow.answer().is(200, "192.0.2.7 via 127.0.0.1");
}

#[test]
fn connections_without_input_end_with_the_server() {
    let site = start(|s| s);
    let silent = [site.client(), site.client()];
    eventually("both are accepted", || site.running.stats().accepted == 2);
    let report = site.running.shutdown(Duration::from_secs(10));
    assert!(report.cut == 0 && report.took < Duration::from_secs(5), "{report}");
    silent.into_iter().for_each(|mut client| client.sees_end_before_tls());
}

#[test]
fn fields_of_trusted_proxies_count() {
    let ask = |site: &Site, field: &str| {
        let mut client = site.client();
        client.send(format!("GET /client HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
        client.answer().text().to_owned()
    };
    let trusting = CASE.start_with(|s| s.trusted_proxies("127.0.0.1,10.0.0.0/8".parse().unwrap()));
    assert_eq!(ask(&trusting, "X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.2"), "192.0.2.7 via 127.0.0.1");
    assert_eq!(ask(&trusting, "Forwarded: for=1.1.1.1"), "127.0.0.1 via 127.0.0.1");
    let wary = CASE.start();
    assert_eq!(ask(&wary, "X-Forwarded-For: 1.1.1.1"), "127.0.0.1 via 127.0.0.1");
    let of_7239 = CASE.start_with(|s| {
        s.trusted_proxies("127.0.0.1".parse().unwrap()).forwarded_header(weftwork::ForwardedHeader::Forwarded)
    });
    assert_eq!(ask(&of_7239, "Forwarded: for=\"[2001:db8::7]:80\""), "2001:db8::7 via 127.0.0.1");
}

/// The origin of a page is compared with the host that its browser requested. This proxy sends another host.
#[cfg(feature = "websocket")]
#[test]
fn a_page_of_the_host_that_a_trusted_proxy_was_asked_for_is_let_in() {
    for (trusted, statuses) in [("127.0.0.1", [200, 101]), ("none", [403, 403])] {
        let site = Router::new().post("/", || "done").get("/", |req: &mut Request| websocket(req, |_| Ok(())));
        let upstream = CASE.bind("127.0.0.1:0").settings(|s| s.trusted_proxies(trusted.parse().unwrap()));
        let upstream = upstream.start(site.with(Csrf::new())).unwrap();
        let proxy = before(&upstream, |proxy| proxy.upstream_host());
        let ask = |request: &str, host: &str| {
            let mut client = Client::connect(&proxy);
            client.send(format!("{request}Host: {host}\r\nOrigin: https://a.example\r\n\r\n"));
            client.answer_head().status
        };
        let post = "POST / HTTP/1.1\r\nContent-Length: 0\r\n";
        let handshake = "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        assert_eq!([post, handshake].map(|request| ask(request, "a.example")), statuses, "{trusted}");
        assert_eq!([post, handshake].map(|request| ask(request, "b.example")), [403, 403], "{trusted}");
    }
}

/// The address in a PROXY header may belong to another proxy, which adds a field of its own.
#[test]
fn both_ways_make_one_chain() {
    let site = start(|s| s.trusted_proxies("127.0.0.1,192.0.2.0/24".parse().unwrap()));
    let mut client = site.client();
    client.send_behind(LINE, "GET /client HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 203.0.113.9\r\n\r\n");
    client.answer().is(200, "203.0.113.9 via 127.0.0.1");
}
