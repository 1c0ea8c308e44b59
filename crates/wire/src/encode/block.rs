//! Encodes the field blocks of HTTP/2, without frames.

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{Plan, ResponseHead};
use crate::date::Date;
use crate::hpack::{encode_at, encode_field, encode_status, index};

/// Space for a usual block.
const BLOCK_BYTES: usize = 128;

/// Appends the field block of a final response. A head that switches accepts the protocol of CONNECT, so 101 becomes 200,
/// without `Sec-WebSocket-Accept` (RFC 8441 §5).
#[inline]
pub(crate) fn write_response(head: &ResponseHead<'_>, plan: &Plan, date: &Date, out: &mut Vec<u8>) {
    out.reserve(BLOCK_BYTES);
    encode_status(if plan.switches { StatusCode::OK } else { head.status }, out);
    if !plan.date_given {
        encode_at(index::DATE, date.as_bytes(), out);
    }
    if let Some(value) = head.content_type
        && !plan.content_type_given
    {
        encode_at(index::CONTENT_TYPE, value.as_bytes(), out);
    }
    if !head.fields.is_empty() {
        write_given(head.fields, plan, date, out);
    }
    if let Some(length) = plan.content_length {
        encode_length(length, out);
    }
}

/// Appends the fields of a response, except for those that the codec writes itself. See the same for HTTP/1.1.
#[inline(never)]
fn write_given(fields: &[(HeaderName, HeaderValue)], plan: &Plan, date: &Date, out: &mut Vec<u8>) {
    // A Date among the fields is that of another server or of a cache, and so is the other date.
    let limit = (plan.last_modified_given && !plan.date_given).then_some(date);
    for (name, value) in fields {
        let is_left_out = name == header::CONTENT_LENGTH
            || (plan.switches && name == header::SEC_WEBSOCKET_ACCEPT)
            || is_of_connection(name, value);
        if !is_left_out {
            let value = value.as_bytes();
            let limit = limit.filter(|date| name == header::LAST_MODIFIED && date.is_before(value));
            encode_field(name.as_str(), limit.map_or(value, Date::as_bytes), out);
        }
    }
}

/// Appends the field block of an interim response.
pub(crate) fn write_interim_block(
    status: StatusCode,
    fields: &[(HeaderName, HeaderValue)],
    out: &mut Vec<u8>,
) {
    encode_status(status, out);
    write_block(fields, out);
}

/// Appends these fields, such as trailers.
pub(crate) fn write_block(fields: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
    for (name, value) in fields.iter().filter(|(name, value)| !is_of_connection(name, value)) {
        encode_field(name.as_str(), value.as_bytes(), out);
    }
}

/// Returns whether HTTP/2 has no such field (RFC 9113 §8.2.2).
#[inline]
fn is_of_connection(name: &HeaderName, value: &HeaderValue) -> bool {
    match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => true,
        "te" => value != "trailers",
        _ => false,
    }
}

#[inline]
fn encode_length(mut length: u64, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 || at == 0 {
            break;
        }
    }
    encode_at(index::CONTENT_LENGTH, &digits[at..], out);
}
