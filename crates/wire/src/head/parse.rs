//! Checks a head and splits it into its parts.
//!
//! One pass splits, checks, recognises and notes each line. Only a Host line that is not plain is read twice. Before,
//! `httparse` did this between a search for the end of the head and checks of what it leaves unchecked: target, Host,
//! framing. The head of `wrk` took 1,610 instructions then and 390 after, and the head of a browser (12 fields, 640
//! bytes) 6,640 and 3,650. Today's counts of the whole step, with framing and limits, are in
//! `crates/bench/instructions.json`. After a system call the caches are cold, so the number of instructions counts.
//!
//! A differential test and the fuzz targets compare this parser with `httparse`. A head that is accepted here is
//! accepted there, with the same parts.

use http::Method;

use super::known::Known;
use super::{Authority, Field, Head, Span, Version, authority, read_target};
use crate::error::Fault;
use crate::framing::Seen;
use crate::grammar::{is_token, reg_name_len, text_len, token_len, trim};
use crate::limits::Limits;

const CRLF: &[u8] = b"\r\n";
const VERSION_10: &[u8] = b" HTTP/1.0\r\n";
const VERSION_11: &[u8] = b" HTTP/1.1\r\n";

/// Parses the head at the start of `bytes`, whose request line starts at `start`, and returns where it ends. A fault
/// is valid only if the head is complete and all its lines end in CRLF.
pub(super) fn parse(bytes: &[u8], start: usize, limits: &Limits, head: &mut Head) -> Result<usize, Fault> {
    let mut at = request_line(bytes, start, head)?;
    if at - start - CRLF.len() > limits.request_line_bytes_max as usize {
        return Err(Fault::TargetTooLong);
    }
    head.fields.clear();
    let mut host = None;
    if limits.fields_max > 0
        && let Some((field, next)) = plain_host(bytes, at)
    {
        head.fields.push(field);
        (host, at) = (Some(field.value), next);
    }
    if host.is_some() && bytes[at..].starts_with(CRLF) {
        conclude(head, host, &Seen::default())?;
    } else {
        at = fields(bytes, at, limits, host, head)?;
    }
    at += CRLF.len();
    head.bytes = at as u32;
    Ok(at)
}

/// Reads the field lines from `at` on, and returns where they end. `host` is the host of a plain line before them.
///
/// This is not in one function with the request line, because both together need more registers than there are, at a
/// cost for every line. A head with only a plain Host line does not need this function.
#[inline(never)]
fn fields(
    bytes: &[u8],
    mut at: usize,
    limits: &Limits,
    host: Option<Span>,
    head: &mut Head,
) -> Result<usize, Fault> {
    let mut seen = Seen::default();
    let mut hosts = Hosts { first: host, is_valid: host.is_some(), is_repeated: false };
    while !bytes[at..].starts_with(CRLF) {
        if head.fields.len() >= limits.fields_max as usize {
            return Err(Fault::TooManyFields);
        }
        if let Some((field, next, closes)) = plain_connection(bytes, at) {
            seen.note_plain_connection(closes);
            head.fields.push(field);
            at = next;
            continue;
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
    conclude(head, hosts.conclude(bytes, head)?, &seen)?;
    Ok(at)
}

/// Notes what follows from all fields together.
#[inline(always)]
fn conclude(head: &mut Head, host: Option<Span>, seen: &Seen) -> Result<(), Fault> {
    head.authority = head.authority.or(host);
    let facts = seen.conclude(head.version)?;
    head.framing = facts.framing;
    head.keep_alive = facts.keep_alive;
    head.expect_continue = facts.expect_continue;
    head.upgrade = facts.upgrade;
    head.protocol = None;
    Ok(())
}

/// Splits the request line that starts at `start` (RFC 9112 §3), and returns where the next line starts.
#[inline]
fn request_line(bytes: &[u8], start: usize, head: &mut Head) -> Result<usize, Fault> {
    let line = &bytes[start..];
    let Some(len) = method(line, head) else {
        return Err(request_line_fault(line, Fault::MethodNotAToken));
    };
    let end = match read_target(bytes, start + len + 1, head) {
        Ok(end) => end,
        Err(fault) => return Err(request_line_fault(line, fault)),
    };
    // Comparisons are used, because patterns compare byte by byte.
    let rest = &bytes[end..];
    head.version = if rest.starts_with(VERSION_11) {
        Version::Http11
    } else if rest.starts_with(VERSION_10) {
        Version::Http10
    } else {
        // The target was read up to a byte that a target must not contain.
        return Err(request_line_fault(line, Fault::TargetByteNotAllowed));
    };
    Ok(end + VERSION_11.len())
}

/// Notes the method at the start of `line`, and returns its length. A space follows the method. Most methods are GET,
/// like the last one. A comparison costs less than dropping and moving a value that may own memory.
#[inline]
fn method(line: &[u8], head: &mut Head) -> Option<usize> {
    if line.starts_with(b"GET ") {
        if head.method != Method::GET {
            head.method = Method::GET;
        }
        return Some(3);
    }
    let len = token_len(line);
    if line.get(len) != Some(&b' ') {
        return None;
    }
    head.method = Method::from_bytes(&line[..len]).ok()?;
    Some(len)
}

/// The Host fields: RFC 9112 §3.2.
struct Hosts {
    first: Option<Span>,
    /// The first field was checked when it was read.
    is_valid: bool,
    is_repeated: bool,
}

impl Hosts {
    #[inline]
    fn note(&mut self, value: Span) {
        self.is_repeated = self.first.is_some();
        self.first.get_or_insert(value);
    }

    /// HTTP/1.1 needs exactly one Host field, HTTP/1.0 at most one. The field may be empty in two cases: the target
    /// has no authority to name (RFC 9112 §3.3 lets us refuse the others), or it names its own authority, which
    /// counts instead (RFC 9112 §3.2.2).
    #[inline]
    fn conclude(&self, bytes: &[u8], head: &Head) -> Result<Option<Span>, Fault> {
        let Some(host) = self.first else {
            return if head.version == Version::Http10 { Ok(None) } else { Err(Fault::HostMissing) };
        };
        if self.is_repeated {
            return Err(Fault::HostRepeated);
        }
        if self.is_valid {
            return Ok(Some(host));
        }
        match authority(host.of(bytes)) {
            Some(Authority { host: 1.., .. }) => Ok(Some(host)),
            _ if host.len > 0 => Err(Fault::HostInvalid),
            _ if head.authority.is_some() || head.target.of(bytes) == b"*" => Ok(None),
            _ => Err(Fault::HostEmpty),
        }
    }
}

/// Returns the rule that the request line at the start of `head` broke: the rule of the line's form (RFC 9112 §3) if
/// it broke one, otherwise `fault`.
#[cold]
#[inline(never)]
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

/// Splits the field line that starts at `at` in `bytes` (RFC 9112 §5), and returns where the next line starts.
/// Returns None if the line is not complete, or breaks a rule: see [`line_fault`].
///
/// One pass finds the end of the line and checks the value, because a value must not contain a byte that ends a line.
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

/// Reads the field line at `at` and its value, if it is a Host line of the simplest form: a name or an IPv4 address,
/// perhaps a port, and no white space except one space. Nearly all requests start with such a line (RFC 9110 §7.2
/// wants Host first). To split and check it in one step saves a quarter of the instructions of a short head. Returns
/// None for a line that must be read as any other.
#[inline]
fn plain_host(bytes: &[u8], at: usize) -> Option<(Field, usize)> {
    let len = plain_host_len(bytes.get(at..)?)?;
    let value = at + b"Host: ".len();
    Some((Field { name: span(at, b"Host".len()), value: span(value, len) }, value + len + b"\r\n".len()))
}

/// Reads the field line at `at` if it is byte for byte one of the two that nearly all Connection lines are, and
/// returns whether it asks to close. With a plain response, which is written at once, too, 1,495 instructions became
/// 776. Returns None for a line that must be read as any other.
#[inline]
fn plain_connection(bytes: &[u8], at: usize) -> Option<(Field, usize, bool)> {
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

/// The last port, with the maximum number of digits. Texts of that length have the order of their numbers.
const LAST_PORT: &[u8; 5] = b"65535";

/// Length of the value.
#[inline]
fn plain_host_len(line: &[u8]) -> Option<usize> {
    // One word is compared, because single bytes take twenty more instructions.
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

/// Returns the rule that the field line at the start of `lines` broke: RFC 9112 §5, RFC 9110 §5.
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
    // White space before the name was handled above, so trim removes only white space before the colon.
    if is_token(trim(name)) { Fault::SpaceBeforeColon } else { Fault::FieldNameInvalid }
}
