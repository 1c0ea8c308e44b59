//! Code of all fuzz targets. Bytes have one reading, no matter how they are split. A second, independent reader
//! agrees with the first.
//!
//! ```text
//! cargo +nightly fuzz run head fuzz/corpus/head fuzz/seeds/head -- -dict=fuzz/http.dict -max_len=4096
//! ```
//!
//! The targets are `head`, `framing`, `chunked` and `connection`. The targets `ranges`, `dates` and `lists` read
//! single field values, `inflate` a compressed WebSocket message, `tls` the records of a TLS client, and `hpack` and
//! `http2` the field blocks and the frames of HTTP/2. Without a nightly compiler, set `RUSTC_BOOTSTRAP=1`.

pub mod frames;
pub mod hpack;
mod huffman;
pub mod inflated;
pub mod reference;
pub mod served;

use std::time::SystemTime;

use http::HeaderValue;
use weftwork_wire::{
    After, BodyEvent, BodyLength, Date, Fault, Framing, Head, HeadEvent, Http1, Limits, ResponseHead, Span,
    Version,
};

/// A request as the codec read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Position of the first byte.
    pub at: usize,
    /// Length of the head.
    pub head_bytes: usize,
    /// The method.
    pub method: String,
    /// The target.
    pub target: Vec<u8>,
    /// The version.
    pub version: Version,
    /// The field lines.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the connection persists after the request.
    pub keep_alive: bool,
    /// The client waits for `100 Continue`.
    pub expect_continue: bool,
    /// The client asks for another protocol.
    pub upgrade: bool,
    /// The part of the body that arrived.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<(String, Vec<u8>)>,
    /// Position of the end of the body, if it ended.
    pub end: Option<usize>,
}

/// Everything that the codec read from one stream of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The requests. The last request may be incomplete.
    pub requests: Vec<Request>,
    /// Fault that ended the connection, if the peer caused it.
    pub fault: Option<Fault>,
}

/// Limits that short inputs can reach.
pub const TIGHT: Limits =
    Limits { request_line_bytes_max: 64, head_bytes_max: 256, fields_max: 6, chunk_extension_bytes_max: 16 };

/// Reads `bytes` in pieces whose lengths `next_len` gives, and answers each request.
pub fn transcript(bytes: &[u8], limits: &Limits, mut next_len: impl FnMut() -> usize) -> Transcript {
    let mut reader = Reader::new(limits);
    let mut end = 0;
    while end < bytes.len() {
        end = bytes.len().min(end + next_len().max(1));
        if !reader.take(&bytes[..end]) {
            break;
        }
    }
    reader.transcript
}

/// Reads `bytes` whole, byte by byte, and in uneven pieces, and checks that the result is the same.
pub fn every_way(bytes: &[u8], limits: &Limits) -> Transcript {
    let whole = transcript(bytes, limits, || bytes.len());
    assert_eq!(transcript(bytes, limits, || 1), whole, "byte by byte");
    assert_eq!(transcript(bytes, limits, uneven(bytes)), whole, "in uneven pieces");
    whole
}

/// Lengths of pieces, from Xorshift with the input as its seed. So the same input is always split in the same way.
pub fn uneven(bytes: &[u8]) -> impl FnMut() -> usize {
    let mut random = bytes
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15u64, |seed, &byte| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        | 1;
    move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % 23) as usize
    }
}

struct Reader<'a> {
    http: Http1,
    head: Head,
    limits: &'a Limits,
    used: usize,
    is_in_body: bool,
    transcript: Transcript,
}

impl<'a> Reader<'a> {
    fn new(limits: &'a Limits) -> Reader<'a> {
        Reader {
            http: Http1::new(),
            head: Head::default(),
            limits,
            used: 0,
            is_in_body: false,
            transcript: Transcript::default(),
        }
    }

    /// Reads on in `bytes`, which are all bytes so far. Returns false if the connection has ended.
    fn take(&mut self, bytes: &[u8]) -> bool {
        loop {
            match if self.is_in_body { self.body(bytes) } else { self.head(bytes) } {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return true,
                Ok(None) => return false,
                Err(fault) => {
                    assert_eq!(self.http.read_head(bytes, self.limits, &mut self.head), Err(fault));
                    assert_eq!(self.http.read_body(bytes, self.limits), Err(fault));
                    assert_eq!(answer(&mut self.http), After::Linger);
                    self.transcript.fault = Some(fault);
                    return false;
                }
            }
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<bool>, Fault> {
        let bytes = &bytes[self.used..];
        let HeadEvent::Head(used) = self.http.read_head(bytes, self.limits, &mut self.head)? else {
            assert!(bytes.len() < self.limits.head_bytes_max as usize, "a head within its limit");
            return Ok(Some(false));
        };
        assert!(used <= self.limits.head_bytes_max as usize);
        self.transcript.requests.push(request(&self.head, bytes, self.used));
        self.used += used;
        self.is_in_body = true;
        Ok(Some(true))
    }

    fn body(&mut self, bytes: &[u8]) -> Result<Option<bool>, Fault> {
        let left = self.http.body_left();
        let bytes = &bytes[self.used..];
        let (used, event) = self.http.read_body(bytes, self.limits)?;
        self.used += used;
        let Some(request) = self.transcript.requests.last_mut() else { return Ok(None) };
        match event {
            BodyEvent::NeedMore => {
                assert_eq!(used, bytes.len(), "a body keeps no bytes waiting");
                Ok(Some(false))
            }
            BodyEvent::Data { start, len } => {
                assert!(len > 0 && start + len == used);
                assert!(left.is_none_or(|left| Some(left - len as u64) == self.http.body_left()));
                request.body.extend_from_slice(&bytes[start..start + len]);
                Ok(Some(true))
            }
            BodyEvent::End => {
                let trailers = self.http.trailers().iter();
                request.trailers = trailers.map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect();
                request.end = Some(self.used);
                self.is_in_body = false;
                let after = answer(&mut self.http);
                assert_eq!(
                    after,
                    if request.keep_alive && request.method != "CONNECT" {
                        After::Next
                    } else {
                        After::Close
                    }
                );
                Ok((after == After::Next).then_some(true))
            }
        }
    }
}

/// Responds, and checks that the reference reads the framing of the response in the same way.
fn answer(http: &mut Http1) -> After {
    let mut out = Vec::new();
    let (content_type, length) = (HeaderValue::from_static("text/plain"), BodyLength::Exact(2));
    let head = ResponseHead { content_type: Some(&content_type), length, ..ResponseHead::default() };
    let date = Date::at(SystemTime::UNIX_EPOCH);
    let after = http.write_response(&head, b"ok", &date, &mut out).expect("as many bytes as declared");
    assert_eq!(out.ends_with(b"\r\n\r\nok"), http.sends_body());
    http.next_request();
    after
}

fn request(head: &Head, bytes: &[u8], at: usize) -> Request {
    let of = |span: Span| span.of(bytes).to_vec();
    let inside = |part: Span, whole: Span| {
        part.start >= whole.start && part.start + part.len <= whole.start + whole.len
    };
    assert!(inside(head.path, head.target));
    assert!(head.query.is_none_or(|query| inside(query, head.target)));
    assert!(head.authority.is_none_or(|authority| authority.len > 0));
    Request {
        at,
        head_bytes: head.bytes as usize,
        method: head.method.to_string(),
        target: of(head.target),
        version: head.version,
        fields: head.fields.iter().map(|field| (of(field.name), of(field.value))).collect(),
        framing: head.framing,
        keep_alive: head.keep_alive,
        expect_continue: head.expect_continue,
        upgrade: head.upgrade,
        body: Vec::new(),
        trailers: Vec::new(),
        end: None,
    }
}

/// Checks that `httparse` and the reference accept every accepted request, and read the same.
pub fn all_parsers_agree(bytes: &[u8], transcript: &Transcript) {
    for request in &transcript.requests {
        agrees_with_httparse(&bytes[request.at..], request);
        reference::agrees(&bytes[request.at..], request);
    }
}

fn agrees_with_httparse(bytes: &[u8], request: &Request) {
    let mut slots = vec![httparse::EMPTY_HEADER; request.fields.len()];
    let mut parsed = httparse::Request::new(&mut slots);
    assert_eq!(parsed.parse(bytes), Ok(httparse::Status::Complete(request.head_bytes)));
    assert_eq!(parsed.method, Some(request.method.as_str()));
    assert_eq!(parsed.path.map(str::as_bytes), Some(request.target.as_slice()));
    assert_eq!(parsed.version, Some(u8::from(request.version == Version::Http11)));
    let fields = parsed.headers.iter().map(|header| (header.name.as_bytes().to_vec(), header.value.to_vec()));
    assert_eq!(fields.collect::<Vec<_>>(), request.fields);
}
