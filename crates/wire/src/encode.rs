//! Encodes responses.
//!
//! [`plan`] decides how to encode, and may refuse. Writing cannot fail afterwards, so a refused head writes no bytes.

mod block;
mod plan;
mod status;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::date::Date;
use crate::grammar::elements;

pub(crate) use block::{write_block, write_interim_block, write_response};
pub(crate) use plan::{Plan, Request, interim, is_requested, plan, trailers};
use status::write_status_line;

/// The length of a response body, as its writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// Exactly that many bytes will be written.
    Exact(u64),
    /// The length is unknown. The body is chunked for HTTP/1.1, and ends with the connection for HTTP/1.0. A
    /// Content-Length among the fields declares a length after all.
    Unknown,
}

/// A response, except for its body.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The final status. 101 is only for [`Http1::write_switch`](crate::Http1::write_switch).
    pub status: StatusCode,
    /// The Content-Type, unless `fields` has one.
    pub content_type: Option<&'a HeaderValue>,
    /// All other fields, written in this order. A Date replaces the date of the codec. Without a Date, a later
    /// Last-Modified is replaced by the date of the codec. `close` and tokens such as `upgrade` are taken from Connection, and
    /// `upgrade` is added if there is an Upgrade field. Content-Length must be the length of the body. Transfer-Encoding is
    /// refused.
    pub fields: &'a [(HeaderName, HeaderValue)],
    /// The length of the body.
    pub length: BodyLength,
    /// Whether to send `Connection: close`, whatever the client requested.
    pub close: bool,
}

impl Default for ResponseHead<'_> {
    /// A 200 without content.
    fn default() -> Self {
        ResponseHead {
            status: StatusCode::OK,
            content_type: None,
            fields: &[],
            length: BodyLength::Exact(0),
            close: false,
        }
    }
}

/// How the body of a response is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// No body is sent: written bytes are dropped.
    #[default]
    NoBody,
    /// This many bytes must still be written.
    Length(u64),
    Chunked,
    Close,
}

/// Meaning of the Connection field for the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// The default of the version.
    Implied,
    Close,
    KeepAlive,
    Upgrade,
}

impl Persistence {
    fn token(self) -> &'static [u8] {
        match self {
            Persistence::Implied => b"",
            Persistence::Close => b"close",
            Persistence::KeepAlive => b"keep-alive",
            Persistence::Upgrade => b"upgrade",
        }
    }
}

/// Maximum number of bytes of a head without its fields: status line, Date, Content-Length, Connection, and slack.
const OWN_BYTES: usize = 192;

/// Content-Type and length of the head that nearly all responses have: a 200 with nothing else in it.
#[inline]
pub(crate) fn plain<'a>(head: &ResponseHead<'a>) -> Option<(&'a [u8], u64)> {
    match *head {
        ResponseHead {
            status: StatusCode::OK,
            content_type: Some(value),
            fields: [],
            length: BodyLength::Exact(length),
            close: false,
        } => Some((value.as_bytes(), length)),
        _ => None,
    }
}

/// Writes such a head in three pieces. The compiler knows the length of two of them, so each is a handful of
/// instructions. A copy of unknown length is a call.
#[inline]
pub(crate) fn write_plain(content_type: &[u8], length: u64, closes: bool, date: &Date, out: &mut Vec<u8>) {
    out.extend_from_slice(date.ok_start());
    out.extend_from_slice(content_type);
    if length <= SHORT_LENGTH_MAX {
        write_short_length(length, out);
    } else {
        out.extend_from_slice(b"\r\n");
        write_content_length(length, out);
        out.extend_from_slice(b"\r\n");
    }
    if closes {
        out.truncate(out.len() - b"\r\n".len());
        out.extend_from_slice(b"Connection: close\r\n\r\n");
    }
}

/// Number of digits that fit in a word together with the end of the head.
const SHORT_LENGTH_MAX: u64 = 9999;

/// The rest of a head whose last field is a Content-Length of up to four digits. The code copies a fixed length that
/// the compiler knows, and truncates the result.
#[inline]
fn write_short_length(length: u64, out: &mut Vec<u8>) {
    const NAME: [u8; 18] = *b"\r\nContent-Length: ";
    // The digits are written before the end, the last digit first.
    let mut word = u64::from(u32::from_le_bytes(*b"\r\n\r\n"));
    let (mut rest, mut unused) = (length as u32, 4);
    loop {
        word = word << 8 | u64::from(b'0' + (rest % 10) as u8);
        unused -= 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut end = [0; NAME.len() + size_of::<u64>()];
    end[..NAME.len()].copy_from_slice(&NAME);
    end[NAME.len()..].copy_from_slice(&word.to_le_bytes());
    out.extend_from_slice(&end);
    out.truncate(out.len() - unused);
}

/// Writes any other head. The function is inline, so that the plan is never stored in memory.
#[inline(always)]
pub(crate) fn write_head(
    head: &ResponseHead<'_>,
    plan: &Plan,
    persistence: Persistence,
    date: &Date,
    out: &mut Vec<u8>,
) {
    out.reserve(OWN_BYTES);
    write_status_line(head.status, out);
    if !plan.date_given {
        out.extend_from_slice(date.line());
    }
    if let Some(value) = head.content_type
        && !plan.content_type_given
    {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !head.fields.is_empty() {
        // A Date among the fields is that of another server or of a cache, and so is the other date.
        let limit = (plan.last_modified_given && !plan.date_given).then_some(date);
        write_given(head.fields, limit, out);
    }
    if let Some(length) = plan.content_length {
        write_content_length(length, out);
    }
    if plan.delimiter == Delimiter::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if plan.connection_given {
        write_connection(head.fields, persistence.token(), out);
    } else if persistence != Persistence::Implied {
        write_field(b"Connection", persistence.token(), out);
    }
    out.extend_from_slice(b"\r\n");
}

/// The fields of a response, except for those that the codec writes itself. A Last-Modified after `limit` becomes
/// `limit` (RFC 9110 §8.8.2.1): the clock of a file or of a handler may be ahead of the Date.
#[inline(never)]
fn write_given(fields: &[(HeaderName, HeaderValue)], limit: Option<&Date>, out: &mut Vec<u8>) {
    for (name, value) in fields {
        if name == http::header::CONNECTION || name == http::header::CONTENT_LENGTH {
            continue;
        }
        let mut value = value.as_bytes();
        if let Some(date) = limit
            && name == http::header::LAST_MODIFIED
            && date.is_before(value)
        {
            value = date.as_bytes();
        }
        write_field(name.as_str().as_bytes(), value, out);
    }
}

#[inline]
fn write_content_length(length: u64, out: &mut Vec<u8>) {
    const NAME: &[u8] = b"Content-Length: ";
    const DIGITS_MAX: usize = 20;
    // The line is written from its end, so that it is one copy.
    let mut line = *b"                00000000000000000000\r\n";
    let mut at = NAME.len() + DIGITS_MAX;
    let mut rest = length;
    loop {
        at -= 1;
        line[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || at == NAME.len() {
            break;
        }
    }
    at -= NAME.len();
    line[at..][..NAME.len()].copy_from_slice(NAME);
    out.extend_from_slice(&line[at..]);
}

/// Writes all tokens of all given Connection fields, and our own, in one field. Some clients fail on two Connection
/// fields in a response. `upgrade` is one of the tokens if there is an Upgrade field (RFC 9110 §7.8).
#[inline(never)]
fn write_connection(fields: &[(HeaderName, HeaderValue)], own: &'static [u8], out: &mut Vec<u8>) {
    let given = || {
        fields
            .iter()
            .filter(|(name, _)| name == http::header::CONNECTION)
            .flat_map(|(_, value)| elements(value.as_bytes()))
            .filter(|token| !is_ours(token) && !token.eq_ignore_ascii_case(own))
    };
    let is_upgrade = |token: &[u8]| token.eq_ignore_ascii_case(b"upgrade");
    let is_named = is_upgrade(own) || given().any(is_upgrade);
    let upgrades = fields.iter().any(|(name, _)| name == http::header::UPGRADE);
    let upgrade: &[u8] = if upgrades && !is_named { b"upgrade" } else { b"" };
    let mut separator: &[u8] = b"Connection: ";
    for token in given().chain([upgrade, own]).filter(|token| !token.is_empty()) {
        out.extend_from_slice(separator);
        out.extend_from_slice(token);
        separator = b", ";
    }
    if separator == b", " {
        out.extend_from_slice(b"\r\n");
    }
}

/// The codec alone decides whether the connection persists.
fn is_ours(token: &[u8]) -> bool {
    token.eq_ignore_ascii_case(b"close") || token.eq_ignore_ascii_case(b"keep-alive")
}

/// Interim responses have no Date. The final response has one.
pub(crate) fn write_interim(status: StatusCode, fields: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
    write_status_line(status, out);
    write_fields(fields, out);
    out.extend_from_slice(b"\r\n");
}

/// Writes a chunk. `data` must not be empty, because an empty chunk ends the body.
pub(crate) fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    out.reserve(data.len() + CHUNK_SIZE_BYTES_MAX + 2);
    write_chunk_size(data.len() as u64, out);
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

const CHUNK_SIZE_BYTES_MAX: usize = "0123456789abcdef\r\n".len();

/// Writes the line before a chunk. The size must not be 0, which would end the body.
#[inline(always)]
pub(crate) fn write_chunk_size(mut size: u64, out: &mut Vec<u8>) {
    const DIGITS: usize = CHUNK_SIZE_BYTES_MAX - 2;
    let mut line = [0; DIGITS];
    let mut at = DIGITS;
    while size > 0 {
        at -= 1;
        line[at] = b"0123456789abcdef"[(size & 0xf) as usize];
        size >>= 4;
    }
    out.extend_from_slice(&line[at..DIGITS]);
    out.extend_from_slice(b"\r\n");
}

/// The chunk that ends a body, and its trailers.
pub(crate) fn write_last_chunk(trailers: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    write_fields(trailers, out);
    out.extend_from_slice(b"\r\n");
}

fn write_fields(fields: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
    for (name, value) in fields {
        write_field(name.as_str().as_bytes(), value.as_bytes(), out);
    }
}

fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
