//! Reads the head of a request.
//!
//! `parse.rs` splits the head into its parts and checks them, by lines (`line.rs`); `framing.rs` reads from
//! the fields that matter (`known.rs`) how the rest of the message is delimited. A head that comes whole and
//! keeps the rules, as nearly all do, needs nothing else. Any other goes through `scan.rs` first, which finds
//! its end however the bytes dribble in, and so makes the answer independent of how they do.

mod known;
mod line;
mod parse;
mod scan;
mod target;

use http::Method;

use crate::error::Fault;
use crate::framing::Framing;
use crate::limits::Limits;

use parse::parse;

pub(crate) use known::Known;
pub(crate) use line::{field_line, line_fault};
pub(crate) use scan::Scan;

/// A range of the request's bytes, counted from the first byte that was given to
/// [`Http1::read_head`](crate::Http1::read_head).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Span {
    /// The bytes of this range. `bytes` must be those that the head was read from; with shorter ones it
    /// panics, as indexing does.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

/// The version of a request. Others are refused with 505.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    #[default]
    Http11,
}

/// A field line: its name as it was spelled, and its value without the white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, a token.
    pub name: Span,
    /// The value; it may hold bytes that are not UTF-8 (RFC 9110 §5.5, obs-text).
    pub value: Span,
}

/// A parsed head. Reused from request to request: `fields` keeps its capacity. After a fault, and after
/// [`HeadEvent::NeedMore`], its content means nothing.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The method; any token, known or not (RFC 9110 §9.1).
    pub method: Method,
    /// The target, in one of its four forms (RFC 9112 §3.2).
    pub target: Span,
    /// Path of the target, without its query. `/` for an absolute target without a path (RFC 9110 §4.2.3), except for that of
    /// OPTIONS: see [`Head::path_in`]. Empty for the target of CONNECT.
    pub path: Span,
    /// After the `?`, without it; None when there is no `?`.
    pub query: Option<Span>,
    /// Host and port: of the target if it has them, else of the Host field (RFC 9112 §3.3). None when that is
    /// empty, or missing in HTTP/1.0.
    pub authority: Option<Span>,
    /// The version.
    pub version: Version,
    /// All field lines, in order, none merged.
    pub fields: Vec<Field>,
    /// How the body is delimited.
    pub framing: Framing,
    /// Result of the version and of `Connection` (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends its body. False in HTTP/1.0, and without a body
    /// (RFC 9110 §10.1.1).
    pub expect_continue: bool,
    /// `Connection: upgrade` and an `Upgrade` field are there (HTTP/1.1 only, RFC 9110 §7.8).
    pub upgrade: bool,
    /// Length of the head: an empty line before it, if there is one, and its final CRLF CRLF included.
    pub bytes: u32,
}

impl Head {
    /// The target is in absolute form, and so starts with a scheme (RFC 9112 §3.2.2).
    #[inline]
    pub fn is_absolute(&self) -> bool {
        // Every other form starts with its path.
        self.target.start != self.path.start
    }

    /// The path, or `*`: what OPTIONS asks for where it means the whole server, in asterisk form or as an absolute target
    /// without a path and a query (RFC 9110 §4.2.3, RFC 9112 §3.2.4). `bytes` are those that the head was read from.
    #[inline]
    pub fn path_in<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self.path.of(bytes) {
            b"" if self.method == Method::OPTIONS => b"*",
            path => path,
        }
    }
}

/// Result of [`Http1::read_head`](crate::Http1::read_head).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEvent {
    /// The head is not complete: come again with the same bytes and more.
    NeedMore,
    /// The head is filled; it took that many of the given bytes.
    Head(usize),
}

/// Where the request line starts: after one empty line, which RFC 9112 §2.2 wants ignored. None: too few
/// bytes to tell. What cannot start a request is refused here, at its first byte, before anything waits for
/// more of it.
#[inline]
pub(crate) fn start(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    // Nearly always.
    if bytes.first().is_some_and(|&byte| crate::grammar::is_token_byte(byte)) {
        return Ok(Some(0));
    }
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [] | [b'\r'] => return Ok(None),
        [b'\r', ..] => return Err(Fault::BareCarriageReturn),
        _ => 0,
    };
    match bytes.get(start) {
        None => Ok(None),
        Some(&byte) if crate::grammar::is_token_byte(byte) => Ok(Some(start)),
        Some(b'\r') => Err(Fault::EmptyLinesBeforeRequest),
        Some(b'\n') => Err(Fault::BareLineFeed),
        // RFC 8446 §5.1: the content type of a record that holds a handshake
        Some(0x16) => Err(Fault::TlsInsteadOfHttp),
        Some(_) => Err(Fault::RequestDoesNotStartWithMethod),
    }
}

/// Reads the head at the start of `bytes`, which earlier calls have seen up to what `scan` remembers.
pub(crate) fn read(
    scan: &mut Scan,
    bytes: &[u8],
    limits: &Limits,
    head: &mut Head,
) -> Result<HeadEvent, Fault> {
    let head_max = limits.head_bytes_max as usize;
    // What lies behind the limit has no say, not even in where the head starts.
    let within = &bytes[..bytes.len().min(head_max)];
    let Some(start) = start(within)? else {
        return if bytes.len() < head_max { Ok(HeadEvent::NeedMore) } else { Err(Fault::HeadTooLong) };
    };
    // Only a first look: a dribbled head is not parsed again and again.
    if scan.is_untouched()
        && let Ok(end) = parse(within, start, limits, head)
    {
        return Ok(HeadEvent::Head(end));
    }
    let Some(end) = scan.find_end(bytes, start, limits.request_line_bytes_max as usize, head_max)? else {
        return Ok(HeadEvent::NeedMore);
    };
    let parsed = parse(&bytes[..end], start, limits, head)?;
    debug_assert_eq!(parsed, end, "two views of one head");
    Ok(HeadEvent::Head(parsed))
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
