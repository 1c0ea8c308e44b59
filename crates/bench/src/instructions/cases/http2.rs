//! HTTP/2: field blocks alone, and whole requests in the codec, as h2load sends them.

use std::hint::black_box;
use std::time::SystemTime;

use http::HeaderValue;
use weftwork_wire::hpack::{Decoded, Decoder, encode_field};
use weftwork_wire::{
    BodyLength, Date, Field, Frame, Head, Http1, Http2, Http2Settings, Limits, ResponseHead, Segment,
};

/// `:method: GET`, `:scheme: http`, and three fields that the dynamic table takes.
const FIRST: &[u8] = b"\x82\x86\x44\x07/health\x41\x0f127.0.0.1:20000\x7a\x15h2load nghttp2/1.52.0";
/// The same fields, as every further request has them.
const INDEXED: &[u8] = b"\x82\x86\xc0\xbf\xbe";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BODY: &[u8] = b"Hello, World!";

/// Flags of HEADERS: END_HEADERS and END_STREAM.
const WHOLE: u8 = 0x05;
/// Where the header of a frame has the stream.
const STREAM: std::ops::Range<usize> = 5..9;

/// A connection whose client has sent its request once, so all fields are in a table, as with `h2load`.
struct Connection {
    http: Http2,
    limits: Limits,
    head: Head,
    text: Vec<u8>,
    request: Vec<u8>,
    stream: u32,
}

impl Connection {
    fn new() -> Connection {
        let mut connection = Connection {
            http: Http2::server(&Http2Settings::default()),
            limits: Limits::default(),
            head: Head::default(),
            text: Vec::new(),
            request: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            stream: 1,
        };
        connection.read();
        connection.request = frame(0x4, 0, &[]);
        connection.read();
        let pseudo_fields = [0x84, 0x86, 0x82];
        let mut first = pseudo_fields.to_vec();
        for (name, value) in
            [(":authority", &b"127.0.0.1:20000"[..]), ("user-agent", b"h2load nghttp2/1.52.0")]
        {
            let at = first.len();
            encode_field(name, value, &mut first);
            // The same with an entry of the dynamic table: a prefix of six bits instead of four.
            match name {
                ":authority" => first[at] = 0x41,
                _ => drop(first.splice(at..at + 2, [0x7a])),
            }
        }
        connection.request = frame(0x1, WHOLE, &first);
        connection.read_next();
        connection.request = frame(0x1, WHOLE, &[&pseudo_fields[..], &[0xbf, 0xbe]].concat());
        connection
    }

    fn read(&mut self) -> Frame {
        match self.http.read(black_box(&self.request), &self.limits, &mut self.head, &mut self.text) {
            Ok((_, frame)) => frame,
            Err(fault) => panic!("the sample is right, but: {fault}"),
        }
    }

    /// Reads the request on a new stream. A case that measures a refusal would measure nothing, so it ends the program.
    #[inline]
    fn read_next(&mut self) -> u32 {
        self.request[STREAM].copy_from_slice(&self.stream.to_be_bytes());
        self.stream += 2;
        match self.read() {
            Frame::Head { stream, ends: true, .. } => stream,
            other => panic!("the sample is a whole head, but: {other:?}"),
        }
    }
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 0], payload].concat()
}

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

pub(super) fn heads(repeats: u32) {
    let mut connection = Connection::new();
    for _ in 0..repeats {
        black_box(connection.read_next());
    }
}

pub(super) fn answers(repeats: u32) {
    let (mut connection, date) = (Connection::new(), Date::at(SystemTime::UNIX_EPOCH));
    let length = BodyLength::Exact(BODY.len() as u64);
    let head = ResponseHead { content_type: Some(&TEXT), length, ..ResponseHead::default() };
    let (mut segments, mut out) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    for _ in 0..repeats {
        segments.clear();
        out.clear();
        let stream = connection.read_next();
        let mut request = Http1::default();
        request.begin_stream(&connection.head);
        let written = request.write_response(black_box(&head), BODY, &date, &mut segments);
        assert!(written.is_ok(), "the response is right, but: {written:?}");
        write_frames(stream, &segments, &mut out);
        black_box(&out);
    }
}

/// Cuts a response into frames, for a client whose windows are open.
#[inline]
fn write_frames(stream: u32, segments: &[u8], out: &mut Vec<u8>) {
    let mut rest = segments;
    while let Some((header, segment)) = Segment::read(rest) {
        let bytes = &rest[header..];
        let len = match segment {
            Segment::Head { len, .. } => {
                Http2::write_block(stream, &bytes[..len], false, false, out);
                len
            }
            Segment::Body { len, ends } => {
                Http2::write_data(stream, &bytes[..len as usize], ends, out);
                len as usize
            }
            other => panic!("a response of a head and a body, but: {other:?}"),
        };
        rest = &bytes[len..];
    }
}
