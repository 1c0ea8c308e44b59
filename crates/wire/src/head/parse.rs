//! Is this complete head well-formed, and what are its parts?
//!
//! `httparse` splits the head; nothing is believed that is not checked here again or that it does not check
//! itself. What it refuses is looked at once more, slowly, to say which rule was broken.

use std::mem::MaybeUninit;

use http::Method;
use httparse::{Header, Request, Status};

use super::target::{self, Authority};
use super::{Field, Head, Span, Version};
use crate::error::Fault;
use crate::framing;
use crate::grammar::{is_text_byte, is_token, trim};

/// Field lines that are parsed without an allocation. More than the default limit, 4 KiB of stack.
const STACK_FIELDS: usize = 128;

/// Length of the shortest field line: `a:` and CRLF.
const FIELD_BYTES_MIN: usize = 4;

/// Parses `bytes`, a complete head whose request line starts at `start` and whose lines all end in CRLF.
pub(super) fn parse(bytes: &[u8], start: usize, fields_max: usize, head: &mut Head) -> Result<(), Fault> {
    let mut stack = [const { MaybeUninit::uninit() }; STACK_FIELDS];
    let parsed = match split(bytes, start, &mut stack[..fields_max.min(STACK_FIELDS)], head) {
        Err(httparse::Error::TooManyHeaders) if fields_max > STACK_FIELDS => {
            let mut heap = Vec::new();
            heap.resize_with(fields_max.min(bytes.len() / FIELD_BYTES_MIN + 1), MaybeUninit::uninit);
            split(bytes, start, &mut heap, head)
        }
        parsed => parsed,
    };
    match parsed {
        Ok(true) => check(bytes, head),
        Ok(false) => Err(request_line_fault(&bytes[start..])),
        Err(error) => Err(head_fault(error, &bytes[start..])),
    }
}

/// Lets `httparse` split the head, and notes its parts. False: it stopped elsewhere than where the head ends.
fn split<'a>(
    bytes: &'a [u8],
    start: usize,
    slots: &mut [MaybeUninit<Header<'a>>],
    head: &mut Head,
) -> Result<bool, httparse::Error> {
    let mut request = Request::new(&mut []);
    let status = request.parse_with_uninit_headers(&bytes[start..], slots)?;
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Ok(false);
    };
    if status != Status::Complete(bytes.len() - start) {
        return Ok(false);
    }
    head.method = Method::from_bytes(method.as_bytes()).map_err(|_| httparse::Error::Token)?;
    head.target = span_in(bytes, target.as_bytes());
    head.version = if version == 0 { Version::Http10 } else { Version::Http11 };
    head.bytes = bytes.len() as u32;
    head.fields.clear();
    head.fields.extend(request.headers.iter().map(|header| field_in(bytes, header)));
    Ok(true)
}

/// What `httparse` does not check: the target, Host, and the fields that frame the message.
fn check(bytes: &[u8], head: &mut Head) -> Result<(), Fault> {
    let at = head.target.start as usize;
    let target = target::read(bytes, at..at + head.target.len as usize, &head.method)?;
    let host = host(bytes, head, target.is_asterisk)?;
    head.path = target.path;
    head.query = target.query;
    head.authority = target.authority.or(host);
    let lines = head.fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
    let facts = framing::read(head.version, lines)?;
    head.framing = facts.framing;
    head.keep_alive = facts.keep_alive;
    head.expect_continue = facts.expect_continue;
    head.upgrade = facts.upgrade;
    Ok(())
}

/// The Host field: exactly one in HTTP/1.1, at most one in HTTP/1.0 (RFC 9112 §3.2). It may be empty only
/// where the target has no authority to name (RFC 9112 §3.3 lets us refuse the others).
fn host(bytes: &[u8], head: &Head, may_be_empty: bool) -> Result<Option<Span>, Fault> {
    let mut hosts = head
        .fields
        .iter()
        .filter(|field| field.name.len == 4 && field.name.of(bytes).eq_ignore_ascii_case(b"host"))
        .map(|field| field.value);
    let Some(host) = hosts.next() else {
        return if head.version == Version::Http10 { Ok(None) } else { Err(Fault::HostMissing) };
    };
    if hosts.next().is_some() {
        return Err(Fault::HostRepeated);
    }
    match target::authority(host.of(bytes)) {
        Some(Authority { host: 1.., .. }) => Ok(Some(host)),
        _ if host.len > 0 => Err(Fault::HostInvalid),
        _ if may_be_empty => Ok(None),
        _ => Err(Fault::HostEmpty),
    }
}

/// Where a field that `httparse` found in `bytes` stands.
fn field_in(bytes: &[u8], header: &Header<'_>) -> Field {
    let name = span_in(bytes, header.name.as_bytes());
    // An empty value of `httparse` need not lie in `bytes`.
    let value = match header.value {
        [] => Span { start: name.start + name.len + 1, len: 0 },
        value => span_in(bytes, value),
    };
    Field { name, value }
}

/// Where `part`, which must be a part of `bytes`, stands in it.
fn span_in(bytes: &[u8], part: &[u8]) -> Span {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    debug_assert!(start + part.len() <= bytes.len());
    Span { start: start as u32, len: part.len() as u32 }
}

/// Which rule a head broke that `httparse` refused.
#[cold]
fn head_fault(error: httparse::Error, head: &[u8]) -> Fault {
    match error {
        httparse::Error::TooManyHeaders => Fault::TooManyFields,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => {
            let first = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
            field_fault(&head[first..])
        }
        _ => request_line_fault(head),
    }
}

/// Which rule the request line at the start of `head` broke: RFC 9112 §3.
#[cold]
fn request_line_fault(head: &[u8]) -> Fault {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut parts = line.split(|&byte| byte == b' ');
    let method = parts.next().unwrap_or_default();
    if !is_token(method) {
        return Fault::MethodNotAToken;
    }
    let (Some(target @ [_, ..]), Some(version @ [_, ..]), None) = (parts.next(), parts.next(), parts.next())
    else {
        return Fault::RequestLineMalformed;
    };
    if !target.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Fault::TargetByteNotAllowed;
    }
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => Fault::RequestLineMalformed,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Fault::VersionNotSupported,
        _ => Fault::VersionMalformed,
    }
}

/// Which rule the first bad one of these field lines broke: RFC 9112 §5, RFC 9110 §5.
#[cold]
pub(crate) fn field_fault(lines: &[u8]) -> Fault {
    lines
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .find_map(field_line_fault)
        .unwrap_or(Fault::FieldValueInvalid)
}

fn field_line_fault(line: &[u8]) -> Option<Fault> {
    if line.is_empty() {
        return None;
    }
    if matches!(line[0], b' ' | b'\t') {
        return Some(Fault::LineFolding);
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Some(Fault::FieldWithoutColon);
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if is_token(name) {
        return (!value.iter().all(|&byte| is_text_byte(byte))).then_some(Fault::FieldValueInvalid);
    }
    // White space before the name was handled above: what trim removes stands before the colon.
    Some(if is_token(trim(name)) { Fault::SpaceBeforeColon } else { Fault::FieldNameInvalid })
}
