//! Reads the fields after a chunked body.

use http::{HeaderName, HeaderValue};

use crate::error::Fault;
use crate::head::{Field, Scan, field_line, line_fault};
use crate::limits::Limits;

/// Names that no trailer may have (RFC 9110 §6.5.1): they frame or route the message, authenticate or
/// condition the request, or say how its content is to be read, and all of that was decided when the head was
/// read. Sorted.
pub(super) const FORBIDDEN: &[&str] = &[
    "accept",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
];

/// Families of such names.
const FORBIDDEN_PREFIXES: &[&str] = &["content-", "if-", "x-forwarded-"];
/// Of such a family, and made to be known only when the content is over (RFC 9530 §2).
const CONTENT_DIGEST: &str = "content-digest";

/// Whether a field of this name may follow a body (RFC 9110 §6.5.1): it says nothing that has to be known before.
pub fn may_be_trailer(name: &HeaderName) -> bool {
    !is_forbidden(name.as_str())
}

/// True if `name`, in lower case, is no name for a trailer.
pub(crate) fn is_forbidden(name: &str) -> bool {
    let is_of_family = FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    FORBIDDEN.binary_search(&name).is_ok() || (is_of_family && name != CONTENT_DIGEST)
}

/// What becomes of a trailer that may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// In a request somebody wants something by it.
    IsFault,
    /// In a response it is left out, and the content is as good as without it (RFC 9112 §7.1.2).
    IsDropped,
}

/// Gathers trailers. They are copied as they come: the bytes of a body need not be kept until its end.
#[derive(Debug, Default)]
pub(crate) struct Trailers {
    bytes: Vec<u8>,
    scan: Scan,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Trailers {
    /// How many of `bytes` belong to the trailers, and whether they end there.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        forbidden: Forbidden,
    ) -> Result<(usize, bool), Fault> {
        if bytes.is_empty() {
            return Ok((0, false));
        }
        let before = self.bytes.len();
        let total_max = limits.head_bytes_max as usize;
        let space = total_max - before.min(total_max);
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(space)]);
        let found = self.scan.find_end(&self.bytes, 0, usize::MAX, total_max);
        let end = found.map_err(|fault| match fault {
            Fault::HeadTooLong => Fault::TrailersTooLong,
            fault => fault,
        })?;
        let Some(end) = end else { return Ok((bytes.len(), false)) };
        self.fields = parse(&self.bytes[..end], limits.fields_max as usize, forbidden)?;
        self.bytes = Vec::new();
        Ok((end - before, true))
    }

    pub(super) fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }
}

/// Parses a block of field lines by the same rules as those of a head.
fn parse(
    block: &[u8],
    fields_max: usize,
    forbidden: Forbidden,
) -> Result<Vec<(HeaderName, HeaderValue)>, Fault> {
    let (mut fields, mut lines, mut at) = (Vec::new(), 0, 0);
    while !block[at..].starts_with(b"\r\n") {
        if lines >= fields_max {
            return Err(Fault::TooManyTrailers);
        }
        lines += 1;
        let Some((line, next)) = field_line(block, at) else { return Err(line_fault(&block[at..])) };
        let field = field(block, line)?;
        if !is_forbidden(field.0.as_str()) {
            fields.push(field);
        } else if forbidden == Forbidden::IsFault {
            return Err(Fault::TrailerForbidden);
        }
        at = next;
    }
    Ok(fields)
}

fn field(block: &[u8], line: Field) -> Result<(HeaderName, HeaderValue), Fault> {
    let name = HeaderName::from_bytes(line.name.of(block)).map_err(|_| Fault::FieldNameInvalid)?;
    let value = HeaderValue::from_bytes(line.value.of(block)).map_err(|_| Fault::FieldValueInvalid)?;
    Ok((name, value))
}
