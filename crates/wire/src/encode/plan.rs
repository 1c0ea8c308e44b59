//! Decides whether a response may be sent to a request, and how its body is delimited.

use http::{HeaderName, HeaderValue, StatusCode};

use super::{BodyLength, Delimiter, ResponseHead};
use crate::body::is_forbidden;
use crate::error::Misuse;
use crate::grammar::{decimal, elements, is_token};
use crate::head::{Head, Version};

/// Properties of the request on which the response depends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    pub(crate) is_connect: bool,
    /// Its body is read: what follows may be another protocol.
    pub(crate) is_read: bool,
    /// The request asks for the protocol that this response switches to.
    pub(crate) can_switch: bool,
}

/// Decisions about a head.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) delimiter: Delimiter,
    pub(crate) content_length: Option<u64>,
    /// The connection cannot persist.
    pub(crate) close: bool,
    /// Another protocol follows the head.
    pub(crate) switches: bool,
    pub(crate) date_given: bool,
    pub(crate) last_modified_given: bool,
    pub(crate) content_type_given: bool,
    pub(crate) connection_given: bool,
}

/// Contents of the given fields that the codec needs.
#[derive(Default)]
struct Given {
    content_length: Option<u64>,
    content_type: bool,
    date: bool,
    last_modified: bool,
    connection: bool,
    close: bool,
}

#[inline(always)]
pub(crate) fn plan(head: &ResponseHead<'_>, request: Request) -> Result<Plan, Misuse> {
    // Most that are not written plain: nothing below has a say in them.
    if head.fields.is_empty() && head.status == StatusCode::OK && !request.is_head && !request.is_connect {
        let mut plan = Plan::default();
        plan.delimit(head.length.known(), request.version);
        return Ok(plan);
    }
    plan_any(head, request)
}

#[inline(never)]
fn plan_any(head: &ResponseHead<'_>, request: Request) -> Result<Plan, Misuse> {
    let given = Given::in_fields(head.fields)?;
    let mut plan = Plan {
        close: given.close,
        date_given: given.date,
        last_modified_given: given.last_modified,
        content_type_given: given.content_type,
        connection_given: given.connection,
        ..Plan::default()
    };
    match (head.length, given.content_length) {
        (BodyLength::Exact(0), Some(_)) if request.is_head || head.status == StatusCode::NOT_MODIFIED => {}
        (BodyLength::Exact(exact), Some(given)) if exact != given => {
            return Err(Misuse::ContentLengthInvalid);
        }
        _ => {}
    }
    let known = given.content_length.or(head.length.known());
    match head.status {
        StatusCode::SWITCHING_PROTOCOLS if request.can_switch && request.is_read => plan.switches = true,
        StatusCode::SWITCHING_PROTOCOLS => return Err(Misuse::UpgradeNotPossible),
        status if status.is_informational() => return Err(Misuse::StatusNotAllowed),
        // RFC 9112 §6.3, step 2: the tunnel starts right after the head. What is left of the request would be its first
        // bytes.
        status if request.is_connect && status.is_success() && !request.is_read => {
            return Err(Misuse::UpgradeNotPossible);
        }
        status if request.is_connect && status.is_success() => plan.switches = true,
        StatusCode::NO_CONTENT => {}
        // RFC 9110 §15.3.6: no content, and a length that says so.
        StatusCode::RESET_CONTENT => plan.content_length = Some(0),
        // RFC 9110 §15.4.5: the length of the representation, if it is known. An empty body says nothing
        // about it.
        StatusCode::NOT_MODIFIED => plan.content_length = known.filter(|&length| length > 0),
        // RFC 9110 §9.3.2: the length that GET would have given.
        _ if request.is_head => plan.content_length = known,
        _ => plan.delimit(known, request.version),
    }
    // RFC 9110 §8.6
    if (plan.switches || head.status == StatusCode::NO_CONTENT) && given.content_length.is_some() {
        return Err(Misuse::ContentLengthForbidden);
    }
    Ok(plan)
}

impl BodyLength {
    fn known(self) -> Option<u64> {
        match self {
            BodyLength::Exact(length) => Some(length),
            BodyLength::Unknown => None,
        }
    }
}

impl Plan {
    #[inline]
    fn delimit(&mut self, length: Option<u64>, version: Version) {
        self.content_length = length;
        self.delimiter = match (length, version) {
            (Some(length), _) => Delimiter::Length(length),
            // HTTP/2: until the stream ends.
            (None, Version::Http11 | Version::Http2) => Delimiter::Chunked,
            (None, Version::Http10) => Delimiter::Close,
        };
        self.close |= self.delimiter == Delimiter::Close;
    }
}

impl Given {
    fn in_fields(fields: &[(HeaderName, HeaderValue)]) -> Result<Given, Misuse> {
        let mut given = Given::default();
        for (name, value) in fields {
            match name.as_str() {
                "date" => given.date = true,
                "last-modified" => given.last_modified = true,
                "content-type" => given.content_type = true,
                "connection" => given.note_connection(value.as_bytes())?,
                // It is named there, too.
                "upgrade" => given.connection = true,
                "content-length" => given.note_content_length(value.as_bytes())?,
                "transfer-encoding" => return Err(Misuse::TransferEncodingGiven),
                _ => {}
            }
        }
        Ok(given)
    }

    fn note_content_length(&mut self, value: &[u8]) -> Result<(), Misuse> {
        let length = decimal(value).map_err(|_| Misuse::ContentLengthInvalid)?;
        match self.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Misuse::ContentLengthInvalid),
        }
    }

    fn note_connection(&mut self, value: &[u8]) -> Result<(), Misuse> {
        self.connection = true;
        for option in elements(value).filter(|option| !option.is_empty()) {
            if !is_token(option) {
                return Err(Misuse::ConnectionInvalid);
            }
            self.close |= option.eq_ignore_ascii_case(b"close");
        }
        Ok(())
    }
}

/// Returns whether these fields of a response name a protocol, and only protocols that the request asks for (RFC 9110
/// §7.8). The head of the request was read from `bytes`.
pub(crate) fn is_requested(fields: &[(HeaderName, HeaderValue)], request_head: &Head, bytes: &[u8]) -> bool {
    let lines =
        || request_head.fields.iter().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(b"upgrade"));
    let is_in_request = |protocol: &[u8]| {
        lines()
            .flat_map(|line| elements(line.value.of(bytes)))
            .any(|requested| requested.eq_ignore_ascii_case(protocol))
    };
    let mut named = (fields.iter().filter(|(name, _)| name == http::header::UPGRADE))
        .flat_map(|(_, value)| elements(value.as_bytes()))
        .filter(|protocol| !protocol.is_empty())
        .peekable();
    named.peek().is_some() && named.all(is_in_request)
}

/// May this interim response be sent? It has no content (RFC 9110 §15.2).
pub(crate) fn interim(status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> Result<(), Misuse> {
    // RFC 9110 §15.2: a proxy passes on what it does not know, too.
    if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Misuse::StatusNotAllowed);
    }
    match Given::in_fields(fields)?.content_length {
        None => Ok(()),
        Some(_) => Err(Misuse::ContentLengthForbidden),
    }
}

/// May these trailers be sent after a body that was delimited so?
pub(crate) fn trailers(delimiter: Delimiter, trailers: &[(HeaderName, HeaderValue)]) -> Result<(), Misuse> {
    if trailers.iter().any(|(name, _)| is_forbidden(name.as_str())) {
        return Err(Misuse::TrailerForbidden);
    }
    match delimiter {
        Delimiter::Length(_) if !trailers.is_empty() => Err(Misuse::TrailersWithoutChunks),
        // To HTTP/1.0 and in answers to HEAD they are dropped: what a handler may do should not depend on its
        // client.
        Delimiter::Length(_) | Delimiter::Chunked | Delimiter::Close | Delimiter::NoBody => Ok(()),
    }
}
