//! RFC 9112, sections 6 to 8: tests that the length of a message is read as specified, in both directions.
//!
//! `docs/conformance.md` names each test, with the sentence that it checks.

use weftwork::{Request, Response};

use super::CASE;
use crate::support::{Client, Site, eventually, noise, over_http2};

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

/// The handler reads this body, and the connection continues after it.
#[track_caller]
fn reads(site: &Site, request: &str, body: &str) {
    let mut client = site.client();
    client.send(request);
    client.answer().is(200, body);
    client.get("/").is(200, "hello");
    client.send_by(1, request);
    client.answer().is(200, body);
}

/// The request is refused, the connection ends, and nothing after it runs.
#[track_caller]
fn refuses(site: &Site, request: &str, status: u16) {
    let calls = site.calls();
    let mut client = site.client();
    // Requests of HTTP/2 do not depend on each other.
    let behind = if over_http2::is_on() { "" } else { BEHIND };
    client.send(format!("{request}{behind}"));
    let answer = client.answer();
    assert!(answer.status == status && answer.closes_over_http1(), "{request:?}: {answer:?}");
    client.ends_over_http1();
    assert_eq!(site.calls(), calls, "{request:?} was run");
}

#[test]
fn s6_1_chunks_are_decoded() {
    let site = CASE.start();
    reads(&site, &chunked("0\r\n\r\n"), "");
    reads(&site, &chunked("4\r\nbody\r\n0\r\n\r\n"), "body");
    reads(&site, &chunked("1\r\nb\r\n3\r\nody\r\n000\r\n\r\n"), "body");
    reads(&site, &post("transfer-encoding:\tCHUNKED ", "00A\r\n0123456789\r\n0\r\n\r\n"), "0123456789");
}

#[test]
fn s6_1_a_coding_that_is_not_understood_gets_501() {
    let site = CASE.start();
    for codings in ["gzip", "gzip, chunked", "identity", "x-chunked", "deflate\r\nTransfer-Encoding: chunked"] {
        refuses(&site, &post(&format!("Transfer-Encoding: {codings}"), "0\r\n\r\n"), 501);
    }
}

#[test]
fn s6_1_malformed_codings_get_400() {
    let site = CASE.start();
    for codings in [
        "", ",", "chunked,", ", chunked", "chunked;q=1", "\"chunked\"", "chun ked", "chunked\x0b", "chunked, chunked",
    ] {
        refuses(&site, &post(&format!("Transfer-Encoding: {codings}"), "0\r\n\r\n"), 400);
    }
}

#[test]
fn s6_1_transfer_encoding_with_content_length_is_refused_and_closes() {
    let site = CASE.start();
    refuses(&site, &post("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), 400);
    refuses(&site, &post("Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 0", "0\r\n\r\n"), 400);
}

#[test]
fn s6_1_transfer_encoding_in_http_10_is_faulty_framing() {
    let site = CASE.start();
    let request = "POST /echo HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n";
    refuses(&site, &format!("{request}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
    refuses(&site, &format!("{request}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nbody"), 400);
}

#[test]
fn s6_1_no_transfer_encoding_where_no_body_can_be() {
    let site = CASE.start();
    let mut client = site.client();
    for status in [204, 304] {
        let answer = client.get(&format!("/status/{status}"));
        assert_eq!((answer.status, answer.field("transfer-encoding")), (status, None));
    }
    let interim = client.get("/early");
    assert_eq!((interim.status, interim.field("transfer-encoding")), (103, None));
    client.answer().is(200, "final");
}

#[test]
fn s6_1_no_transfer_encoding_to_http_10() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("GET /stream/70000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.field("transfer-encoding"), None);
    answer.is(200, noise(70_000));
    client.ends();
}

/// The client of these tests refuses an answer with both fields. This test requests one.
#[test]
fn s6_2_no_answer_has_both_framings() {
    let site = CASE.start();
    let mut client = site.client();
    for path in ["/stream/100", "/declared/100", "/bytes/100"] {
        let answer = client.get(path);
        let both = (answer.field("content-length"), answer.field("transfer-encoding"));
        assert!(both.0.is_some() != both.1.is_some(), "{answer:?}");
    }
}

#[test]
fn s6_3_answers_without_a_body_have_none() {
    let site = CASE.start();
    let mut client = site.client();
    for request in ["HEAD /bytes/100", "GET /status/204", "GET /status/304"] {
        client.send(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = if request.starts_with("HEAD") { client.answer_to_head() } else { client.answer() };
        assert!(answer.body.is_empty(), "{answer:?}");
        client.get("/").is(200, "hello");
    }
}

#[test]
fn s6_3_chunked_that_is_not_last_gets_400() {
    let site = CASE.start();
    refuses(&site, &post("Transfer-Encoding: chunked, gzip", "0\r\n\r\n"), 400);
    refuses(&site, &post("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", "0\r\n\r\n"), 400);
}

#[test]
fn s6_3_an_invalid_content_length_gets_400() {
    let site = CASE.start();
    for length in [
        "", "+4", "-4", "4.0", "0x4", "4 4", "4;4", "four", "4, 4", "4,", "\u{664}", "1e1", "99999999999999999999",
        "18446744073709551616", "4\r\nContent-Length: 4", "4\r\nContent-Length: 5",
    ] {
        refuses(&site, &post(&format!("Content-Length: {length}"), "body"), 400);
    }
    reads(&site, &post("Content-Length: 4", "body"), "body");
    reads(&site, &post("Content-Length: 0000000000000000004", "body"), "body");
}

#[test]
fn s6_3_without_framing_there_is_no_body() {
    let site = CASE.start();
    reads(&site, "POST /echo HTTP/1.1\r\nHost: a\r\n\r\n", "");
    reads(&site, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n\r\n", "");
}

/// The end of the body is missing. No handler takes the body for whole, and the connection ends.
#[test]
fn s6_3_a_body_that_ends_early_is_incomplete() {
    let site = CASE.start();
    for part in [post("Content-Length: 5", "body"), chunked("4\r\nbody\r\n"), chunked("4\r\nbody\r\n0\r\n"), chunked("5\r\nbody")] {
        let mut client = site.client();
        client.send(&part);
        client.half_close();
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(!rest.starts_with("HTTP/1.1 200"), "{part:?}: {rest}");
    }
    assert_eq!(site.calls(), 0);
    site.is_well();
}

#[test]
fn s6_3_a_tunnel_begins_right_after_its_head() {
    let handler = |_: &mut Request| {
        Response::tunnel(|line| {
            let (mut reader, mut writer) = line.split();
            std::io::copy(&mut reader, &mut writer).map(drop)
        })
    };
    let server = CASE.bind("127.0.0.1:0").start(handler).unwrap();
    let connect = |fields: &str| format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{fields}\r\n");
    for request in [
        connect(""),
        connect("Content-Length: 3\r\n") + "abc",
        connect("Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n",
    ] {
        let mut client = Client::connect(&server);
        client.send(request + "early");
        assert_eq!(client.answer_head().status, 200);
        assert_eq!(client.exactly(5), b"early");
        client.half_close();
        client.ends();
    }
    // The rest of a body does not belong to the other end of a tunnel.
    for fields in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = Client::connect(&server);
        client.send(connect(fields) + "186a0\r\n");
        client.send(vec![b'x'; 80_000]);
        let answer = client.answer();
        assert!(answer.status == 400 && answer.closes(), "{fields}: {answer:?}");
    }
}

/// The end of the body is missing, and the handler has begun to read.
#[test]
fn s8_an_incomplete_body_is_an_error_to_its_handler() {
    let site = CASE.start();
    for fields in ["Content-Length: 300000", "Transfer-Encoding: chunked"] {
        let mut client = site.client();
        client.send(post(fields, "493e0\r\n"));
        client.send(vec![b'x'; 100_000]);
        eventually("the handler has begun", || site.calls() > 0);
        client.half_close();
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(!rest.starts_with("HTTP/1.1 200"), "{rest}");
    }
    site.is_well();
}

/// A body that ends with the connection has no other sign that it is incomplete.
#[test]
fn s8_an_answer_that_ends_with_its_connection_is_reset_where_it_breaks_off() {
    let site = CASE.start();
    for path in ["/panic-stream", "/fail-stream"] {
        for fields in ["", "Connection: keep-alive\r\n"] {
            let mut client = site.client();
            client.send(format!("GET {path} HTTP/1.0\r\n{fields}\r\n"));
            client.breaks_off();
        }
    }
    let mut client = site.client();
    client.send("GET /stream/300000 HTTP/1.0\r\n\r\n");
    client.answer().is(200, noise(300_000));
    site.is_well();
}

#[test]
fn s7_1_large_sizes_do_not_overflow() {
    let site = CASE.start();
    for size in ["10000000000000000", "FFFFFFFFFFFFFFFFF", "00000000000000004"] {
        refuses(&site, &chunked(&format!("{size}\r\nbody\r\n0\r\n\r\n")), 400);
    }
    // As large as 64 bits. The bytes after it are its data, not the next chunk.
    let mut client = site.client();
    client.send(chunked(&format!("FFFFFFFFFFFFFFFF\r\nbody\r\n0\r\n\r\n{BEHIND}")));
    client.half_close();
    assert!(!client.rest().starts_with(b"HTTP/1.1 200"));
    assert_eq!(site.calls(), 0);
}

#[test]
fn s7_1_chunks_keep_the_grammar() {
    let site = CASE.start();
    for body in [
        "\r\n", "x\r\n", " 4\r\nbody\r\n", "4 \r\nbody\r\n", "+4\r\nbody\r\n", "-4\r\nbody\r\n", "0x4\r\nbody\r\n",
        "4\nbody\r\n", "4\r\nbody\n", "4\r\nbodyx\r\n", "4\r\nbody\r\r\n", "4\r\nbody\r\n4", "4\rbody\r\n", "4,4\r\n",
        "4_0\r\n", "\u{664}\r\n",
    ] {
        refuses(&site, &chunked(body), 400);
    }
}

#[test]
fn s7_1_1_extensions_are_ignored() {
    let site = CASE.start();
    for extension in [";a", ";a=b", ";a=\"b;c\\\"\";d", ";a=\"\"", ";a;b;c"] {
        reads(&site, &chunked(&format!("4{extension}\r\nbody\r\n0{extension}\r\n\r\n")), "body");
    }
}

#[test]
fn s7_1_1_extensions_keep_the_grammar_and_a_limit() {
    let site = CASE.start();
    for extension in [";", ";=b", ";a=", ";a b", ";a=\"b", ";a\n", ";a\r;b", " ;a", ";a=\"\x01\""] {
        refuses(&site, &chunked(&format!("4{extension}\r\nbody\r\n0\r\n\r\n")), 400);
    }
    refuses(&site, &chunked(&format!("4;{}\r\nbody\r\n0\r\n\r\n", "a".repeat(5000))), 413);
    refuses(&site, &chunked(&format!("{}0\r\n\r\n", "1;abcdefg\r\nx\r\n".repeat(600))), 413);
}

#[test]
fn s7_1_2_trailers_are_kept_apart_from_the_head() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(
        "POST /trailers HTTP/1.1\r\nHost: a\r\nX: head\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX: 1\r\nY: 2\r\n\r\n",
    );
    client.answer().is(200, "body|x=1|y=2|head: x=head");
    client.get("/").is(200, "hello");
}

#[test]
fn s7_1_2_trailers_that_frame_or_route_are_refused() {
    let site = CASE.start();
    for name in ["Content-Length", "Transfer-Encoding", "Host", "Connection", "Authorization", "Set-Cookie", "Content-Type", "If-Match", "TE", "Trailer"] {
        refuses(&site, &chunked(&format!("4\r\nbody\r\n0\r\n{name}: 5\r\n\r\n")), 400);
    }
}

#[test]
fn s7_1_2_trailers_keep_the_grammar_of_fields() {
    let site = CASE.start();
    for trailer in ["X : 1", " X: 1", "X", ": 1", "X: a\rb", "X: \x01", "X: 1\r\n folded", "X: 1\nY: 2"] {
        refuses(&site, &chunked(&format!("0\r\n{trailer}\r\n\r\n")), 400);
    }
    refuses(&site, &chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(101))), 431);
}

/// The content of a body is never a request, however much it looks like one.
#[test]
fn s11_2_no_body_is_taken_for_a_request() {
    let site = CASE.start();
    let mut client = site.client();
    let length = BEHIND.len();
    client.send(post(&format!("Content-Length: {length}"), BEHIND));
    client.answer().is(200, BEHIND);
    client.send(chunked(&format!("{length:x}\r\n{BEHIND}\r\n0\r\n\r\n")));
    client.answer().is(200, BEHIND);
    client.send(post(&format!("Content-Length: {length}"), BEHIND).replace("/echo", "/ignore"));
    client.answer().is(200, "not read");
    client.get("/").is(200, "hello");
    assert_eq!(site.calls(), 4);
}
