//! RFC 9110: requirements on a server below its handlers.
//!
//! `docs/conformance.md` names each test, with the sentence that it checks.

use std::io::Write;
use std::sync::atomic::Ordering;

use weftwork::http::{HeaderValue, StatusCode, header};
use weftwork::{Request, Response, Running, Upgraded};

use super::CASE;
use super::proxy::before;
use crate::support::{Client, Site, noise, tls};

fn ask(site: &Site, request: &str) -> Client {
    let mut client = site.client();
    client.send(request);
    client
}

/// A server whose answers are followed by another protocol, or ask for it: GET gets `echo`, and CONNECT a
/// tunnel.
fn switching_server() -> Running {
    let handler = |req: &mut Request| {
        let take = |mut line: Upgraded| std::io::copy(&mut line, &mut std::io::sink()).map(drop);
        match (req.path(), req.host().unwrap_or_default()) {
            ("/", _) => Response::upgrade(HeaderValue::from_static("echo"), take),
            ("/bare", _) => Response::new(StatusCode::SWITCHING_PROTOCOLS),
            (_, "tunnel:1") => Response::tunnel(take),
            (_, "text:1") => Response::text("never sent"),
            (_, "none:1") => Response::new(StatusCode::FORBIDDEN),
            _ => Response::stream(|out| out.write_all(b"never sent")),
        }
    };
    CASE.bind("127.0.0.1:0").start(handler).unwrap()
}

#[test]
fn s5_1_names_of_fields_have_no_case() {
    let site = CASE.start();
    let mut client = ask(&site, "POST /echo HTTP/1.1\r\nhOST: a\r\ncONTENT-lENGTH: 4\r\ncONNECTION: CLOSE\r\n\r\nbody");
    let answer = client.answer();
    answer.is(200, "body");
    assert!(answer.closes());
}

#[test]
fn s5_3_lines_of_one_name_keep_their_order() {
    let site = CASE.start();
    let mut client = ask(&site, "GET /seen HTTP/1.1\r\nX: 1\r\nHost: a\r\nx: 2, 3\r\nY: 0\r\nX: 4\r\n\r\n");
    client.answer().is(200, "GET a /seen none 1|2, 3|4");
}

#[test]
fn s5_4_fields_that_are_too_large_get_4xx() {
    let site = CASE.start();
    for fields in ["X: y\r\n".repeat(200), format!("X: {}\r\n", "y".repeat(40_000))] {
        let mut client = ask(&site, &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let answer = client.answer();
        assert!(answer.status == 431 && answer.closes_over_http1(), "{answer:?}");
    }
    assert_eq!(site.calls(), 0);
}

#[test]
fn s5_5_cr_lf_and_nul_in_a_value_are_refused() {
    let site = CASE.start();
    for value in ["a\0b", "\0", "a\rb", "a\nb", "a\u{7f}b", "a\x1bb"] {
        let mut client = ask(&site, &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n"));
        assert_eq!(client.answer().status, 400, "{value:?}");
    }
    assert_eq!(site.calls(), 0);
}

#[test]
fn s5_6_1_empty_elements_of_a_list_are_ignored() {
    let site = CASE.start();
    let mut client = ask(&site, "GET / HTTP/1.1\r\nHost: a\r\nConnection: , ,\tclose ,,\r\n\r\n");
    assert!(client.answer().closes());
}

#[test]
fn s6_2_every_answer_has_our_version() {
    let site = CASE.start();
    // The client of these tests accepts nothing else.
    for version in ["1.0", "1.1"] {
        ask(&site, &format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n")).answer().is(200, "hello");
    }
    assert_eq!(ask(&site, "GET / HTTP/2.0\r\nHost: a\r\n\r\n").answer().status, 505);
}

/// The client of these tests refuses an answer without Date, or with two.
#[test]
fn s6_6_1_every_answer_has_a_date() {
    let site = CASE.start();
    let mut client = site.client();
    for path in ["/", "/status/304", "/status/204", "/status/404", "/status/301", "/stream/10"] {
        assert!(client.get(path).field("date").is_some(), "{path}");
    }
    assert!(ask(&site, "bad\r\n\r\n").answer().field("date").is_some());
}

#[test]
fn s7_4_an_https_target_gets_421_except_from_a_trusted_gateway() {
    let https = "GET HTTPS://b/seen HTTP/1.1\r\nHost: b\r\n\r\n";
    let http = "GET http://https/seen HTTP/1.1\r\nHost: b\r\n\r\n";
    let site = CASE.start();
    ask(&site, http).answer().is(200, "GET https /seen none ");
    if tls::is_on() {
        // Not over TLS: the connection is secured, so an https target is right.
        return ask(&site, https).answer().is(200, "GET b /seen none ");
    }
    let mut client = ask(&site, &format!("{https}{http}"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (421, true), "{answer:?}");
    client.ends();
    let head = "HEAD https://b/ HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(ask(&site, head).answer_to_head().status, 421);
    let post = "POST https://b/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(ask(&site, post).answer().status, 421);
    assert_eq!(site.calls(), 1, "none of them was run");
    let upstream = CASE.start_with(|s| s.trusted_proxies("127.0.0.1".parse().unwrap()));
    ask(&upstream, https).answer().is(200, "GET b /seen none ");
}

#[test]
fn s7_6_1_options_of_connection_have_no_case() {
    let site = CASE.start();
    for option in ["close", "Close", "CLOSE"] {
        let mut client = ask(&site, &format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {option}\r\n\r\n"));
        assert!(client.answer().closes());
        client.ends();
    }
    let mut client = ask(&site, "GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n");
    assert_eq!(client.answer().status, 400);
}

#[test]
fn s7_8_an_unsupported_upgrade_is_ignored() {
    let site = CASE.start();
    for version in ["1.1", "1.0"] {
        let fields = "Connection: upgrade, keep-alive\r\nUpgrade: websocket, h2c";
        let mut client = ask(&site, &format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n\r\n"));
        client.answer().is(200, "hello");
        client.get("/").is(200, "hello");
    }
}

#[test]
fn s7_8_no_101_without_a_request_for_it() {
    let site = CASE.start();
    let answer = site.client().get("/status/101");
    assert!(answer.status == 500 && answer.closes(), "{answer:?}");
    let server = switching_server();
    for (fields, status) in [
        ("", 500),
        ("Upgrade: echo\r\n", 500),
        ("Connection: upgrade\r\n", 500),
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", 500),
        ("Connection: upgrade\r\nUpgrade: echo/1\r\n", 500),
        ("Connection: upgrade\r\nUpgrade: echo\r\n", 101),
        ("Connection: upgrade\r\nUpgrade: h2c, Echo\r\n", 101),
    ] {
        let mut client = Client::connect(&server);
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.answer_head().status, status, "{fields:?}");
    }
}

#[test]
fn s7_8_a_101_names_its_protocol() {
    let server = switching_server();
    let ask = |path: &str| {
        let mut client = Client::connect(&server);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"));
        client.answer_head()
    };
    assert_eq!(ask("/bare").status, 500);
    let answer = ask("/");
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("echo")), "{answer:?}");
    assert_eq!(answer.field("connection"), Some("upgrade"), "{answer:?}");
}

#[test]
fn s7_8_upgrade_is_named_in_connection_wherever_it_is_sent() {
    let handler = |_: &mut Request| {
        let upgrade = HeaderValue::from_static("x");
        Response::new(StatusCode::UPGRADE_REQUIRED).with_header(header::UPGRADE, upgrade)
    };
    let server = CASE.bind("127.0.0.1:0").start(handler).unwrap();
    for (wanted, connection) in [("keep-alive", "upgrade"), ("close", "upgrade, close")] {
        let mut client = Client::connect(&server);
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {wanted}\r\n\r\n"));
        let answer = client.answer();
        let said = (answer.status, answer.field("upgrade"), answer.field("connection"));
        assert_eq!(said, (426, Some("x"), Some(connection)), "{answer:?}");
    }
}

#[test]
fn s8_6_no_content_length_with_204_and_1xx() {
    let site = CASE.start();
    let mut client = site.client();
    assert_eq!(client.get("/status/204").field("content-length"), None);
    assert_eq!(client.get("/early").field("content-length"), None);
    client.answer().is(200, "final");
}

#[test]
fn s8_6_the_length_for_head_is_that_of_get() {
    let site = CASE.start();
    let mut client = site.client();
    for path in ["/", "/bytes/12345", "/declared/77", "/status/404"] {
        let length = client.get(path).body.len().to_string();
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer_to_head().field("content-length"), Some(length.as_str()), "{path}");
    }
}

#[test]
fn s8_6_a_length_of_more_than_64_bits_is_refused() {
    let site = CASE.start();
    let of = |length: &str| format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(ask(&site, &of("18446744073709551616")).answer().status, 400);
    // 2^64 - 1: too large, and without a wraparound.
    let mut client = ask(&site, &of("18446744073709551615"));
    client.send(vec![b'x'; 70_000]);
    assert_eq!(client.answer().status, 413);
}

/// A handler that declares one length and writes another gets an error. The client gets no second message.
#[test]
fn s8_6_a_wrong_length_of_ours_never_goes_out_as_whole() {
    let site = CASE.start();
    for (path, declared) in [("/too-short/100", "101"), ("/too-long/100", "100")] {
        let mut client = ask(&site, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer_head().field("content-length"), Some(declared), "{path}");
        assert!(client.rest() == noise(100), "{path}: what fits, and the end of the connection");
    }
    assert_eq!(site.calls(), 2);
    assert_eq!(site.inside.refused.load(Ordering::SeqCst), 1, "the writer of too much got an error");
}

#[test]
fn s9_1_unknown_methods_are_for_the_handler_to_judge() {
    let site = CASE.start();
    for method in ["GET", "HEAD", "BREW", "get"] {
        let mut client = ask(&site, &format!("{method} /seen HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = if method == "HEAD" { client.answer_to_head() } else { client.answer() };
        assert_eq!(answer.status, 200, "{method}");
    }
}

#[test]
fn s9_3_2_no_content_in_answer_to_head() {
    let site = CASE.start();
    let mut client = site.client();
    for path in ["/", "/stream/100000", "/bytes/100000", "/status/404", "/too-long/5"] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.answer_to_head();
        client.get("/").is(200, "hello");
    }
}

/// The answer has no content, not even an explanation.
#[test]
fn s9_3_2_no_content_in_the_refusal_of_a_head() {
    let site = CASE.start();
    for (status, rest) in [
        (400, " / HTTP/1.1\r\n\r\n"),
        (400, " / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
        (501, " / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        (505, " / HTTP/2.0\r\nHost: a\r\n\r\n"),
    ] {
        let mut client = ask(&site, &format!("HEAD{rest}"));
        let answer = client.answer_to_head();
        assert_eq!((answer.status, answer.closes()), (status, true), "{rest:?}");
        client.ends();
        let answer = ask(&site, &format!("GET{rest}")).answer();
        assert!(answer.status == status && !answer.body.is_empty(), "{answer:?}");
    }
}

#[test]
fn s9_3_6_a_2xx_to_connect_has_no_framing() {
    let server = switching_server();
    let mut client = Client::connect(&server);
    client.send("CONNECT tunnel:1 HTTP/1.1\r\nHost: tunnel:1\r\n\r\n");
    let answer = client.answer_head();
    let framing = (answer.field("content-length"), answer.field("transfer-encoding"));
    assert_eq!((answer.status, framing), (200, (None, None)), "{answer:?}");
    client.half_close();
    client.ends();
}

/// A handler that did not check the method has opened no tunnel, but its 200 would claim one.
#[test]
fn s9_3_6_a_2xx_without_a_tunnel_becomes_501() {
    let server = switching_server();
    for host in ["text:1", "stream:1"] {
        let mut client = Client::connect(&server);
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status, 501, "{host}: {answer:?}");
        assert!(answer.text().contains("opens no tunnels"), "{host}: {answer:?}");
        // The bytes that follow were meant for another recipient.
        client.ends();
    }
}

/// Nor do the bytes after a CONNECT that was refused without a handler. The client may not have waited for the
/// answer.
#[test]
fn s9_3_6_nothing_after_a_refused_connect_is_a_request() {
    let server = switching_server();
    let mut client = Client::connect(&server);
    client.send("CONNECT none:1 HTTP/1.1\r\nHost: none:1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert!(answer.status == 403 && answer.closes(), "{answer:?}");
    client.ends();
}

fn expecting(version: &str, expectation: &str) -> String {
    format!("POST /echo HTTP/{version}\r\nHost: a\r\nContent-Length: 4\r\nExpect: {expectation}\r\n\r\n")
}

#[test]
fn s10_1_1_continue_is_said_before_the_body_is_waited_for() {
    let site = CASE.start();
    let mut client = ask(&site, &expecting("1.1", "100-continue"));
    assert_eq!(client.answer().status, 100);
    client.send("body");
    client.answer().is(200, "body");
    client.get("/").is(200, "hello");
}

/// RFC 9110 section 5.6.1.2: empty elements of the list are ignored.
#[test]
fn s10_1_1_expectations_are_a_list() {
    let site = CASE.start();
    for expectation in ["100-continue,", ", 100-Continue", "100-continue, 100-continue"] {
        let mut client = ask(&site, &expecting("1.1", expectation));
        assert_eq!(client.answer().status, 100, "{expectation}");
        client.send("body");
        client.answer().is(200, "body");
    }
    for nothing in ["", ","] {
        ask(&site, &(expecting("1.1", nothing) + "body")).answer().is(200, "body");
    }
}

#[test]
fn s10_1_1_a_final_answer_instead_closes() {
    let site = CASE.start();
    let mut client = ask(&site, &expecting("1.1", "100-continue").replace("/echo", "/ignore"));
    let answer = client.answer();
    assert!(answer.status == 200 && answer.closes_over_http1(), "{answer:?}");
    client.ends_over_http1();
}

#[test]
fn s10_1_1_http_10_expectations_are_ignored() {
    let site = CASE.start();
    let mut client = ask(&site, &(expecting("1.0", "100-continue") + "body"));
    client.answer().is(200, "body");
}

#[test]
fn s10_1_1_other_expectations_get_417() {
    let site = CASE.start();
    for expectation in ["200-ok", "100-continue, x", "100"] {
        assert_eq!(ask(&site, &expecting("1.1", expectation)).answer().status, 417);
    }
    assert_eq!(site.calls(), 0);
}

#[test]
fn s15_2_no_interim_answer_to_http_10() {
    let site = CASE.start();
    ask(&site, "GET /early HTTP/1.0\r\n\r\n").answer().is(200, "final");
}

#[test]
fn s15_3_6_reset_content_has_none() {
    let site = CASE.start();
    let mut client = site.client();
    let answer = client.get("/status/205");
    assert_eq!((answer.field("content-length"), answer.body.len()), (Some("0"), 0));
    client.get("/").is(200, "hello");
}

/// Without the protocols the client would not know what is required. Protocols that the proxy does not allow
/// are left out.
#[test]
fn s15_5_22_a_426_names_its_protocols_also_through_a_proxy() {
    let handler = |_: &mut Request| {
        let upgrade = HeaderValue::from_static("h2c, WebSocket,echo");
        Response::new(StatusCode::UPGRADE_REQUIRED).with_header(header::UPGRADE, upgrade)
    };
    let upstream = CASE.bind("127.0.0.1:0").start(handler).unwrap();
    let proxy = before(&upstream, |proxy| proxy.allow_upgrade("echo"));
    let answer = Client::connect(&proxy).get("/");
    let said = (answer.status, answer.field("upgrade"), answer.field("connection"));
    assert_eq!(said, (426, Some("WebSocket, echo"), Some("upgrade")), "{answer:?}");
}
