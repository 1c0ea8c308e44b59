//! RFC 9112, sections 2 to 5: tests that a request is read as specified, and refused if the text requires it.
//!
//! `docs/conformance.md` names each test, with the sentence that it checks.

use weftwork::{Request, Response};

use super::CASE;
use crate::support::{Answer, Client, Site, over_http2};

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

/// The handler answers with what it has received.
#[track_caller]
fn reads(site: &Site, request: &str, seen: &str) {
    let mut client = site.client();
    client.send(request);
    client.answer().is(200, seen);
    client.get("/").is(200, "hello");
}

/// The request is refused, the connection ends, and nothing of the request or after it runs.
#[track_caller]
fn refuses(site: &Site, request: impl AsRef<[u8]>, status: u16) {
    let calls = site.calls();
    let mut client = site.client();
    // Requests of HTTP/2 do not depend on each other.
    let behind = if over_http2::is_on() { "" } else { BEHIND };
    client.send([request.as_ref(), behind.as_bytes()].concat());
    let answer = client.answer();
    assert!(answer.status == status && answer.closes_over_http1(), "{answer:?}");
    client.ends_over_http1();
    assert_eq!(site.calls(), calls, "it was run");
}

fn with_field(line: &str) -> String {
    format!("GET /seen HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")
}

#[test]
fn s2_2_a_message_is_octets() {
    let site = CASE.start();
    let mut client = site.client();
    // Neither Latin-1 nor broken UTF-8 in a value changes where lines end.
    client.send(b"GET /seen HTTP/1.1\r\nHost: a\r\nX: \xe9\xff\xc3\x28\x80\r\n\r\n");
    client.answer().is(200, "GET a /seen none \\xe9\\xff\\xc3(\\x80");
    // In UTF-16, U+010A has the octet of a line feed.
    refuses(&site, b"GET /seen HTTP/1.1\r\nHost: a\r\nX: \x01\x0a\r\n\r\n", 400);
}

#[test]
fn s2_2_an_empty_line_before_a_request_is_ignored() {
    let site = CASE.start();
    reads(&site, "\r\nGET /seen HTTP/1.1\r\nHost: a\r\n\r\n", "GET a /seen none ");
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody\r\n");
    client.answer().is(200, "body");
    client.get("/").is(200, "hello");
}

#[test]
fn s2_2_a_bare_cr_is_invalid() {
    let site = CASE.start();
    refuses(&site, "GET /seen\r HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refuses(&site, "GET /seen HTTP/1.1\rHost: a\r\n\r\n", 400);
    refuses(&site, with_field("X: a\rb"), 400);
    refuses(&site, with_field("X\r: a"), 400);
    refuses(&site, "\r\rGET /seen HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn s2_2_a_bare_lf_ends_no_line() {
    let site = CASE.start();
    refuses(&site, "GET /seen HTTP/1.1\nHost: a\n\n", 400);
    refuses(&site, "GET /seen HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400);
    refuses(&site, "GET /seen HTTP/1.1\r\nHost: a\r\n\n", 400);
}

#[test]
fn s2_2_white_space_before_the_first_field_is_refused() {
    let site = CASE.start();
    for space in [" ", "\t", " \t "] {
        refuses(&site, format!("GET /seen HTTP/1.1\r\n{space}Host: a\r\n\r\n"), 400);
        refuses(&site, format!("GET /seen HTTP/1.1\r\n{space}X: b\r\nHost: a\r\n\r\n"), 400);
        refuses(&site, format!("GET /seen HTTP/1.1\r\n{space}\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn s2_2_what_is_no_http_gets_400() {
    let site = CASE.start();
    for bytes in [&b"\x16\x03\x01\x02\0\x01\0"[..], b"\0\0\0\0", b"{}\r\n\r\n", b"\x80GET / HTTP/1.1\r\n"] {
        refuses(&site, bytes, 400);
    }
}

#[test]
fn s2_3_versions_are_two_digits_after_http() {
    let site = CASE.start();
    for version in ["HTTP/1", "HTTP/1.", "HTTP/.1", "HTTP/11", "HTTP/1.10", "HTTP/1.1.1", "http/1.1", "HTTP 1.1", "HTCPCP/1.1", "HTTP/a.1", "HTTP/-1.1"] {
        refuses(&site, format!("GET /seen {version}\r\nHost: a\r\n\r\n"), 400);
    }
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/3.0", "HTTP/1.2"] {
        refuses(&site, format!("GET /seen {version}\r\nHost: a\r\n\r\n"), 505);
    }
    reads(&site, "GET /seen HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET none /seen none ");
}

#[test]
fn s3_a_request_line_is_three_words_and_two_spaces() {
    let site = CASE.start();
    for line in ["GET  /seen HTTP/1.1", "GET /seen  HTTP/1.1", "GET\t/seen HTTP/1.1", "GET /seen HTTP/1.1 ", "GET /a b HTTP/1.1", "GET HTTP/1.1", "GET /seen", "GET"] {
        refuses(&site, format!("{line}\r\nHost: a\r\n\r\n"), 400);
    }
    refuses(&site, " GET /seen HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn s3_a_target_of_8000_bytes_is_taken_and_one_too_long_gets_414() {
    let site = CASE.start();
    let target = |bytes: usize| format!("/seen?{}", "x".repeat(bytes - 6));
    let request = |bytes: usize| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target(bytes));
    reads(&site, &request(8000), &format!("GET a /seen {} ", "x".repeat(7994)));
    refuses(&site, request(8200), 414);
    refuses(&site, &request(100_000)[..9000], 414);
}

#[test]
fn s3_1_a_method_is_a_token_and_its_case_counts() {
    let site = CASE.start();
    for method in ["GET", "get", "BREW", "M-SEARCH", "!#$%&'*+-.^_`|~09aZ"] {
        reads(&site, &format!("{method} /seen HTTP/1.1\r\nHost: a\r\n\r\n"), &format!("{method} a /seen none "));
    }
    for method in ["G@T", "GET,", "G(T", "\"GET\"", "GE\u{301}T", ""] {
        refuses(&site, format!("{method} /seen HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn s3_2_http_11_has_exactly_one_valid_host() {
    let site = CASE.start();
    let request = |fields: &str| format!("GET /seen HTTP/1.1\r\n{fields}\r\n");
    refuses(&site, request(""), 400);
    refuses(&site, request("Host: a\r\nHost: a\r\n"), 400);
    refuses(&site, request("Host: a\r\nX: y\r\nhOST: b\r\n"), 400);
    for host in ["a b", "a/b", "a@b", "a:b", "a:80:80", "[::1", "::1", "a?", "a#", "%zz", "[gg::1]", "a\tb"] {
        refuses(&site, request(&format!("Host: {host}\r\n")), 400);
    }
    for host in ["a", "a:80", "a:", "[::1]:8080", "192.0.2.1", "xn--a.example", "A%20b"] {
        reads(&site, &request(&format!("Host: {host}\r\n")), &format!("GET {host} /seen none "));
    }
}

#[test]
fn s3_2_1_origin_form_has_path_and_query() {
    let site = CASE.start();
    reads(&site, "GET /seen/a%20b;c=d?e=f?g/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET a /seen/a%20b;c=d e=f?g/ ");
    reads(&site, "GET /seen? HTTP/1.1\r\nHost: a\r\n\r\n", "GET a /seen  ");
    for target in ["seen", "?a", "/a#b", "/a\\b", "/a\"b", "/\u{e9}", "/%4", "/%zz", "//a/../\u{7f}"] {
        refuses(&site, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn s3_2_2_absolute_form_is_accepted_and_wins_over_host() {
    let site = CASE.start();
    reads(&site, "GET http://b:81/seen?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET b:81 /seen q ");
    let mut client = site.client();
    client.send("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer().is(200, "hello");
    reads(&site, "GET http://b/seen HTTP/1.1\r\nHost:\r\n\r\n", "GET b /seen none ");
    // The Host field is ignored, but it must be present and valid.
    refuses(&site, "GET http://b/seen HTTP/1.1\r\n\r\n", 400);
    refuses(&site, "GET http://b/seen HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    for target in ["http:///seen", "http://", "ftp://b/seen", "http:/b/seen", "http://u@b/seen"] {
        refuses(&site, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn s3_2_3_authority_form_is_for_connect_alone() {
    let site = CASE.start();
    refuses(&site, "GET b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n", 400);
    for target in ["/", "b", "b:", "http://b:80/", "*", "b:80/", "b:99999", "u@b:80"] {
        refuses(&site, format!("CONNECT {target} HTTP/1.1\r\nHost: b:80\r\n\r\n"), 400);
    }
}

#[test]
fn s3_2_4_asterisk_form_is_for_options_alone() {
    let site = CASE.start();
    let mut client = site.client();
    // As a proxy forwards it. The last proxy must convert one form to the other, and here there is no proxy
    // (RFC 9110 section 4.2.3).
    for target in ["*", "http://a", "http://a:80"] {
        client.send(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.answer().is(200, "all of it");
    }
    client.send("OPTIONS http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer().is(200, "hello");
    refuses(&site, "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refuses(&site, "OPTIONS *a HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn s3_3_an_empty_authority_is_refused() {
    let site = CASE.start();
    refuses(&site, "GET /seen HTTP/1.1\r\nHost:\r\n\r\n", 400);
    refuses(&site, "GET /seen HTTP/1.1\r\nHost: \t\r\n\r\n", 400);
    refuses(&site, "GET http:///seen HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn s4_a_status_line_has_both_spaces() {
    let site = CASE.start();
    // A status without a reason. The client of these tests requires the space after the status.
    let answer: Answer = site.client().get("/status/599");
    assert_eq!(answer.status, 599);
}

#[test]
fn s5_names_have_no_case_and_values_no_white_space_around() {
    let site = CASE.start();
    for line in ["X:b c", "x: b c", "X:\t b c \t", "X: b c"] {
        reads(&site, &with_field(line), "GET a /seen none b c");
    }
    reads(&site, &with_field("X:\r\nX: \r\nX: \"q\\\\"), "GET a /seen none ||\\\"q\\\\\\\\");
}

#[test]
fn s5_names_are_tokens() {
    let site = CASE.start();
    for line in [": b", "X(: b", "X\u{e9}: b", "X,Y: b", "X\0: b", "no colon", "\"X\": b", "X Y: b"] {
        refuses(&site, with_field(line), 400);
    }
}

#[test]
fn s5_1_white_space_before_the_colon_gets_400() {
    let site = CASE.start();
    for line in ["X : b", "X\t: b", "Content-Length : 5", "Transfer-Encoding : chunked"] {
        refuses(&site, with_field(line), 400);
    }
    refuses(&site, "GET /seen HTTP/1.1\r\nHost : a\r\n\r\n", 400);
}

#[test]
fn s5_2_a_folded_line_gets_400() {
    let site = CASE.start();
    for line in ["X: a\r\n b", "X: a\r\n\tb", "X:\r\n b", "X: a\r\n \r\nY: b"] {
        refuses(&site, with_field(line), 400);
    }
}

/// No text of a handler can add a line: the types refuse it.
#[test]
fn s5_2_no_line_is_folded_and_none_is_split_in_answers() {
    // The handler copies the client's text into a field.
    let handler = |req: &mut Request| {
        Response::text("").try_with_header("y", &*req.query_value("y").unwrap_or_default())
    };
    let server = CASE.bind("127.0.0.1:0").start(handler).unwrap();
    for (value, status) in [("a%20b", 200), ("a%0d%0ax:b", 500), ("a%0ax:b", 500), ("a%0dx:b", 500), ("a%0d%0a%20b", 500)] {
        let answer = Client::connect(&server).get(&format!("/?y={value}"));
        let sent = (answer.status, answer.field("y"), answer.field("x"));
        assert_eq!(sent, (status, (status == 200).then_some("a b"), None), "{value}");
    }
    use weftwork::http::HeaderValue;
    for value in ["a\r\nX: b", "a\nX: b", "a\r b", "a\0"] {
        assert!(HeaderValue::from_str(value).is_err(), "{value:?}");
    }
}
