//! Parses one field line, or names the rule that it breaks.

use super::{Field, Span};
use crate::error::Fault;
use crate::grammar::{is_token, reg_name_len, text_len, token_len, trim};

/// Splits the field line that starts at `at` in `bytes` (RFC 9112 §5), and says where the next line starts.
/// None: the line is not whole, or breaks a rule; see [`line_fault`].
///
/// One pass finds the end of the line and checks the value: no byte that ends the one may stand in the other.
#[inline]
pub(crate) fn field_line(bytes: &[u8], at: usize) -> Option<(Field, usize)> {
    let line = bytes.get(at..)?;
    let colon = token_len(line);
    if colon == 0 || line.get(colon) != Some(&b':') {
        return None;
    }
    let mut start = colon + 1;
    while let Some(b' ' | b'\t') = line.get(start) {
        start += 1;
    }
    let value = &line[start..];
    let len = text_len(value);
    let [b'\r', b'\n', ..] = value[len..] else { return None };
    let field = Field { name: span(at, colon), value: span(at + start, trim_end(&value[..len]).len()) };
    Some((field, at + start + len + 2))
}

#[inline]
fn trim_end(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn span(start: usize, len: usize) -> Span {
    Span { start: start as u32, len: len as u32 }
}

/// Reads the field line at `at` and its value, if it is a Host line of the plainest form: a name or an IPv4
/// address, perhaps a port, no white space but one space. That is how nearly all requests start (RFC 9110 §7.2
/// wants Host first); split and checked in one look, it saves a quarter of the instructions of a short head.
/// None: it has to be read as any other.
#[inline]
pub(super) fn plain_host(bytes: &[u8], at: usize) -> Option<(Field, usize)> {
    let len = plain_host_len(bytes.get(at..)?)?;
    let value = at + b"Host: ".len();
    Some((Field { name: span(at, b"Host".len()), value: span(value, len) }, value + len + b"\r\n".len()))
}

/// Reads the field line at `at` if it is byte for byte one of the two that nearly all Connection lines are, and says
/// whether it asks to close. With a plain answer, which is written at once too, 1,495 instructions became 776. None: it
/// has to be read as any other.
#[inline]
pub(super) fn plain_connection(bytes: &[u8], at: usize) -> Option<(Field, usize, bool)> {
    let (close, keep_alive) = (b"close\r\n", b"keep-alive\r\n");
    let line = bytes.get(at..)?.strip_prefix(b"Connection: ")?;
    let (rest, closes) = match line.strip_prefix(close) {
        Some(rest) => (rest, true),
        None => (line.strip_prefix(keep_alive)?, false),
    };
    let (value, next) = (at + b"Connection: ".len(), bytes.len() - rest.len());
    let field =
        Field { name: span(at, b"Connection".len()), value: span(value, next - value - b"\r\n".len()) };
    Some((field, next, closes))
}

/// The last port, in as many digits as any plain one has at most: of that many, the order of the texts is that of the
/// numbers.
const LAST_PORT: &[u8; 5] = b"65535";

/// Length of the value.
#[inline]
fn plain_host_len(line: &[u8]) -> Option<usize> {
    // As one word: byte by byte it takes twenty instructions more.
    const HOST: u32 = u32::from_le_bytes(*b"host");
    let (name, rest) = line.split_first_chunk()?;
    if u32::from_le_bytes(*name) | 0x2020_2020 != HOST {
        return None;
    }
    let value = rest.strip_prefix(b": ")?;
    let host = reg_name_len(value);
    let (mut len, mut end) = (host, &value[host..]);
    if let [b':', port @ ..] = end {
        let digits = port.iter().position(|byte| !byte.is_ascii_digit())?;
        len += 1 + digits;
        end = &port[digits..];
        if digits > LAST_PORT.len() || (digits == LAST_PORT.len() && port[..digits] > LAST_PORT[..]) {
            return None;
        }
    }
    let is_whole = host > 0 && end.starts_with(b"\r\n");
    is_whole.then_some(len)
}

/// Which rule the field line at the start of `lines` broke: RFC 9112 §5, RFC 9110 §5.
#[cold]
#[inline(never)]
pub(crate) fn line_fault(lines: &[u8]) -> Fault {
    let line = lines.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if let [b' ' | b'\t', ..] = line {
        return Fault::LineFolding;
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Fault::FieldWithoutColon;
    };
    let name = &line[..colon];
    if is_token(name) {
        return Fault::FieldValueInvalid;
    }
    // White space before the name was handled above: what trim removes stands before the colon.
    if is_token(trim(name)) { Fault::SpaceBeforeColon } else { Fault::FieldNameInvalid }
}
