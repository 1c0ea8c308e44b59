//! What does the request target name?

use std::ops::Range;

use http::Method;

use super::Span;
use crate::error::Fault;
use crate::grammar::{decimal, is_reg_name_byte, path_len, query_len, reg_name_len};

/// The parts of a target. Its own authority, if it has one, wins over the Host field.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) whole: Span,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    pub(crate) authority: Option<Span>,
    /// `*`: the one form that may come with an empty Host.
    pub(crate) is_asterisk: bool,
}

/// Reads the target that starts at `at` in `bytes`, in the form that RFC 9112 §3.2 allows its method. It ends
/// before the first byte that may not be in it: unless that is the space before the version, the target is at
/// fault.
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize, method: &Method) -> Result<Target, Fault> {
    if bytes.get(at) == Some(&b'/') && *method != Method::CONNECT {
        return path_and_query(bytes, at, at, None);
    }
    other_form(bytes, at, method)
}

/// Any form but the origin form.
fn other_form(bytes: &[u8], at: usize, method: &Method) -> Result<Target, Fault> {
    let rest = &bytes[at..];
    let end = at + rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    if method == Method::CONNECT {
        return authority_form(bytes, at..end);
    }
    match &bytes[at..end] {
        b"*" if method == Method::OPTIONS => {
            let whole = span(at..end);
            Ok(Target { whole, path: whole, query: None, authority: None, is_asterisk: true })
        }
        b"*" => Err(Fault::AsteriskWithoutOptions),
        _ => absolute_form(bytes, at..end),
    }
}

/// RFC 9112 §3.2.3: host, colon and port, none of them optional.
fn authority_form(bytes: &[u8], at: Range<usize>) -> Result<Target, Fault> {
    match authority(&bytes[at.clone()]) {
        Some(Authority { host: 1.., port: 1.. }) => Ok(Target {
            whole: span(at.clone()),
            path: span(at.start..at.start),
            query: None,
            authority: Some(span(at)),
            is_asterisk: false,
        }),
        _ => Err(Fault::ConnectWithoutAuthority),
    }
}

/// RFC 9112 §3.2.2, for the schemes that an HTTP server has an answer for.
fn absolute_form(bytes: &[u8], at: Range<usize>) -> Result<Target, Fault> {
    let target = &bytes[at.clone()];
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .ok_or(Fault::TargetFormUnknown)?;
    let rest = &target[scheme.len()..];
    let len = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    // RFC 9110 §4.2.1, §4.2.4: without a host it is no http URI; a user name in it is a disguise.
    let Some(Authority { host: 1.., .. }) = authority(&rest[..len]) else {
        return Err(Fault::AuthorityInvalid);
    };
    let start = at.start + scheme.len();
    let target = path_and_query(bytes, at.start, start + len, Some(span(start..start + len)))?;
    if rest.get(len) == Some(&b'/') {
        return Ok(target);
    }
    // RFC 9110 §4.2.3: an empty path means `/`. The last byte of `http://` is one, and a span can show it.
    Ok(Target { path: span(start - 1..start), ..target })
}

/// The path at `at`, and the query after it, of the target that starts at `start`.
#[inline(always)]
fn path_and_query(bytes: &[u8], start: usize, at: usize, authority: Option<Span>) -> Result<Target, Fault> {
    let mut end = at + encoded_len(&bytes[at..], path_len)?;
    let path = span(at..end);
    let mut query = None;
    if bytes.get(end) == Some(&b'?') {
        let at = end + 1;
        end = at + encoded_len(&bytes[at..], query_len)?;
        query = Some(span(at..end));
    }
    Ok(Target { whole: span(start..end), path, query, authority, is_asterisk: false })
}

/// How many bytes are allowed (`allowed_len` counts those that are), or well-formed percent-encodings.
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
pub(super) struct Authority {
    pub(super) host: usize,
    pub(super) port: usize,
}

/// Reads `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2). The host may be empty; a port fits in 16
/// bits.
pub(super) fn authority(bytes: &[u8]) -> Option<Authority> {
    let host = match bytes {
        [b'[', rest @ ..] => {
            let len = rest.iter().position(|&byte| byte == b']')?;
            is_ip_literal(&rest[..len]).then_some(len + 2)?
        }
        _ => encoded_len(bytes, reg_name_len).ok()?,
    };
    match &bytes[host..] {
        [] => Some(Authority { host, port: 0 }),
        [b':', port @ ..] => {
            let fits = |port: &[u8]| decimal(port).is_ok_and(|port| port <= 0xffff);
            (port.is_empty() || fits(port)).then_some(Authority { host, port: port.len() })
        }
        _ => None,
    }
}

/// What stands between the brackets: an IPv6 address, or `v`, hexadecimal digits, a dot, and an address of
/// the future.
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
    Span { start: range.start as u32, len: range.len() as u32 }
}
