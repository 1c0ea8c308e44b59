//! Encodes the field blocks of responses of HTTP/2, without frames.

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{Plan, ResponseHead};
use crate::date::Date;
use crate::hpack::{encode_field, encode_status};

/// Space for a usual block.
const BLOCK_BYTES: usize = 128;

/// Appends the field block of a final response.
pub(crate) fn write_response(head: &ResponseHead<'_>, plan: &Plan, date: &Date, out: &mut Vec<u8>) {
    out.reserve(BLOCK_BYTES);
    encode_status(if plan.switches { StatusCode::OK } else { head.status }, out);
    if !plan.date_given {
        encode_field("date", date.as_bytes(), out);
    }
    if let Some(value) = head.content_type
        && !plan.content_type_given
    {
        encode_field("content-type", value.as_bytes(), out);
    }
    // A Date among the fields is that of another server or of a cache, and so is the other date.
    let limit = (plan.last_modified_given && !plan.date_given).then_some(date);
    for (name, value) in head.fields.iter().filter(|(name, _)| !is_of_connection(name)) {
        let value = value.as_bytes();
        let limit = limit.filter(|date| name == header::LAST_MODIFIED && date.is_before(value));
        encode_field(name.as_str(), limit.map_or(value, Date::as_bytes), out);
    }
    if let Some(length) = plan.content_length {
        encode_length(length, out);
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
    for (name, value) in fields.iter().filter(|(name, _)| !is_of_connection(name)) {
        encode_field(name.as_str(), value.as_bytes(), out);
    }
}

/// Returns whether HTTP/2 has no such field (RFC 9113 section 8.2.2), or the length that is written apart.
fn is_of_connection(name: &HeaderName) -> bool {
    let names = ["keep-alive", "proxy-connection"];
    [header::CONNECTION, header::UPGRADE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name)
        || names.contains(&name.as_str())
}

fn encode_length(mut length: u64, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    encode_field("content-length", &digits[at..], out);
}
