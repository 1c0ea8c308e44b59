//! Tests that trailers are sent to clients that accept them, and that no forbidden trailer is sent (RFC 9110
//! section 6.5).

use super::CASE;

fn get(path: &str, version: &str, fields: &str) -> String {
    format!("GET /{path} HTTP/{version}\r\nHost: a\r\n{fields}\r\n")
}

/// Checks the body, and whether the trailer is sent.
#[track_caller]
fn check(path: &str, fields: &str, body: &str, comes: bool) {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get(path, "1.1", fields));
    let answer = client.answer();
    answer.is(200, body);
    let want = comes.then(|| ("x-sum".to_owned(), "7".to_owned()));
    assert_eq!(answer.trailers, Vec::from_iter(want), "{fields:?}");
    assert_eq!(answer.field("x-sum"), None, "a trailer is no field of the head");
    client.get("/").is(200, "hello");
}

#[test]
fn clients_that_send_te_trailers_get_them() {
    for fields in [
        "TE: trailers\r\n",
        "te: gzip;q=0.5, Trailers\r\nConnection: TE\r\n",
        "TE: gzip\r\nTE:\ttrailers;q=1\r\n",
    ] {
        check("trailers-out/", fields, "body sent", true);
        check("trailers-out/first", fields, "sent", true);
        check("trailers-later/", fields, "body sent", true);
    }
}

#[test]
fn clients_without_te_trailers_get_none() {
    for fields in ["", "TE:\r\n", "TE: gzip, trailer\r\n", "X-TE: trailers\r\n"] {
        check("trailers-out/", fields, "body kept", false);
        check("trailers-later/", fields, "body kept", false);
    }
    check("trailers-out/declared", "TE: trailers\r\n", "body kept", false);
}

#[test]
fn http_10_gets_none() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get("trailers-out/", "1.0", "TE: trailers\r\n"));
    client.answer().is(200, "body kept");
    client.ends();
}

#[test]
fn an_answer_to_head_has_none() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("HEAD /trailers-out/ HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200);
    client.get("/").is(200, "hello");
}

/// The field would frame, route or describe the message. The handler gets an error, and nothing of the field is
/// sent.
#[test]
fn a_forbidden_trailer_is_an_error() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(get("trailers-out/forbidden", "1.1", "TE: trailers\r\n"));
    let answer = client.answer();
    assert!(answer.status == 500 && answer.closes_over_http1(), "{answer:?}");
    assert!(answer.text().contains("something went wrong on the server"), "{answer:?}");
    client.ends_over_http1();
}
