//! HTTP/2: field blocks alone, and whole requests in the codec, as h2load sends them.

use std::hint::black_box;
use std::time::SystemTime;

use http::HeaderValue;
use weftwork_wire::hpack::{Decoded, Decoder};
use weftwork_wire::{
    BodyLength, Date, Field, Frame, Head, Http2, Http2Response, Http2Settings, Limits, ResponseHead,
};

/// `:method: GET`, `:scheme: http`, and three fields that the dynamic table takes.
const FIRST: &[u8] = b"\x82\x86\x44\x07/health\x41\x0f127.0.0.1:20000\x7a\x15h2load nghttp2/1.52.0";
/// The same fields, as every further request has them.
const INDEXED: &[u8] = b"\x82\x86\xc0\xbf\xbe";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BODY: &[u8] = b"Hello, World!";

pub(super) fn indexed(repeats: u32) {
    let (mut decoder, mut text) = (Decoder::new(4_096), Vec::new());
    let mut fields: Vec<Field> = Vec::new();
    let mut decode = |block: &[u8]| {
        text.clear();
        fields.clear();
        let decoded = decoder.decode(black_box(block), 65_536, &mut text, |_, field| {
            fields.push(Field { name: field.name, value: field.value });
            true
        });
        assert_eq!(decoded, Ok(Decoded::Whole), "the sample is a whole block");
        black_box((&text, &fields));
    };
    decode(FIRST);
    for _ in 0..repeats {
        decode(INDEXED);
    }
}

pub(super) fn requests(repeats: u32) {
    let (limits, mut head, mut text) = (Limits::default(), Head::default(), Vec::new());
    let (date, mut out) = (Date::at(SystemTime::UNIX_EPOCH), Vec::with_capacity(4_096));
    let length = BodyLength::Exact(BODY.len() as u64);
    let response = ResponseHead { content_type: Some(&TEXT), length, ..ResponseHead::default() };
    let mut http = Http2::server(&Http2Settings::default());
    let mut rest = PREFACE;
    while !rest.is_empty() {
        let read = http.read(rest, &limits, &mut head, &mut text);
        rest = &rest[read.expect("a preface and SETTINGS").0..];
    }
    let (first, mut indexed) = (headers(FIRST), headers(INDEXED));
    for stream in (1u32..).step_by(2).take(repeats as usize + 1) {
        indexed[5..9].copy_from_slice(&stream.to_be_bytes());
        let bytes = if stream == 1 { &first } else { &indexed };
        out.clear();
        let read = http.read(black_box(bytes), &limits, &mut head, &mut text);
        assert!(matches!(read, Ok((_, Frame::Head { .. }))), "the sample is a whole head, but: {read:?}");
        let mut http2 = Http2Response::new(&http, stream, &head.method);
        let written = http2.write_response(black_box(&response), BODY, &date, &mut out);
        assert!(written.is_ok(), "the response is right, but: {written:?}");
        black_box((&out, &head, &text));
    }
}

/// A HEADERS frame on stream 1 that ends its stream.
fn headers(block: &[u8]) -> Vec<u8> {
    [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1], block].concat()
}
