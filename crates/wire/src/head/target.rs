//! What does the request target name?

use std::ops::Range;

use http::Method;

use super::Span;
use crate::error::Fault;
use crate::grammar::{is_path_byte, is_query_byte, is_reg_name_byte};

/// The parts of a target. Its own authority, if it has one, wins over the Host field.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    pub(crate) authority: Option<Span>,
    /// `*`: the one form that may come with an empty Host.
    pub(crate) is_asterisk: bool,
}

/// Reads the target that stands at `at` in `bytes`, in the form that RFC 9112 §3.2 allows its method.
pub(crate) fn read(bytes: &[u8], at: Range<usize>, method: &Method) -> Result<Target, Fault> {
    let target = &bytes[at.clone()];
    if method == Method::CONNECT {
        return authority_form(target, at);
    }
    match target {
        [b'/', ..] => path_and_query(bytes, at, None),
        b"*" if method == Method::OPTIONS => {
            Ok(Target { path: span(at), query: None, authority: None, is_asterisk: true })
        }
        b"*" => Err(Fault::AsteriskWithoutOptions),
        _ => absolute_form(bytes, at),
    }
}

/// RFC 9112 §3.2.3: host, colon and port, none of them optional.
fn authority_form(target: &[u8], at: Range<usize>) -> Result<Target, Fault> {
    match authority(target) {
        Some(Authority { host: 1.., port: 1.. }) => Ok(Target {
            path: Span { start: at.start as u32, len: 0 },
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
    let host = Some(span(start..start + len));
    if rest.get(len) == Some(&b'/') {
        return path_and_query(bytes, start + len..at.end, host);
    }
    let target = path_and_query(bytes, start + len..at.end, host)?;
    // RFC 9110 §4.2.3: an empty path means `/`. The last byte of `http://` is one, and a span can show it.
    Ok(Target { path: span(start - 1..start), ..target })
}

fn path_and_query(bytes: &[u8], at: Range<usize>, authority: Option<Span>) -> Result<Target, Fault> {
    let rest = &bytes[at.clone()];
    let len = valid_len(rest, is_path_byte)?;
    let path = span(at.start..at.start + len);
    let query = match rest.get(len) {
        None => None,
        Some(b'?') => {
            let start = at.start + len + 1;
            let len = valid_len(&bytes[start..at.end], is_query_byte)?;
            if start + len != at.end {
                return Err(Fault::TargetByteNotAllowed);
            }
            Some(span(start..at.end))
        }
        Some(_) => return Err(Fault::TargetByteNotAllowed),
    };
    Ok(Target { path, query, authority, is_asterisk: false })
}

/// How many bytes are `allowed`, or well-formed percent-encodings.
fn valid_len(bytes: &[u8], allowed: fn(u8) -> bool) -> Result<usize, Fault> {
    let mut len = 0;
    while let Some(&byte) = bytes.get(len) {
        if allowed(byte) {
            len += 1;
        } else if byte != b'%' {
            break;
        } else if let [_, high, low, ..] = bytes[len..]
            && high.is_ascii_hexdigit()
            && low.is_ascii_hexdigit()
        {
            len += 3;
        } else {
            return Err(Fault::PercentEncodingMalformed);
        }
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
        _ => valid_len(bytes, is_reg_name_byte).ok()?,
    };
    match &bytes[host..] {
        [] => Some(Authority { host, port: 0 }),
        [b':', port @ ..] => {
            let fits = |port: &[u8]| crate::grammar::decimal(port).is_ok_and(|port| port <= 0xffff);
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
    str::from_utf8(bytes).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

fn span(range: Range<usize>) -> Span {
    Span { start: range.start as u32, len: range.len() as u32 }
}
