//! Is this head well-formed, and what are its parts?
//!
//! One pass, by our own hand: lines are split, checked, recognised and noted as they are met, so that no byte
//! is looked at twice. It was `httparse` that split heads here, with a search for the end before it and checks
//! of all that it leaves unchecked (target, Host, framing, the end of the head) after it. BEFORE_AFTER
//! Differential tests and the fuzz targets hold this parser to `httparse`: what is accepted here is accepted
//! there, with the same parts.

use http::Method;

use super::known::Known;
use super::line::{field_line, line_fault};
use super::target::{self, Authority, Target};
use super::{Head, Span, Version};
use crate::error::Fault;
use crate::framing::Seen;
use crate::grammar::{is_token, token_len};
use crate::limits::Limits;

const CRLF: &[u8] = b"\r\n";

/// Parses the head at the start of `bytes`, whose request line starts at `start`, and says where it ends. A
/// fault is to be believed only if the head is complete and all its lines end in CRLF.
pub(super) fn parse(bytes: &[u8], start: usize, limits: &Limits, head: &mut Head) -> Result<usize, Fault> {
    let line = request_line(bytes, start)?;
    if line.end - start - CRLF.len() > limits.request_line_bytes_max as usize {
        return Err(Fault::TargetTooLong);
    }
    head.fields.clear();
    let (mut seen, mut hosts) = (Seen::default(), Hosts::default());
    let mut at = line.end;
    while !bytes[at..].starts_with(CRLF) {
        if head.fields.len() >= limits.fields_max as usize {
            return Err(Fault::TooManyFields);
        }
        let Some((field, next)) = field_line(bytes, at) else { return Err(line_fault(&bytes[at..])) };
        match Known::of(field.name.of(bytes)) {
            None => {}
            Some(Known::Host) => hosts.note(field.value),
            Some(known) => seen.note(known, field.value.of(bytes))?,
        }
        head.fields.push(field);
        at = next;
    }
    let host = hosts.conclude(bytes, line.version, line.target.is_asterisk)?;
    let facts = seen.conclude(line.version)?;
    let end = at + CRLF.len();
    head.method = line.method;
    head.version = line.version;
    head.target = line.target.whole;
    head.path = line.target.path;
    head.query = line.target.query;
    head.authority = line.target.authority.or(host);
    head.framing = facts.framing;
    head.keep_alive = facts.keep_alive;
    head.expect_continue = facts.expect_continue;
    head.upgrade = facts.upgrade;
    head.bytes = end as u32;
    Ok(end)
}

/// A request line, split: RFC 9112 §3.
struct RequestLine {
    method: Method,
    target: Target,
    version: Version,
    /// Where the next line starts.
    end: usize,
}

#[inline]
fn request_line(bytes: &[u8], start: usize) -> Result<RequestLine, Fault> {
    let line = &bytes[start..];
    let (method, len) = method(line).ok_or_else(|| request_line_fault(line, Fault::MethodNotAToken))?;
    let target = target::read(bytes, start + len + 1, &method);
    let target = target.map_err(|fault| request_line_fault(line, fault))?;
    let end = (target.whole.start + target.whole.len) as usize;
    let version = match bytes[end..].first_chunk() {
        Some(b" HTTP/1.1\r\n") => Version::Http11,
        Some(b" HTTP/1.0\r\n") => Version::Http10,
        // The target was read up to a byte that may not be in it.
        _ => return Err(request_line_fault(line, Fault::TargetByteNotAllowed)),
    };
    Ok(RequestLine { method, target, version, end: end + b" HTTP/1.1\r\n".len() })
}

/// The method at the start of `line`, and its length; a space stands behind it. Most are GET.
#[inline]
fn method(line: &[u8]) -> Option<(Method, usize)> {
    if line.starts_with(b"GET ") {
        return Some((Method::GET, 3));
    }
    let len = token_len(line);
    if line.get(len) != Some(&b' ') {
        return None;
    }
    Method::from_bytes(&line[..len]).ok().map(|method| (method, len))
}

/// The Host fields: RFC 9112 §3.2.
#[derive(Default)]
struct Hosts {
    first: Option<Span>,
    is_repeated: bool,
}

impl Hosts {
    #[inline]
    fn note(&mut self, value: Span) {
        self.is_repeated = self.first.is_some();
        self.first.get_or_insert(value);
    }

    /// Exactly one in HTTP/1.1, at most one in HTTP/1.0. It may be empty only where the target has no
    /// authority to name (RFC 9112 §3.3 lets us refuse the others).
    #[inline]
    fn conclude(&self, bytes: &[u8], version: Version, may_be_empty: bool) -> Result<Option<Span>, Fault> {
        let Some(host) = self.first else {
            return if version == Version::Http10 { Ok(None) } else { Err(Fault::HostMissing) };
        };
        if self.is_repeated {
            return Err(Fault::HostRepeated);
        }
        match target::authority(host.of(bytes)) {
            Some(Authority { host: 1.., .. }) => Ok(Some(host)),
            _ if host.len > 0 => Err(Fault::HostInvalid),
            _ if may_be_empty => Ok(None),
            _ => Err(Fault::HostEmpty),
        }
    }
}

/// Which rule the request line at the start of `head` broke: that of the line's form (RFC 9112 §3), if it
/// broke one, else `fault`.
#[cold]
fn request_line_fault(head: &[u8], fault: Fault) -> Fault {
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
        b"HTTP/1.0" | b"HTTP/1.1" => fault,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Fault::VersionNotSupported,
        _ => Fault::VersionMalformed,
    }
}
