//! A response in one step: the same bytes, and the same connection, as in three.

use std::time::SystemTime;

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{After, BodyLength, Date, Head, HeadEvent, Http1, Limits, Misuse, ResponseHead};

const REQUESTS: [&str; 8] = [
    "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
];

fn requested(request: &str) -> Http1 {
    let mut http = Http1::new();
    let read = http.read_head(request.as_bytes(), &Limits::default(), &mut Head::default());
    assert_eq!(read, Ok(HeadEvent::Head(request.len())));
    http
}

/// What is written, what is next, and what the connection remembers.
fn told(http: &Http1, after: Result<After, Misuse>, out: &[u8]) -> String {
    format!("{after:?} {:?} {http:?}", String::from_utf8_lossy(out))
}

#[test]
fn in_one_step_as_in_three() {
    let date = Date::at(SystemTime::UNIX_EPOCH);
    let (text, length) = (HeaderValue::from_static("text/plain"), BodyLength::Exact(2));
    let given = |name: HeaderName, value| [(name, HeaderValue::from_static(value))];
    let fields: [&[_]; 5] = [
        &[],
        &given(header::ETAG, "\"a\""),
        &given(header::CONTENT_LENGTH, "2"),
        &given(header::CONTENT_LENGTH, "3"),
        &given(header::CONNECTION, "close"),
    ];
    let mut refused = 0;
    for request in REQUESTS {
        for status in [200, 204, 205, 304, 404] {
            for (fields, content_type) in fields.iter().flat_map(|all| [(*all, None), (*all, Some(&text))]) {
                let status = StatusCode::from_u16(status).unwrap();
                let close = status == StatusCode::NOT_FOUND;
                let head = ResponseHead { status, content_type, fields, length, close };
                let (mut one, mut three) = (requested(request), requested(request));
                let (mut one_out, mut three_out) = (Vec::new(), Vec::new());
                let at_once = one.write_response(&head, b"ok", &date, &mut one_out);
                let in_turn = (three.write_head(&head, &date, &mut three_out))
                    .and_then(|()| three.write_body(b"ok", &mut three_out))
                    .and_then(|()| three.finish(&[], &mut three_out));
                refused += u32::from(at_once.is_err());
                assert!(at_once.is_ok() || one_out.is_empty(), "{request:?} {head:?}");
                assert_eq!(
                    told(&one, at_once, &one_out),
                    told(&three, in_turn, &three_out),
                    "{request:?} {head:?}"
                );
            }
        }
    }
    assert!(refused > 0, "a wrong Content-Length is refused");
}

/// Whatever the request says, and also where there is none: the short way to the plainest head leaves nothing out.
#[test]
fn the_plainest_head_says_what_any_other_way_would() {
    let date = Date::at(SystemTime::UNIX_EPOCH);
    let text = HeaderValue::from_static("text/plain");
    let head =
        ResponseHead { content_type: Some(&text), length: BodyLength::Exact(2), ..ResponseHead::default() };
    let check = |talk: &dyn Fn() -> Http1| {
        let (mut plain, mut other) = (talk(), talk());
        let (mut plain_out, mut other_out) = (Vec::new(), Vec::new());
        plain.write_head(&head, &date, &mut plain_out).unwrap();
        other.write_any_head(&head, false, &date, &mut other_out).unwrap();
        let told = |http: &Http1, out: &[u8]| format!("{} {http:?}", String::from_utf8_lossy(out));
        assert_eq!(told(&plain, &plain_out), told(&other, &other_out));
    };
    REQUESTS.iter().for_each(|request| check(&|| requested(request)));
    check(&Http1::new);
    check(&|| {
        let mut http = Http1::new();
        http.read_head(b"\0", &Limits::default(), &mut Head::default()).unwrap_err();
        http
    });
}

#[test]
fn a_body_of_another_length_is_refused() {
    let date = Date::at(SystemTime::UNIX_EPOCH);
    let text = HeaderValue::from_static("text/plain");
    for (length, want) in [(1, Misuse::TooManyBytes), (3, Misuse::TooFewBytes)] {
        let head = ResponseHead {
            content_type: Some(&text),
            length: BodyLength::Exact(length),
            ..ResponseHead::default()
        };
        let written = requested(REQUESTS[0]).write_response(&head, b"ok", &date, &mut Vec::new());
        assert_eq!(written, Err(want));
    }
}
