//! Reads response heads and bodies, for proxies and tests.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::body::{BodyEvent, BodyReader};
use crate::error::Fault;
use crate::framing::{Framing, Seen};
use crate::grammar::is_text_byte;
use crate::head::{Known, Scan, Version, field_line, line_fault};
use crate::limits::Limits;

/// The head of a response that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The status.
    pub status: StatusCode,
    /// All field lines, in order, none merged.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The length of the body, if the head says it. 0 without a body.
    pub length: Option<u64>,
    /// The connection may carry another request when the body is over.
    pub keep_alive: bool,
}

/// Fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseFault {
    /// The first line is not a version, a status and a reason (RFC 9112 §4).
    StatusLineMalformed,
    /// A rule that requests have to keep too.
    Message(Fault),
    /// The connection ended before the response did.
    Incomplete,
}

impl From<Fault> for ResponseFault {
    fn from(fault: Fault) -> ResponseFault {
        ResponseFault::Message(fault)
    }
}

impl std::fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResponseFault::StatusLineMalformed => {
                f.write_str("The response does not begin with a status line.")
            }
            ResponseFault::Message(fault) => write!(f, "{fault} ({})", fault.rule()),
            ResponseFault::Incomplete => f.write_str("The connection ended within the response."),
        }
    }
}

impl std::error::Error for ResponseFault {}

/// Reads the responses to one request: interim ones, and the final one with its body.
///
/// As strict as the reading of requests: two lengths, a coding that is not understood, or a bare line feed are
/// faults, because the next one on the way might read them otherwise. But a trailer that may be none is left out.
#[derive(Debug, Default)]
pub struct ResponseReader {
    scan: Scan,
    body: Body,
}

#[derive(Debug, Default)]
enum Body {
    /// Its head is still to come, in whole or in part.
    #[default]
    NoHead,
    Framed(BodyReader),
    /// Until the connection ends (RFC 9112 §6.3, step 8).
    UntilClose,
}

impl ResponseReader {
    /// A reader that has seen nothing.
    pub fn new() -> ResponseReader {
        ResponseReader::default()
    }

    /// Reads the next head, and returns how many of `bytes` it took. Returns None if the head is not complete. Call
    /// again with the same bytes and more. After a 1xx that is not 101, another head follows.
    ///
    /// # Errors
    /// The rule that the head breaks. The connection cannot be used any more.
    pub fn read_head(
        &mut self,
        bytes: &[u8],
        method: &Method,
        limits: &Limits,
    ) -> Result<Option<(usize, Received)>, ResponseFault> {
        self.body = Body::NoHead;
        let head_max = limits.head_bytes_max as usize;
        let Some(end) = self.scan.find_end(bytes, 0, head_max, head_max)? else { return Ok(None) };
        self.scan = Scan::default();
        let head = &bytes[..end];
        let first = head.iter().position(|&byte| byte == b'\r').unwrap_or_default();
        let (version, status) = status_line(&head[..first]).ok_or(ResponseFault::StatusLineMalformed)?;
        let is_tunnel = *method == Method::CONNECT && status.is_success();
        let (fields, seen) = read_fields(head, first + 2, is_tunnel, limits)?;
        let facts = seen.conclude(version)?;
        let is_interim = status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS;
        let status_has_none =
            status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        self.body = match facts.framing {
            _ if is_interim => Body::NoHead,
            // Step 2: whatever the status is, 204 too.
            _ if is_tunnel => Body::UntilClose,
            // Step 1: whatever the fields say.
            _ if status_has_none || *method == Method::HEAD => Body::Framed(BodyReader::Over),
            Framing::None => Body::UntilClose,
            framing => Body::Framed(BodyReader::of_response(framing)),
        };
        let (length, keep_alive) = match &self.body {
            Body::NoHead => (Some(0), facts.keep_alive),
            Body::Framed(body) => (body.left(), facts.keep_alive),
            Body::UntilClose => (None, false),
        };
        Ok(Some((end, Received { status, fields, length, keep_alive })))
    }

    /// Reads the body behind the head that was read last. Returns how many bytes were used and what they were.
    ///
    /// # Errors
    /// The rule that the body breaks.
    pub fn read_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<(usize, BodyEvent), ResponseFault> {
        match &mut self.body {
            Body::NoHead => Ok((0, BodyEvent::End)),
            Body::Framed(body) => Ok(body.read(bytes, limits)?),
            Body::UntilClose if bytes.is_empty() => Ok((0, BodyEvent::NeedMore)),
            Body::UntilClose => Ok((bytes.len(), BodyEvent::Data { start: 0, len: bytes.len() })),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// [`ResponseFault::Incomplete`]: more was to come.
    pub fn end(&mut self) -> Result<(), ResponseFault> {
        match &self.body {
            Body::NoHead => Err(ResponseFault::Incomplete),
            Body::Framed(body) if !body.is_over() => Err(ResponseFault::Incomplete),
            Body::Framed(_) | Body::UntilClose => Ok(()),
        }
    }

    /// Fields behind a chunked body that has been read to its end.
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        match &self.body {
            Body::Framed(body) => body.trailers(),
            Body::NoHead | Body::UntilClose => &[],
        }
    }
}

/// RFC 9112 §4: version, one space, three digits, and a space with a reason behind it that nobody reads. The last
/// space is left out by many servers.
fn status_line(line: &[u8]) -> Option<(Version, StatusCode)> {
    let (version, rest) = line.split_first_chunk::<9>()?;
    let version = match version {
        b"HTTP/1.1 " => Version::Http11,
        b"HTTP/1.0 " => Version::Http10,
        _ => return None,
    };
    let (digits, reason) = rest.split_first_chunk::<3>()?;
    let reason_is_sound = match reason {
        [] => true,
        [b' ', text @ ..] => text.iter().all(|&byte| is_text_byte(byte)),
        _ => false,
    };
    let status = StatusCode::from_bytes(digits).ok()?;
    (reason_is_sound && status.as_u16() < 600).then_some((version, status))
}

type Fields = Vec<(HeaderName, HeaderValue)>;

/// The fields, and what they say about the message. `is_tunnel`: none of them says where it ends (RFC 9112 §6.3, step 2).
fn read_fields(
    head: &[u8],
    mut at: usize,
    is_tunnel: bool,
    limits: &Limits,
) -> Result<(Fields, Seen), Fault> {
    let (mut fields, mut seen) = (Vec::new(), Seen::default());
    while at + 2 < head.len() {
        let (field, next) = field_line(head, at).ok_or_else(|| line_fault(&head[at..]))?;
        if fields.len() == limits.fields_max as usize {
            return Err(Fault::TooManyFields);
        }
        let (name, value) = (field.name.of(head), field.value.of(head));
        match Known::of(name) {
            None | Some(Known::Host | Known::Expect) => {}
            Some(Known::ContentLength | Known::TransferEncoding) if is_tunnel => {}
            Some(known) => seen.note(known, value)?,
        }
        let name = HeaderName::from_bytes(name).map_err(|_| Fault::FieldNameInvalid)?;
        fields.push((name, HeaderValue::from_bytes(value).map_err(|_| Fault::FieldValueInvalid)?));
        at = next;
    }
    Ok((fields, seen))
}

#[cfg(test)]
mod tests;
