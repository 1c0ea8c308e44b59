//! Responses, by their exact bytes.

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, StatusCode};

use super::{BodyLength, ResponseHead};
use crate::testing::text;
use crate::{After, BodyEvent, Date, Head, Http1, Limits, Misuse};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_CLOSE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const GET_10: &str = "GET / HTTP/1.0\r\n\r\n";
const GET_10_KEEP: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
const HEAD_10: &str = "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const CONNECT: &str = "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n";
const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n";
const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

use BodyLength::{Exact, Unknown};

type Fields = [(HeaderName, HeaderValue)];

fn date() -> Date {
    Date::at(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
}

fn fields(lines: &[(&'static str, &'static str)]) -> Vec<(HeaderName, HeaderValue)> {
    let field = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    lines.iter().map(field).collect()
}

fn after_reading(request: &str) -> Http1 {
    let mut http = Http1::new();
    http.read_head(request.as_bytes(), &Limits::default(), &mut Head::default()).unwrap();
    http
}

fn head(status: u16, length: BodyLength, fields: &Fields) -> ResponseHead<'_> {
    ResponseHead { status: StatusCode::from_u16(status).unwrap(), fields, length, ..ResponseHead::default() }
}

/// The whole response to `request`: status and `rest`, in which `@` stands for the Date field.
#[track_caller]
fn check(
    request: &str,
    (status, length, lines): (u16, BodyLength, &[(&'static str, &'static str)]),
    body: &[&str],
    want: &str,
    after: After,
) {
    let (mut http, mut out, lines) = (after_reading(request), Vec::new(), fields(lines));
    http.write_head(&head(status, length, &lines), &date(), &mut out).unwrap();
    for part in body {
        http.write_body(part.as_bytes(), &mut out).unwrap();
    }
    assert_eq!(http.finish(&[], &mut out), Ok(after));
    assert_eq!(text(&out), want.replace('@', DATE));
}

/// The head is refused, nothing of it is written, and another can be.
#[track_caller]
fn misuse(
    request: &str,
    status: u16,
    length: BodyLength,
    lines: &[(&'static str, &'static str)],
    want: Misuse,
) {
    let (mut http, mut out, lines) = (after_reading(request), Vec::new(), fields(lines));
    assert_eq!(http.write_head(&head(status, length, &lines), &date(), &mut out), Err(want));
    assert_eq!(text(&out), "");
    assert_eq!(http.write_head(&ResponseHead::default(), &date(), &mut out), Ok(()));
}

#[test]
fn rfc9112_6_2_known_length() {
    check(GET, (200, Exact(2), &[]), &["OK"], "HTTP/1.1 200 OK\r\n@Content-Length: 2\r\n\r\nOK", After::Next);
    check(GET, (200, Exact(0), &[]), &[], "HTTP/1.1 200 OK\r\n@Content-Length: 0\r\n\r\n", After::Next);
    check(
        GET,
        (200, Exact(4), &[]),
        &["ab", "", "cd"],
        "HTTP/1.1 200 OK\r\n@Content-Length: 4\r\n\r\nabcd",
        After::Next,
    );
    let given = [("content-length", "2"), ("x-one", "1")];
    check(
        GET,
        (200, Exact(2), &given),
        &["OK"],
        "HTTP/1.1 200 OK\r\n@x-one: 1\r\nContent-Length: 2\r\n\r\nOK",
        After::Next,
    );
}

#[test]
fn rfc9112_7_1_unknown_length() {
    let chunked = "HTTP/1.1 200 OK\r\n@Transfer-Encoding: chunked\r\n\r\n";
    check(GET, (200, Unknown, &[]), &[], &format!("{chunked}0\r\n\r\n"), After::Next);
    check(
        GET,
        (200, Unknown, &[]),
        &["hello", "", " you"],
        &format!("{chunked}5\r\nhello\r\n4\r\n you\r\n0\r\n\r\n"),
        After::Next,
    );
    let long = "a".repeat(0x1234);
    check(GET, (200, Unknown, &[]), &[&long], &format!("{chunked}1234\r\n{long}\r\n0\r\n\r\n"), After::Next);
    let until_the_end = "HTTP/1.1 200 OK\r\n@Connection: close\r\n\r\n";
    check(GET_10, (200, Unknown, &[]), &["a", "b"], &format!("{until_the_end}ab"), After::Close);
    check(GET_10_KEEP, (200, Unknown, &[]), &["a"], &format!("{until_the_end}a"), After::Close);
    let declared = [("content-length", "2")];
    check(
        GET,
        (200, Unknown, &declared),
        &["a", "b"],
        "HTTP/1.1 200 OK\r\n@Content-Length: 2\r\n\r\nab",
        After::Next,
    );
    check(
        GET_10_KEEP,
        (200, Unknown, &declared),
        &["ab"],
        "HTTP/1.1 200 OK\r\n@Content-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
        After::Next,
    );
}

#[test]
fn rfc9110_9_3_2_head() {
    check(
        HEAD,
        (200, Exact(5), &[]),
        &["hello"],
        "HTTP/1.1 200 OK\r\n@Content-Length: 5\r\n\r\n",
        After::Next,
    );
    check(HEAD, (200, Exact(5), &[]), &[], "HTTP/1.1 200 OK\r\n@Content-Length: 5\r\n\r\n", After::Next);
    check(
        HEAD,
        (200, Exact(0), &[("content-length", "5")]),
        &[],
        "HTTP/1.1 200 OK\r\n@Content-Length: 5\r\n\r\n",
        After::Next,
    );
    check(HEAD, (200, Unknown, &[]), &["hello"], "HTTP/1.1 200 OK\r\n@\r\n", After::Next);
    check(
        HEAD_10,
        (200, Unknown, &[]),
        &["hello"],
        "HTTP/1.1 200 OK\r\n@Connection: keep-alive\r\n\r\n",
        After::Next,
    );
}

#[test]
fn rfc9110_15_statuses_without_a_body() {
    check(GET, (204, Exact(0), &[]), &[], "HTTP/1.1 204 No Content\r\n@\r\n", After::Next);
    check(GET, (204, Unknown, &[]), &["swallowed"], "HTTP/1.1 204 No Content\r\n@\r\n", After::Next);
    let last = "HTTP/1.1 204 No Content\r\n@Connection: close\r\n\r\n";
    check(GET_10, (204, Unknown, &[]), &[], last, After::Close);
    check(
        GET,
        (205, Exact(3), &[]),
        &["abc"],
        "HTTP/1.1 205 Reset Content\r\n@Content-Length: 0\r\n\r\n",
        After::Next,
    );
    check(GET, (304, Exact(0), &[]), &[], "HTTP/1.1 304 Not Modified\r\n@\r\n", After::Next);
    check(
        GET,
        (304, Exact(7), &[]),
        &["swallow"],
        "HTTP/1.1 304 Not Modified\r\n@Content-Length: 7\r\n\r\n",
        After::Next,
    );
    check(
        GET,
        (304, Exact(0), &[("content-length", "7")]),
        &[],
        "HTTP/1.1 304 Not Modified\r\n@Content-Length: 7\r\n\r\n",
        After::Next,
    );
    check(GET, (304, Unknown, &[]), &[], "HTTP/1.1 304 Not Modified\r\n@\r\n", After::Next);
}

#[test]
fn rfc9112_4_reason_phrases() {
    check(
        GET,
        (404, Exact(0), &[]),
        &[],
        "HTTP/1.1 404 Not Found\r\n@Content-Length: 0\r\n\r\n",
        After::Next,
    );
    check(
        GET,
        (418, Exact(0), &[]),
        &[],
        "HTTP/1.1 418 I'm a teapot\r\n@Content-Length: 0\r\n\r\n",
        After::Next,
    );
    check(GET, (599, Exact(0), &[]), &[], "HTTP/1.1 599 \r\n@Content-Length: 0\r\n\r\n", After::Next);
}

#[test]
fn rfc9112_9_3_one_connection_field() {
    let length = "Content-Length: 0\r\n";
    check(
        GET_CLOSE,
        (200, Exact(0), &[]),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: close\r\n\r\n"),
        After::Close,
    );
    check(
        GET_10,
        (200, Exact(0), &[]),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: close\r\n\r\n"),
        After::Close,
    );
    check(
        GET_10_KEEP,
        (200, Exact(0), &[]),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: keep-alive\r\n\r\n"),
        After::Next,
    );
    let given = |value| [("connection", value)];
    check(
        GET,
        (200, Exact(0), &given("close")),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: close\r\n\r\n"),
        After::Close,
    );
    check(
        GET_10_KEEP,
        (200, Exact(0), &given("Close")),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: close\r\n\r\n"),
        After::Close,
    );
    check(
        GET,
        (200, Exact(0), &given("keep-alive")),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}\r\n"),
        After::Next,
    );
    check(
        GET_CLOSE,
        (200, Exact(0), &given("keep-alive")),
        &[],
        &format!("HTTP/1.1 200 OK\r\n@{length}Connection: close\r\n\r\n"),
        After::Close,
    );
    check(
        GET,
        (426, Exact(0), &[("upgrade", "b"), ("connection", "Upgrade"), ("connection", "x , close")]),
        &[],
        &format!(
            "HTTP/1.1 426 Upgrade Required\r\n@upgrade: b\r\n{length}Connection: Upgrade, x, close\r\n\r\n"
        ),
        After::Close,
    );
}

/// §7.8: whoever sends `Upgrade` names it in `Connection`, once.
#[test]
fn rfc9110_7_8_upgrade_is_a_connection_option() {
    let check_426 = |request: &str, connection: Option<&'static str>, said: &str, after| {
        let fields: Vec<_> =
            [("upgrade", "b")].into_iter().chain(connection.map(|given| ("connection", given))).collect();
        let head = "HTTP/1.1 426 Upgrade Required\r\n@upgrade: b\r\nContent-Length: 0\r\n";
        check(request, (426, Exact(0), &fields), &[], &format!("{head}Connection: {said}\r\n\r\n"), after);
    };
    check_426(GET, None, "upgrade", After::Next);
    check_426(GET_CLOSE, None, "upgrade, close", After::Close);
    check_426(GET, Some("x"), "x, upgrade", After::Next);
    check_426(GET, Some("x, Upgrade"), "x, Upgrade", After::Next);
}

#[test]
fn rfc9110_15_2_2_switching_protocols() {
    let head = "HTTP/1.1 101 Switching Protocols\r\n@upgrade: chat\r\nConnection: upgrade\r\n\r\n";
    switch(UPGRADE, &[("upgrade", "chat")], Ok(head));
    switch(
        &UPGRADE.replace("Upgrade: chat", "Upgrade: a/1,chat\r\nupgrade: b"),
        &[("upgrade", "chat")],
        Ok(head),
    );
    switch(&UPGRADE.replace("chat", "Chat"), &[("upgrade", "chat")], Ok(head));
    switch(
        &UPGRADE.replace("chat", "a, chat/2"),
        &[("upgrade", "chat/2, a"), ("connection", "Upgrade, x")],
        Ok("HTTP/1.1 101 Switching Protocols\r\n@upgrade: chat/2, a\r\nConnection: x, upgrade\r\n\r\n"),
    );
}

/// RFC 9110 §7.8: a server must not switch to what the client did not ask for, and has to say to what it does.
#[test]
fn rfc9110_7_8_only_to_a_protocol_that_was_asked_for() {
    let refused = Err(Misuse::UpgradeNotPossible);
    for lines in [
        &[][..],
        &[("upgrade", "")],
        &[("upgrade", "echo")],
        &[("upgrade", "chat/2")],
        &[("upgrade", "chat, echo")],
        &[("upgrade", "chat"), ("upgrade", "echo")],
        &[("connection", "chat")],
    ] {
        switch(UPGRADE, lines, refused);
    }
    let chat = [("upgrade", "chat")];
    switch(GET, &chat, refused);
    switch(&UPGRADE.replace("Connection: upgrade", "Connection: x"), &chat, refused);
    switch(&UPGRADE.replace("HTTP/1.1", "HTTP/1.0"), &chat, refused);
    // A call that cannot know what was asked for.
    misuse(UPGRADE, 101, Exact(0), &chat, Misuse::UpgradeNotPossible);
    let (mut http, mut out) = (after_reading(GET), Vec::new());
    let other = http.write_switch(&head(200, Exact(0), &[]), &Head::default(), b"", &date(), &mut out);
    assert_eq!((other, text(&out).as_str()), (Err(Misuse::StatusNotAllowed), ""));
}

/// 101 with these fields: the whole head, or why there is none. Another one can be sent then.
#[track_caller]
fn switch(request: &str, lines: &[(&'static str, &'static str)], want: Result<&str, Misuse>) {
    let (mut http, mut request_head, mut out) = (Http1::new(), Head::default(), Vec::new());
    http.read_head(request.as_bytes(), &Limits::default(), &mut request_head).unwrap();
    let lines = fields(lines);
    let written =
        http.write_switch(&head(101, Exact(0), &lines), &request_head, request.as_bytes(), &date(), &mut out);
    assert_eq!(written.map(|()| text(&out)), want.map(|want| want.replace('@', DATE)));
    if want.is_ok() {
        assert!(!http.sends_body());
        assert_eq!(http.finish(&[], &mut out), Ok(After::Close));
    } else {
        assert_eq!(text(&out), "");
        assert_eq!(http.write_head(&ResponseHead::default(), &date(), &mut out), Ok(()));
    }
}

#[test]
fn rfc9110_9_3_6_connect() {
    check(CONNECT, (200, Exact(0), &[]), &[], "HTTP/1.1 200 OK\r\n@\r\n", After::Close);
    check(
        CONNECT,
        (403, Exact(0), &[]),
        &[],
        "HTTP/1.1 403 Forbidden\r\n@Content-Length: 0\r\n\r\n",
        After::Next,
    );
    misuse(CONNECT, 200, Exact(0), &[("content-length", "0")], Misuse::ContentLengthForbidden);
    misuse(CONNECT, 200, Unknown, &[("transfer-encoding", "chunked")], Misuse::TransferEncodingGiven);
    check(CONNECT, (200, Unknown, &[]), &["swallowed"], "HTTP/1.1 200 OK\r\n@\r\n", After::Close);
    // Whether the connection persists is no question that a tunnel has.
    let close = CONNECT.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    check(&close, (200, Exact(0), &[]), &[], "HTTP/1.1 200 OK\r\n@\r\n", After::Close);
}

/// What is left of its body would go into the tunnel.
#[test]
fn rfc9112_6_3_a_tunnel_waits_for_the_body() {
    for framing in ["Content-Length: 3", "Transfer-Encoding: chunked"] {
        let request = CONNECT.replace("\r\n\r\n", &format!("\r\n{framing}\r\n\r\n"));
        let mut http = after_reading(&request);
        let (ok, mut out) = (head(200, Exact(0), &[]), Vec::new());
        assert_eq!(http.write_head(&ok, &date(), &mut out), Err(Misuse::UpgradeNotPossible));
        let body = if framing.starts_with('C') { "abcearly" } else { "3\r\nabc\r\n0\r\n\r\nearly" };
        let (mut used, mut event) = (0, BodyEvent::NeedMore);
        while event != BodyEvent::End {
            let (more, next) = http.read_body(&body.as_bytes()[used..], &Limits::default()).unwrap();
            (used, event) = (used + more, next);
        }
        assert_eq!(&body[used..], "early");
        assert_eq!(http.write_head(&ok, &date(), &mut out), Ok(()));
        assert_eq!(text(&out), format!("HTTP/1.1 200 OK\r\n{DATE}\r\n"));
    }
}

#[test]
fn rfc9110_6_6_1_date_and_content_type_are_said_once() {
    let (plain, mut out) = (HeaderValue::from_static("text/plain"), Vec::new());
    let response = ResponseHead { content_type: Some(&plain), ..ResponseHead::default() };
    after_reading(GET).write_head(&response, &date(), &mut out).unwrap();
    assert_eq!(
        text(&out),
        format!("HTTP/1.1 200 OK\r\n{DATE}Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n")
    );
    out.clear();
    let lines = fields(&[("date", "today"), ("content-type", "text/html")]);
    let response = ResponseHead { fields: &lines, ..response };
    after_reading(GET).write_head(&response, &date(), &mut out).unwrap();
    assert_eq!(
        text(&out),
        "HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: text/html\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn heads_that_are_refused() {
    misuse(GET, 200, Exact(1), &[("content-length", "2")], Misuse::ContentLengthInvalid);
    misuse(GET, 200, Exact(0), &[("content-length", "2")], Misuse::ContentLengthInvalid);
    misuse(GET, 200, Exact(1), &[("content-length", "+1")], Misuse::ContentLengthInvalid);
    misuse(
        GET,
        200,
        Exact(1),
        &[("content-length", "1"), ("content-length", "1")],
        Misuse::ContentLengthInvalid,
    );
    misuse(HEAD, 200, Exact(1), &[("content-length", "2")], Misuse::ContentLengthInvalid);
    misuse(GET, 204, Exact(0), &[("content-length", "0")], Misuse::ContentLengthForbidden);
    misuse(GET, 200, Unknown, &[("transfer-encoding", "chunked")], Misuse::TransferEncodingGiven);
    misuse(GET, 200, Exact(0), &[("connection", "a b")], Misuse::ConnectionInvalid);
    for status in [100, 102, 103, 199] {
        misuse(GET, status, Exact(0), &[], Misuse::StatusNotAllowed);
    }
}

#[test]
fn a_response_to_no_request_closes() {
    let mut out = Vec::new();
    Http1::new().write_head(&head(408, Exact(0), &[]), &date(), &mut out).unwrap();
    assert_eq!(
        text(&out),
        format!("HTTP/1.1 408 Request Timeout\r\n{DATE}Content-Length: 0\r\nConnection: close\r\n\r\n")
    );
}

/// A Content-Type among the fields takes the long way.
#[test]
fn a_plain_head_is_written_as_any_other() {
    const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n";
    let (html, given) = (HeaderValue::from_static("text/html"), fields(&[("content-type", "text/html")]));
    for request in [GET, GET_CLOSE, GET_10, GET_10_KEEP, HEAD, HEAD_10, CONNECT, UPGRADE, POST] {
        for length in [0, 1, 9, 10, 99, 100, 9999, 10_000, u64::MAX].map(Exact) {
            let (mut short, mut long) =
                ((after_reading(request), Vec::new()), (after_reading(request), Vec::new()));
            let plain = ResponseHead { content_type: Some(&html), ..head(200, length, &[]) };
            short.0.write_head(&plain, &date(), &mut short.1).unwrap();
            long.0.write_head(&head(200, length, &given), &date(), &mut long.1).unwrap();
            assert_eq!(text(&short.1), text(&long.1).replace("content-type", "Content-Type"));
            assert_eq!(short.0.body_bypassed(10), long.0.body_bypassed(10));
            assert_eq!(short.0.finish(&[], &mut short.1), long.0.finish(&[], &mut long.1));
        }
    }
}

/// RFC 9110 §8.8.2.1
#[test]
fn a_last_modified_after_the_date_becomes_the_date() {
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const NOW: &str = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (request, status, rest) in [
        (GET, 200, "HTTP/1.1 200 OK\r\n@*Content-Length: 0\r\n\r\n"),
        (HEAD, 200, "HTTP/1.1 200 OK\r\n@*Content-Length: 0\r\n\r\n"),
        (GET, 304, "HTTP/1.1 304 Not Modified\r\n@*\r\n"),
    ] {
        let want = rest.replace('*', NOW);
        check(request, (status, Exact(0), &[("last-modified", LATER)]), &[], &want, After::Next);
    }
    let earlier = [("last-modified", "Sun, 06 Nov 1994 08:49:36 GMT"), ("x", "y")];
    let kept = "HTTP/1.1 200 OK\r\n@last-modified: Sun, 06 Nov 1994 08:49:36 GMT\r\nx: y\r\nContent-Length: 0\r\n\r\n";
    check(GET, (200, Exact(0), &earlier), &[], kept, After::Next);
    // A response of another server, or of a cache, has both dates from there.
    let given = [("date", "Mon, 07 Nov 1994 08:49:37 GMT"), ("last-modified", LATER)];
    let want = "HTTP/1.1 200 OK\r\ndate: Mon, 07 Nov 1994 08:49:37 GMT\r\nlast-modified: Sun, 06 Nov 1994 08:49:38 GMT\r\nContent-Length: 0\r\n\r\n";
    check(GET, (200, Exact(0), &given), &[], want, After::Next);
}
