//! Builds `multipart/byteranges` bodies (RFC 9110 section 14.6).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use http::HeaderValue;
use weftwork_wire::fields::ByteRange;

use crate::message::BodyPart;

/// Returns the content type and the parts of the body, for ranges of a file of `length` bytes.
pub(super) fn multipart(
    ranges: &[ByteRange],
    length: u64,
    content_type: &HeaderValue,
    part: impl Fn(ByteRange) -> BodyPart,
) -> (HeaderValue, Vec<BodyPart>) {
    let boundary = boundary();
    let shown = content_type.to_str().unwrap_or("application/octet-stream");
    let mut pieces = Vec::with_capacity(ranges.len() * 2 + 1);
    let mut before = "";
    for range in ranges {
        let ByteRange { first, last } = range;
        let head = format!(
            "{before}--{boundary}\r\nContent-Type: {shown}\r\nContent-Range: bytes {first}-{last}/{length}\r\n\r\n"
        );
        pieces.push(BodyPart::Bytes(Bytes::from(head)));
        pieces.push(part(*range));
        before = "\r\n";
    }
    pieces.push(BodyPart::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let outer = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
    (outer.unwrap_or(HeaderValue::from_static("multipart/byteranges")), pieces)
}

/// The boundary is random, so no file can contain it on purpose.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}
