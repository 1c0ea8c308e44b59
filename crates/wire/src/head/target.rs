//! Parses the request target.

use std::ops::Range;

use http::Method;

use super::{Head, Span};
use crate::error::Fault;
use crate::grammar::{decimal, is_reg_name_byte, path_len, query_len, reg_name_len};

/// Reads the target that starts at `at` in `bytes`, in the form that RFC 9112 §3.2 allows the method of `head`,
/// and notes its parts there. Says where it ends: before the first byte that may not be in it. Unless that is
/// the space before the version, the target is at fault.
///
/// Its own authority, if it has one, wins over the Host field.
#[inline]
pub(super) fn read(bytes: &[u8], at: usize, head: &mut Head) -> Result<usize, Fault> {
    let end = if bytes.get(at) == Some(&b'/') && head.method != Method::CONNECT {
        head.authority = None;
        path_and_query(bytes, at, head)?
    } else {
        other_form(bytes, at, head)?
    };
    head.target = span(at..end);
    Ok(end)
}

/// Any form but the origin form.
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

/// RFC 9112 §3.2.2, for the schemes that an HTTP server has an answer for.
fn absolute_form(bytes: &[u8], at: Range<usize>, head: &mut Head) -> Result<usize, Fault> {
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
        [b'[', rest @ ..] => ip_literal_len(rest)? + 1,
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

/// Length of the address at the start of `bytes`, which stand after a bracket, and of the bracket that ends it.
#[inline(never)]
fn ip_literal_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().position(|&byte| byte == b']')?;
    is_ip_literal(&bytes[..len]).then_some(len + 1)
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
    Span { start: range.start as u32, len: (range.end - range.start) as u32 }
}
