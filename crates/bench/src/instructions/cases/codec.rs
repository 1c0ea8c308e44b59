//! The codec: reads heads and bodies, writes responses. httparse reads the same heads beside it.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue, StatusCode, header};
use weftwork_wire::{After, BodyEvent, BodyLength, Date, Head, HeadEvent, Http1, Limits, ResponseHead};

use crate::load::browser_fields;

pub(super) const SMALL: &[u8] = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:20000\r\n\r\n";
const CLOSING: &[u8] = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:20000\r\nConnection: close\r\n\r\n";
pub(super) const LENGTH: &[u8] =
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:20000\r\nContent-Length: 11\r\n\r\nhello world";
pub(super) const CHUNKED: &[u8] =
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:20000\r\nTransfer-Encoding: chunked\r\n\r\n\
    5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nChecksum: 12\r\nExpires: never\r\n\r\n";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) fn browser_head() -> Vec<u8> {
    format!("GET /articles/7?page=2 HTTP/1.1\r\nHost: www.example.com\r\n{}\r\n", browser_fields())
        .into_bytes()
}

pub(super) fn heads(bytes: &[u8], repeats: u32) {
    let (limits, mut head) = (Limits::default(), Head::default());
    for _ in 0..repeats {
        black_box(read_head(&mut Http1::new(), bytes, &limits, &mut head));
    }
}

/// Returns the bytes of the head. A case that measures a refusal would measure nothing, so it ends the program.
fn read_head(http: &mut Http1, bytes: &[u8], limits: &Limits, head: &mut Head) -> usize {
    match http.read_head(black_box(bytes), limits, head) {
        Ok(HeadEvent::Head(used)) => used,
        other => panic!("the sample is a whole head, but: {other:?}"),
    }
}

pub(super) fn httparse(bytes: &[u8], repeats: u32) {
    for _ in 0..repeats {
        let mut fields = [const { MaybeUninit::uninit() }; 100];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(bytes), &mut fields);
        assert!(matches!(parsed, Ok(httparse::Status::Complete(_))), "the sample is a whole head");
        black_box(&request);
    }
}

pub(super) fn bodies(bytes: &[u8], repeats: u32) {
    let (limits, mut head) = (Limits::default(), Head::default());
    for _ in 0..repeats {
        let mut http = Http1::new();
        let mut used = read_head(&mut http, bytes, &limits, &mut head);
        loop {
            match http.read_body(black_box(&bytes[used..]), &limits) {
                Ok((_, BodyEvent::End)) => break,
                Ok((more, BodyEvent::Data { .. })) => used += more,
                other => panic!("the sample is a whole body, but: {other:?}"),
            }
        }
        black_box(http.trailers());
    }
}

pub(super) fn encode_plain(repeats: u32) {
    let length = BodyLength::Exact(2);
    encode(&ResponseHead { content_type: Some(&TEXT), length, ..ResponseHead::default() }, &[b"OK"], repeats);
}

pub(super) fn closing(repeats: u32) {
    let (limits, mut head, date) = (Limits::default(), Head::default(), Date::at(SystemTime::UNIX_EPOCH));
    let length = BodyLength::Exact(2);
    let response = ResponseHead { content_type: Some(&TEXT), length, ..ResponseHead::default() };
    let mut out = Vec::with_capacity(4096);
    for _ in 0..repeats {
        out.clear();
        let mut http = Http1::new();
        read_head(&mut http, CLOSING, &limits, &mut head);
        let after = http.write_response(black_box(&response), b"OK", &date, &mut out);
        assert_eq!(after, Ok(After::Close), "the sample asks to close");
        black_box(&out);
    }
}

pub(super) fn encode_fields(repeats: u32) {
    let field = |name: HeaderName, value| (name, HeaderValue::from_static(value));
    let fields = [
        field(header::CACHE_CONTROL, "no-store"),
        field(header::ETAG, "\"5f3c-62a1b0c9d8e7f\""),
        field(header::VARY, "accept-encoding"),
        field(header::SET_COOKIE, "session=d41d8cd98f00b204e9800998ecf8427e; HttpOnly"),
        field(header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        field(HeaderName::from_static("x-request-id"), "0192f7c4-8a1b-7c3d-9e5f-0123456789ab"),
    ];
    let length = BodyLength::Exact(9);
    let (status, content_type) = (StatusCode::NOT_FOUND, Some(&TEXT));
    encode(
        &ResponseHead { status, content_type, fields: &fields, length, close: false },
        &[b"not here\n"],
        repeats,
    );
}

pub(super) fn encode_chunked(repeats: u32) {
    let length = BodyLength::Unknown;
    let head = ResponseHead { content_type: Some(&TEXT), length, ..ResponseHead::default() };
    encode(&head, &[b"one", b"two", b"three"], repeats);
}

/// Whole exchanges on one connection: reads the small head, writes this response.
fn encode(response: &ResponseHead<'_>, body: &[&[u8]], repeats: u32) {
    let (limits, mut head, mut http) = (Limits::default(), Head::default(), Http1::new());
    let date = Date::at(SystemTime::UNIX_EPOCH);
    let mut out = Vec::with_capacity(4096);
    for _ in 0..repeats {
        out.clear();
        read_head(&mut http, SMALL, &limits, &mut head);
        let after = match body {
            [whole] => http.write_response(black_box(response), whole, &date, &mut out),
            parts => (http.write_head(black_box(response), &date, &mut out))
                .and_then(|()| parts.iter().try_for_each(|part| http.write_body(part, &mut out)))
                .and_then(|()| http.finish(&[], &mut out)),
        };
        assert!(after.is_ok(), "the response is right, but: {after:?}");
        http.next_request();
        black_box(&out);
    }
}
