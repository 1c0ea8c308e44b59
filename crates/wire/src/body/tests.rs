//! Samples of bodies, by section of RFC 9112.

use http::HeaderName;

use super::{BodyEvent, is_forbidden};
use crate::testing::{Seen, need_more, one, refused, refused_within, talk_every_way};
use crate::{Fault, Head, Http1, Limits, may_be_trailer};

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A chunked body decodes to this.
#[track_caller]
fn body(bytes: impl AsRef<[u8]>, want: &str) -> Seen {
    let seen = one([CHUNKED.as_bytes(), bytes.as_ref()].concat());
    assert_eq!(seen.body, want);
    seen
}

#[track_caller]
fn bad(bytes: impl AsRef<[u8]>, want: Fault) {
    refused([CHUNKED.as_bytes(), bytes.as_ref()].concat(), want);
}

#[track_caller]
fn trailers(lines: &str, want: &[(&str, &str)]) {
    let seen = body(format!("1\r\na\r\n0\r\n{lines}\r\n"), "a");
    let seen: Vec<_> = seen.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(seen, want);
}

#[track_caller]
fn bad_trailers(lines: &str, want: Fault) {
    bad(format!("1\r\na\r\n0\r\n{lines}\r\n\r\n"), want);
}

#[test]
fn rfc9112_6_2_content_length() {
    let post = |length: usize| format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(one(post(0)).body, "");
    assert_eq!(one(post(11) + "hello world").body, "hello world");
    assert_eq!(one(post(4) + "\r\n\r\n").body, "\r\n\r\n");
    need_more(post(5) + "hell");
}

#[test]
fn rfc9112_7_1_chunks() {
    body("0\r\n\r\n", "");
    body("5\r\nhello\r\n0\r\n\r\n", "hello");
    body("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world");
    body("a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n", "01234567890123456789");
    for size in [0x10, 0x1f, 0xab, 0x1234] {
        let data = "a".repeat(size);
        body(format!("{size:x}\r\n{data}\r\n0\r\n\r\n"), &data);
    }
    body("0000000000000001\r\na\r\n0000000000000000\r\n\r\n", "a");
    body("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n");
}

#[test]
fn rfc9112_7_1_incomplete_chunks_need_more() {
    let bytes = format!("{CHUNKED}3;a=\"b\"\r\nabc\r\n0;c\r\nA: b\r\n\r\n");
    (0..bytes.len()).for_each(|end| need_more(&bytes[..end]));
    need_more(format!("{CHUNKED}ffffffffffffffff\r\nabc"));
}

#[test]
fn rfc9112_7_1_chunk_sizes() {
    for size in ["", "g", "-1", "+1", " 1", "1 ", "\t1", "0x1", "1\t", "1,", "\r\n", "\u{ff11}", "1 ;a"] {
        bad(format!("{size}\r\na\r\n"), Fault::ChunkSizeInvalid);
    }
    bad("00000000000000000\r\n", Fault::ChunkSizeTooLong);
    bad("10000000000000000\r\n", Fault::ChunkSizeTooLong);
    bad("1\r\na\r\n11111111111111111\r\n", Fault::ChunkSizeTooLong);
    bad(";a\r\n", Fault::ChunkSizeInvalid);
}

#[test]
fn rfc9112_7_1_every_line_ends_in_crlf() {
    for bytes in ["\n", "1\n", "1;a\n", "1;a=b\n", "1\r\na\n", "1;\n", "1;a=\"b\"\n"] {
        bad(bytes, Fault::BareLineFeed);
    }
    for bytes in ["1\ra", "1;a\ra", "1\r\na\ra", "0\r\n\ra", "1\r\r\n"] {
        bad(bytes, Fault::BareCarriageReturn);
    }
    for bytes in ["1\r\nab", "1\r\na0\r\n\r\n", "2\r\nabc\r\n"] {
        bad(bytes, Fault::ChunkEndMissing);
    }
    bad("0\r\n\n", Fault::BareLineFeed);
    bad("0\r\nA: b\n", Fault::BareLineFeed);
    bad("0\r\nA: b\rc", Fault::BareCarriageReturn);
}

#[test]
fn rfc9112_7_1_1_chunk_extensions() {
    for extension in
        [";a", ";a=b", ";a;b=c;d", ";a=\"\"", ";a=\"b;\t=\\\"\\\\\"", ";a=\"b\";c", ";!#=~|", ";a=\"\u{e9}\""]
    {
        body(format!("1{extension}\r\na\r\n0{extension}\r\n\r\n"), "a");
    }
    for extension in
        [";", ";;", ";=", ";a=", ";a=;", "; a", ";a =b", ";a= b", ";a b", ";a\"", ";a=b\"", ";a=\"b\"c"]
    {
        bad(format!("1{extension}\r\na\r\n"), Fault::ChunkExtensionInvalid);
    }
    for extension in [";a=\"b\r", ";a=\"\0", ";a=\"\\\0", ";\0", ";a\u{e9}", ";a=b=c"] {
        bad(format!("1{extension}"), Fault::ChunkExtensionInvalid);
    }
    bad("1;a=\"b\n", Fault::BareLineFeed);
}

#[test]
fn rfc9112_7_1_1_chunk_extensions_are_bounded_over_the_whole_body() {
    let bytes = format!("{CHUNKED}1;ab\r\na\r\n1;c=\"d\"\r\nb\r\n0\r\n\r\n");
    let limits = Limits { chunk_extension_bytes_max: 9, ..Limits::default() };
    assert_eq!(talk_every_way(bytes.as_bytes(), &limits).requests[0].body, "ab");
    let one_less = Limits { chunk_extension_bytes_max: 8, ..limits };
    refused_within(&one_less, &bytes, Fault::ChunkExtensionsTooLong);
    let none = Limits { chunk_extension_bytes_max: 0, ..limits };
    refused_within(&none, &bytes, Fault::ChunkExtensionsTooLong);
}

#[test]
fn rfc9112_7_1_2_trailers() {
    trailers("A: b\r\n", &[("a", "b")]);
    trailers("A: b\r\nB:\r\nA:\tc \r\n", &[("a", "b"), ("b", ""), ("a", "c")]);
    trailers("Checksum: \u{e9}\r\n", &[("checksum", "\u{c3}\u{a9}")]);
    bad_trailers("A", Fault::FieldWithoutColon);
    bad_trailers("A : b", Fault::SpaceBeforeColon);
    bad_trailers("A: b\r\n c", Fault::LineFolding);
    bad_trailers(" A: b", Fault::LineFolding);
    bad_trailers("A: \0", Fault::FieldValueInvalid);
    bad_trailers(": b", Fault::FieldNameInvalid);
}

#[test]
fn rfc9110_6_5_1_forbidden_trailers() {
    let names = ["Content-Length", "transfer-encoding", "HOST", "Connection", "Authorization", "Cookie"];
    let more =
        ["Set-Cookie", "Content-Type", "Content-Whatever", "Trailer", "TE", "Expect", "Range", "If-Match"];
    for name in names.into_iter().chain(more) {
        bad_trailers(&format!("A: b\r\n{name}: c"), Fault::TrailerForbidden);
    }
    assert!(super::trailers::FORBIDDEN.is_sorted());
    assert!(super::trailers::FORBIDDEN.iter().all(|name| is_forbidden(name)));
    assert!(!is_forbidden("checksum") && !is_forbidden("etag") && !is_forbidden("server-timing"));
    assert!(may_be_trailer(&HeaderName::from_static("etag")));
    assert!(!may_be_trailer(&HeaderName::from_static("host")));
    // RFC 9530 §2
    assert!(!is_forbidden("content-digest") && is_forbidden("content-digests"));
}

#[test]
fn trailers_are_within_the_limits_of_a_head() {
    let bytes = format!("{CHUNKED}0\r\nA: b\r\nC: d\r\n\r\n");
    let limits = Limits { head_bytes_max: CHUNKED.len() as u32, fields_max: 2, ..Limits::default() };
    assert_eq!(talk_every_way(bytes.as_bytes(), &limits).requests[0].trailers.len(), 2);
    let third = format!("{CHUNKED}0\r\nA: b\r\nC: d\r\nE:\r\n\r\n");
    refused_within(&limits, third, Fault::TooManyTrailers);
    let long = |len: usize| format!("{CHUNKED}0\r\nA:{}\r\n\r\n", "b".repeat(len));
    let room = CHUNKED.len() - "A:\r\n\r\n".len();
    assert_eq!(talk_every_way(long(room).as_bytes(), &limits).requests[0].trailers.len(), 1);
    refused_within(&limits, long(room + 1), Fault::TrailersTooLong);
    refused_within(&limits, long(room * 9), Fault::TrailersTooLong);
}

#[test]
fn payload_is_a_range_of_the_given_bytes() {
    let (mut http, mut head, limits) = (Http1::new(), Head::default(), Limits::default());
    http.read_head(CHUNKED.as_bytes(), &limits, &mut head).unwrap();
    assert_eq!(http.body_left(), None);
    assert_eq!(http.read_body(b"", &limits), Ok((0, BodyEvent::NeedMore)));
    assert_eq!(http.read_body(b"5;a\r\nhello\r\n0", &limits), Ok((10, BodyEvent::Data { start: 5, len: 5 })));
    assert_eq!(http.read_body(b"\r\n0", &limits), Ok((3, BodyEvent::NeedMore)));
    assert_eq!(http.read_body(b"\r\n\r\nGET", &limits), Ok((4, BodyEvent::End)));
    assert_eq!(http.read_body(b"GET", &limits), Ok((0, BodyEvent::End)));
}

#[test]
fn body_left_counts_down() {
    let (mut http, mut head, limits) = (Http1::new(), Head::default(), Limits::default());
    assert_eq!(http.body_left(), Some(0));
    http.read_head(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", &limits, &mut head).unwrap();
    assert_eq!((http.body_left(), http.request_is_read()), (Some(5), false));
    assert_eq!(http.read_body(b"abc", &limits), Ok((3, BodyEvent::Data { start: 0, len: 3 })));
    assert_eq!((http.body_left(), http.request_is_read()), (Some(2), false));
    assert_eq!(http.read_body(b"deGET", &limits), Ok((2, BodyEvent::Data { start: 0, len: 2 })));
    assert_eq!((http.body_left(), http.request_is_read()), (Some(0), true));
}
