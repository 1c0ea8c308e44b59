//! Reads the head of a request.
//!
//! `parse.rs` splits the head into its lines and checks them. This file parses the request target. `framing.rs` reads
//! from the fields of `known.rs` how the rest of the message is delimited. Nearly all heads arrive whole and keep the
//! rules, and need nothing else. Every other head goes through `scan.rs` first, which finds the end of the head. So
//! the result does not depend on how the bytes arrive.

mod known;
mod parse;
mod scan;

use std::ops::Range;

use http::Method;

use crate::error::Fault;
use crate::framing::Framing;
use crate::grammar::{decimal, is_reg_name_byte, is_token_byte, path_len, query_len, reg_name_len};
use crate::limits::Limits;

use parse::parse;

pub(crate) use known::Known;
pub(crate) use parse::{field_line, line_fault};
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
    /// Returns the bytes of this range. `bytes` must be those that the head was read from. With shorter bytes it
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
    /// HTTP/2 (RFC 9113)
    Http2,
}

/// A field line: its name as it was spelled, and its value without the white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, a token.
    pub name: Span,
    /// The value. It may hold bytes that are not UTF-8 (RFC 9110 §5.5, obs-text).
    pub value: Span,
}

/// A parsed head. Reused from request to request: `fields` keeps its capacity. After a fault, and after
/// [`HeadEvent::NeedMore`], its content means nothing.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The method. Any token is allowed, known or not (RFC 9110 §9.1).
    pub method: Method,
    /// The target, in one of its four forms (RFC 9112 §3.2).
    pub target: Span,
    /// Path of the target, without its query. `/` for an absolute target without a path (RFC 9110 §4.2.3), except for that of
    /// OPTIONS: see [`Head::path_in`]. Empty for the target of CONNECT.
    pub path: Span,
    /// The query, without the `?`. None if there is no `?`.
    pub query: Option<Span>,
    /// Host and port of the target if it has them, otherwise of the Host field (RFC 9112 §3.3). None if the field is
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
    /// `:protocol` of an extended CONNECT (HTTP/2 only, RFC 8441 §4). Its target is `:path`.
    pub protocol: Option<Span>,
    /// Length of the head: an empty line before it, if there is one, and its final CRLF CRLF included.
    pub bytes: u32,
}

impl Head {
    /// Returns whether the target is in absolute form, which starts with a scheme (RFC 9112 §3.2.2).
    #[inline]
    pub fn is_absolute(&self) -> bool {
        // Every other form starts with its path.
        self.target.start != self.path.start
    }

    /// Returns the path, or `*` if OPTIONS is about the whole server. That target is in asterisk form, or absolute
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
    /// The head is not complete. Call again with the same bytes and more.
    NeedMore,
    /// The head is complete, and took this many of the given bytes.
    Head(usize),
}

/// Returns where the request line starts. It may follow one empty line, which must be ignored (RFC 9112 §2.2).
/// Returns None if there are too few bytes to tell. Bytes that cannot start a request are refused at the first byte,
/// before the server waits for more.
#[inline]
pub(crate) fn start(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    // Nearly always.
    if bytes.first().is_some_and(|&byte| is_token_byte(byte)) {
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
        Some(&byte) if is_token_byte(byte) => Ok(Some(start)),
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
    // Bytes past the limit are not read, not even to find the start of the head.
    let within = &bytes[..bytes.len().min(head_max)];
    let Some(start) = start(within)? else {
        return if bytes.len() < head_max { Ok(HeadEvent::NeedMore) } else { Err(Fault::HeadTooLong) };
    };
    // Only the first call parses at once: a head that arrives in small parts is not parsed again each time.
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

/// Reads the target that starts at `at` in `bytes`, in the form that RFC 9112 §3.2 allows the method of `head`, and
/// notes its parts there. Returns where the target ends, before the first byte that a target must not contain. If
/// that byte is not the space before the version, the target is invalid.
///
/// If the target has an authority, it takes precedence over the Host field.
#[inline]
fn read_target(bytes: &[u8], at: usize, head: &mut Head) -> Result<usize, Fault> {
    let end = if bytes.get(at) == Some(&b'/') && head.method != Method::CONNECT {
        head.authority = None;
        path_and_query(bytes, at, head)?
    } else {
        other_form(bytes, at, head)?
    };
    head.target = span(at..end);
    Ok(end)
}

/// Reads any form except the origin form.
#[inline(never)]
fn other_form(bytes: &[u8], at: usize, head: &mut Head) -> Result<usize, Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = at + rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    if head.method == Method::CONNECT {
        return authority_form(bytes, at..end, head);
    }
    match &bytes[at..end] {
        b"*" if head.method == Method::OPTIONS => {
            (head.path, head.query, head.authority) = (span(at..end), None, None);
            Ok(end)
        }
        b"*" => Err(Fault::AsteriskWithoutOptions),
        _ => absolute_form(bytes, at..end, head),
    }
}

/// RFC 9112 §3.2.3: host, colon and port, none of them optional.
fn authority_form(bytes: &[u8], at: Range<usize>, head: &mut Head) -> Result<usize, Fault> {
    let Some(Authority { host: 1.., port: 1.. }) = authority(&bytes[at.clone()]) else {
        return Err(Fault::ConnectWithoutAuthority);
    };
    (head.path, head.query, head.authority) = (span(at.start..at.start), None, Some(span(at.clone())));
    Ok(at.end)
}

/// Reads the target of HTTP/2, which is the path and query of `:path` (RFC 9113 §8.3.1), and notes its parts in `head`.
#[inline]
pub(crate) fn read_path(text: &[u8], path: Span, head: &mut Head) -> Result<(), Fault> {
    let (start, end) = (path.start as usize, (path.start + path.len) as usize);
    let bytes = &text[..end];
    head.target = path;
    match &bytes[start..] {
        [b'/', ..] if path_and_query(bytes, start, head)? == end => Ok(()),
        [b'/', ..] => Err(Fault::TargetByteNotAllowed),
        b"*" if head.method == Method::OPTIONS => {
            (head.path, head.query) = (path, None);
            Ok(())
        }
        b"*" => Err(Fault::AsteriskWithoutOptions),
        _ => Err(Fault::TargetFormUnknown),
    }
}

/// Reads the target of CONNECT in HTTP/2, which is `:authority` (RFC 9113 §8.5), and notes its parts in `head`.
pub(crate) fn read_connect(text: &[u8], authority: Span, head: &mut Head) -> Result<(), Fault> {
    let (start, end) = (authority.start as usize, (authority.start + authority.len) as usize);
    head.target = authority;
    authority_form(text, start..end, head).map(|_| ())
}

/// Whether `bytes` are a host, not empty, with an optional port.
#[inline]
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    let host = reg_name_len(bytes);
    match &bytes[host..] {
        // Nearly always: no encoded bytes.
        [] if host > 0 => true,
        [b':', port @ ..] if host > 0 && is_port(port) => true,
        _ => matches!(authority(bytes), Some(Authority { host: 1.., .. })),
    }
}

/// RFC 9112 §3.2.2, for the schemes that an HTTP server has an answer for.
fn absolute_form(bytes: &[u8], at: Range<usize>, head: &mut Head) -> Result<usize, Fault> {
    let target = &bytes[at.clone()];
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .ok_or(Fault::TargetFormUnknown)?;
    let rest = &target[scheme.len()..];
    let len = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    // RFC 9110 §4.2.1, §4.2.4: an http URI needs a host, and a user name in it disguises the host.
    let Some(Authority { host: 1.., .. }) = authority(&rest[..len]) else {
        return Err(Fault::AuthorityInvalid);
    };
    let start = at.start + scheme.len();
    head.authority = Some(span(start..start + len));
    let end = path_and_query(bytes, start + len, head)?;
    if rest.get(len) != Some(&b'/') && !(head.method == Method::OPTIONS && head.query.is_none()) {
        // RFC 9110 §4.2.3: an empty path means `/`, except for OPTIONS. The last byte of `http://` is one, and a span can show it.
        head.path = span(start - 1..start);
    }
    Ok(end)
}

/// The path at `at`, and the query after it.
#[inline(always)]
fn path_and_query(bytes: &[u8], at: usize, head: &mut Head) -> Result<usize, Fault> {
    let mut end = at + encoded_len(&bytes[at..], path_len)?;
    head.path = span(at..end);
    head.query = None;
    if bytes.get(end) == Some(&b'?') {
        let at = end + 1;
        end = at + query_len(&bytes[at..]);
        head.query = Some(span(at..end));
    }
    Ok(end)
}

/// Returns the number of bytes that are allowed (as `allowed_len` counts them) or are well-formed percent-encodings.
#[inline(always)]
fn encoded_len(bytes: &[u8], allowed_len: impl Fn(&[u8]) -> usize) -> Result<usize, Fault> {
    let mut len = allowed_len(bytes);
    while let Some(b'%') = bytes.get(len) {
        match bytes[len..] {
            [_, high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => len += 3,
            _ => return Err(Fault::PercentEncodingMalformed),
        }
        len += allowed_len(&bytes[len..]);
    }
    Ok(len)
}

/// Lengths of the parts of a valid authority.
#[derive(Debug, PartialEq, Eq)]
struct Authority {
    host: usize,
    port: usize,
}

/// Reads `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2). The host may be empty. A port fits in 16 bits.
fn authority(bytes: &[u8]) -> Option<Authority> {
    let host = match bytes {
        [b'[', rest @ ..] => ip_literal_len(rest)? + 1,
        _ => encoded_len(bytes, reg_name_len).ok()?,
    };
    match &bytes[host..] {
        [] => Some(Authority { host, port: 0 }),
        [b':', port @ ..] => is_port(port).then_some(Authority { host, port: port.len() }),
        _ => None,
    }
}

/// Digits, or none. A port fits in 16 bits.
#[inline]
fn is_port(port: &[u8]) -> bool {
    // Nearly all do, by their length and first digit.
    let is_short = port.len() < 5 || matches!(port, [..b'6', _, _, _, _]);
    (is_short && port.iter().all(u8::is_ascii_digit)) || decimal(port).is_ok_and(|port| port <= 0xffff)
}

/// Returns the length of the address at the start of `bytes`, which follow a bracket, with the closing bracket.
#[inline(never)]
fn ip_literal_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().position(|&byte| byte == b']')?;
    is_ip_literal(&bytes[..len]).then_some(len + 1)
}

/// The text between the brackets: an IPv6 address, or `v`, hexadecimal digits, a dot, and a future address.
fn is_ip_literal(bytes: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = bytes {
        let Some(dot) = rest.iter().position(|&byte| byte == b'.') else { return false };
        let (version, address) = (&rest[..dot], &rest[dot + 1..]);
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|&byte| is_reg_name_byte(byte) || byte == b':');
    }
    str::from_utf8(bytes).is_ok_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok())
}

fn span(range: Range<usize>) -> Span {
    Span { start: range.start as u32, len: (range.end - range.start) as u32 }
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
