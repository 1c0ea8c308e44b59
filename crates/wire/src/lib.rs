//! CONTRACT STUB: signatures that `crates/weftwork` is written against. The real files replace it.
#![allow(missing_docs, unused, clippy::todo)]

use http::{HeaderName, HeaderValue, Method, StatusCode};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub request_line_bytes_max: u32,
    pub head_bytes_max: u32,
    pub fields_max: u32,
    pub chunk_extension_bytes_max: u32,
}
impl Default for Limits {
    fn default() -> Self {
        Limits { request_line_bytes_max: 8 << 10, head_bytes_max: 32 << 10, fields_max: 100, chunk_extension_bytes_max: 4 << 10 }
    }
}

/// A range of the request's bytes, counted from the first byte of the head (as given to `read_head`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}
impl Span {
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: Span,
    pub value: Span,
}

/// How the bytes after a request's head are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// A parsed head. Reused from request to request: `fields` keeps its capacity.
#[derive(Debug, Default)]
pub struct Head {
    pub method: Method,
    pub target: Span,
    /// Path part of the target (without query), for every target form.
    pub path: Span,
    /// After the `?`, without it; None when there is no `?`.
    pub query: Option<Span>,
    /// Authority: of an absolute-form or authority-form target, else the Host field.
    pub authority: Option<Span>,
    pub version: Version,
    pub fields: Vec<Field>,
    pub framing: Framing,
    /// What version and `Connection` say.
    pub keep_alive: bool,
    pub expect_continue: bool,
    /// `Connection: upgrade` and an `Upgrade` field are there (1.1 only).
    pub upgrade: bool,
    /// Length of the head with its final CRLF CRLF.
    pub bytes: u32,
}

/// What the peer did wrong. Copy, each variant is a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    BareLineFeed,
}
impl Fault {
    pub fn status(self) -> StatusCode { todo!() }
}
impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { todo!() }
}
impl std::error::Error for Fault {}

/// What our own side did wrong (a handler wrote more than it declared, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misuse {
    TooManyBytes,
}
impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { todo!() }
}
impl std::error::Error for Misuse {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEvent {
    NeedMore,
    /// `head` is filled; the head took that many of the given bytes.
    Head(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEvent {
    NeedMore,
    /// Payload: this range of the bytes given to the call (inside the used ones).
    Data { start: usize, len: usize },
    /// The body is over (again and again, if asked again).
    End,
}

/// The length of a response body, as its writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    Exact(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    pub status: StatusCode,
    pub content_type: Option<&'a HeaderValue>,
    pub fields: &'a [(HeaderName, HeaderValue)],
    pub length: BodyLength,
    /// Say `Connection: close`, whatever the client asked.
    pub close: bool,
}

/// The `Date` value, ready to copy: 29 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Date([u8; 29]);
impl Date {
    pub fn at(time: std::time::SystemTime) -> Date { todo!() }
}

/// What to do when a response has been written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The request's body was read and the connection persists: the next request may follow.
    Next,
    /// The connection persists, but the request's body has not been read to its end: read and drop it first.
    Drain,
    /// The connection ends and the peer's body was read to its end.
    Close,
    /// The connection ends and the peer may still be sending: half-close, linger, close.
    Linger,
}

/// One connection's protocol, server side.
#[derive(Debug, Default)]
pub struct Http1 {}

impl Http1 {
    pub fn new() -> Http1 { todo!() }

    /// `bytes`: all that the connection has and nobody used, from the request's first byte on. The same bytes come again,
    /// longer, after NeedMore. A fault poisons the connection.
    pub fn read_head(&mut self, bytes: &[u8], limits: &Limits, head: &mut Head) -> Result<HeadEvent, Fault> { todo!() }

    /// `bytes`: what follows the head and what earlier calls used. Returns how many were used and what they were.
    pub fn read_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<(usize, BodyEvent), Fault> { todo!() }

    /// The body's length that is still to come, as far as the framing says it (None: chunked).
    pub fn body_left(&self) -> Option<u64> { todo!() }

    /// True when the request in progress (if any) has been read to its end.
    pub fn request_is_read(&self) -> bool { todo!() }

    /// Trailer fields of the body that has ended.
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] { todo!() }

    /// The client waits for `100 Continue`, and nothing has been answered yet.
    pub fn wants_continue(&self) -> bool { todo!() }

    /// 100, 102, 103. Nothing is written to a 1.0 client.
    pub fn write_interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) -> Result<(), Misuse> { todo!() }

    pub fn write_head(&mut self, head: &ResponseHead<'_>, date: &Date, out: &mut Vec<u8>) -> Result<(), Misuse> { todo!() }

    /// False for HEAD, 204, 304: the head said all, `write_body` swallows what it is given.
    pub fn sends_body(&self) -> bool { todo!() }

    /// Appends `data` with its framing. An empty slice writes nothing.
    pub fn write_body(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> { todo!() }

    /// `bytes` of an Exact body were (or will be) sent past `out`.
    pub fn body_bypassed(&mut self, bytes: u64) -> Result<(), Misuse> { todo!() }

    /// The body is whole: last chunk and trailers, or the check that all declared bytes were written.
    pub fn finish(&mut self, trailers: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) -> Result<After, Misuse> { todo!() }

    /// Ready for the next request on this connection (after `After::Next`, or `After::Drain` and the body's end).
    pub fn next_request(&mut self) { todo!() }

    /// From now on nothing is read and the connection ends after the response in progress, or the next one.
    pub fn close_after(&mut self) { todo!() }
}
