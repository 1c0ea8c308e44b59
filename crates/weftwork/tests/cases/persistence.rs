//! Tests when a connection persists, and what its response says of that (RFC 9112 section 9.3).

use super::CASE;

#[track_caller]
fn check(request: &str, connection: Option<&str>, goes_on: bool) {
    CASE.start().check_connection(request, connection, goes_on);
}

#[test]
fn version_and_connection_field_decide() {
    check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", None, true);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", None, true);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Some("close"), false);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE ,y\r\n\r\n", Some("close"), false);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n", Some("close"), false);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n", Some("close"), false);
    check("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", None, true);
    check("GET / HTTP/1.0\r\n\r\n", Some("close"), false);
    check("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive"), true);
    check("GET / HTTP/1.0\r\nConnection: Keep-Alive, x\r\n\r\n", Some("keep-alive"), true);
    check("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", Some("close"), false);
}

#[test]
fn a_handler_may_end_the_connection() {
    check("GET /close HTTP/1.1\r\nHost: a\r\n\r\n", Some("close"), false);
    check("GET /connection/close HTTP/1.1\r\nHost: a\r\n\r\n", Some("close"), false);
    check("GET /close HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("close"), false);
}

#[test]
fn there_is_one_connection_field() {
    check("GET /connection/x-hop HTTP/1.1\r\nHost: a\r\n\r\n", Some("x-hop"), true);
    let both = "GET /connection/x-hop HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    check(both, Some("x-hop, close"), false);
    check(
        "GET /connection/keep-alive HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        Some("close"),
        false,
    );
}

/// HEAD returns the head of GET and has no body. The next response follows at once.
#[test]
fn head_has_the_head_of_get() {
    let site = CASE.start();
    let mut client = site.client();
    for path in ["/", "/bytes/100", "/declared/5000"] {
        let got = client.get(path);
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.answer_to_head();
        assert_eq!(head.status, 200);
        assert_eq!(head.field("content-length"), Some(got.body.len().to_string().as_str()), "{path}");
        assert_eq!(head.field("content-type"), got.field("content-type"), "{path}");
    }
    client.send("HEAD /stream/100 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to_head().field("content-length"), None);
    client.get("/").is(200, "hello");
}

/// A handler that sets a body where none is allowed does not break the framing of the connection.
#[test]
fn statuses_without_a_body_have_none() {
    let site = CASE.start();
    let mut client = site.client();
    for status in [204, 304] {
        let answer = client.get(&format!("/status/{status}"));
        assert_eq!((answer.status, answer.body.len()), (status, 0));
        client.get("/").is(200, "hello");
    }
    let answer = client.get("/status/205");
    assert_eq!((answer.status, answer.field("content-length")), (205, Some("0")));
    client.get("/").is(200, "hello");
}

/// 101 and other interim statuses cannot be final. The error is the handler's, and the client does not wait for
/// a body.
#[test]
fn an_interim_status_is_no_answer() {
    for status in [100, 101, 103] {
        let site = CASE.start();
        let mut client = site.client();
        let answer = client.get(&format!("/status/{status}"));
        assert!(answer.status == 500 && answer.closes_over_http1(), "{answer:?}");
        client.ends_over_http1();
    }
}

#[test]
fn a_date_that_is_given_stays() {
    let site = CASE.start();
    let mut client = site.client();
    let given = client.get("/date");
    assert_eq!(given.field("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    let now = client.get("/");
    assert!(now.field("date").is_some_and(|date| date.contains(" 20")), "{now:?}");
}

/// The real limit is an hour. Here the connection reaches its maximum age while its first answer is made, and
/// ends with it.
#[test]
fn an_old_connection_ends_with_its_answer() {
    let site = CASE.start_with(|s| s.age_max(std::time::Duration::from_millis(20)));
    let mut client = site.client();
    client.send("GET /sleep/40 HTTP/1.1\r\nHost: a\r\n\r\n");
    // The server may see the age before the request has arrived. Then the connection ends without an answer.
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.is_empty() || rest.contains("\r\nConnection: close\r\n"), "{rest:?}");
}
