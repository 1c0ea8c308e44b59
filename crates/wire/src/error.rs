//! The errors of a message: who caused them, the rule that was broken, and the status.

use std::error::Error;
use std::fmt::{Display, Formatter, Result};

use http::StatusCode;

use crate::state::{WriteEvent, Writing};

/// One line for each fault: name, status, rule, sentence. Everything else about faults is derived from these lines.
macro_rules! faults {
    ($($name:ident $status:ident $rule:literal $text:literal)*) => {
        /// An error of the peer. Each variant is one broken rule. The server answers with [`Fault::status`], and
        /// closes the connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault { $(#[doc = $text] $name,)* }

        impl Fault {
            /// Every fault there is, for documentation and for tests.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            /// The status to answer with.
            pub fn status(self) -> StatusCode {
                match self { $(Fault::$name => StatusCode::$status,)* }
            }

            /// The location of the rule, such as `RFC 9112 §6.3`.
            pub fn rule(self) -> &'static str {
                match self { $(Fault::$name => $rule,)* }
            }

            fn text(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    TlsInsteadOfHttp BAD_REQUEST "RFC 9112 §3"
        "The client speaks TLS, and this port speaks plain HTTP."
    RequestDoesNotStartWithMethod BAD_REQUEST "RFC 9112 §3"
        "The first byte cannot start a method, so this is no HTTP request."
    EmptyLinesBeforeRequest BAD_REQUEST "RFC 9112 §2.2"
        "More than one empty line stands before the request line."
    BareLineFeed BAD_REQUEST "RFC 9112 §2.2"
        "A line feed has no carriage return before it."
    BareCarriageReturn BAD_REQUEST "RFC 9112 §2.2"
        "A carriage return has no line feed after it."
    TargetTooLong URI_TOO_LONG "RFC 9112 §3"
        "The request line is too long."
    HeadTooLong REQUEST_HEADER_FIELDS_TOO_LARGE "RFC 6585 §5"
        "The head is too long."
    TooManyFields REQUEST_HEADER_FIELDS_TOO_LARGE "RFC 6585 §5"
        "The head has too many field lines."

    RequestLineMalformed BAD_REQUEST "RFC 9112 §3"
        "The request line is not a method, a target and a version with one space between them."
    MethodNotAToken BAD_REQUEST "RFC 9112 §3.1"
        "The method holds a byte that no token may hold."
    VersionMalformed BAD_REQUEST "RFC 9112 §2.3"
        "The request line does not end in a version such as `HTTP/1.1`."
    VersionNotSupported HTTP_VERSION_NOT_SUPPORTED "RFC 9110 §15.6.6"
        "The version is neither HTTP/1.1 nor HTTP/1.0."
    TargetByteNotAllowed BAD_REQUEST "RFC 3986 §3.3"
        "The target holds a byte that must be percent-encoded or that starts a fragment."
    PercentEncodingMalformed BAD_REQUEST "RFC 3986 §2.1"
        "A percent sign is not followed by two hexadecimal digits."
    TargetFormUnknown BAD_REQUEST "RFC 9112 §3.2"
        "The target starts with neither a slash nor `http://` nor `https://`."
    AsteriskWithoutOptions BAD_REQUEST "RFC 9112 §3.2.4"
        "The target `*` goes with the method OPTIONS only."
    ConnectWithoutAuthority BAD_REQUEST "RFC 9112 §3.2.3"
        "The target of CONNECT is not a host, a colon and a port."
    AuthorityInvalid BAD_REQUEST "RFC 9110 §4.2"
        "The authority in the target is not a host with an optional port."

    LineFolding BAD_REQUEST "RFC 9112 §5.2"
        "A line starts with white space, as folded field lines once did."
    FieldWithoutColon BAD_REQUEST "RFC 9112 §5"
        "A field line has no colon."
    SpaceBeforeColon BAD_REQUEST "RFC 9112 §5.1"
        "White space stands between a field name and its colon."
    FieldNameInvalid BAD_REQUEST "RFC 9110 §5.1"
        "A field name is empty or holds a byte that no token may hold."
    FieldValueInvalid BAD_REQUEST "RFC 9110 §5.5"
        "A field value holds a control character."
    HostMissing BAD_REQUEST "RFC 9112 §3.2"
        "An HTTP/1.1 request needs a Host field."
    HostRepeated BAD_REQUEST "RFC 9112 §3.2"
        "There is more than one Host field."
    HostEmpty BAD_REQUEST "RFC 9112 §3.3"
        "The Host field is empty, and the target needs an authority."
    HostInvalid BAD_REQUEST "RFC 9112 §3.2"
        "The Host field is not a host with an optional port."

    ContentLengthInvalid BAD_REQUEST "RFC 9112 §6.3"
        "Content-Length is not a number in decimal digits."
    ContentLengthTooLarge BAD_REQUEST "RFC 9110 §8.6"
        "Content-Length does not fit in 64 bits."
    ContentLengthRepeated BAD_REQUEST "RFC 9112 §6.3"
        "Content-Length is given more than once."
    ContentLengthAndTransferEncoding BAD_REQUEST "RFC 9112 §6.1"
        "Content-Length and Transfer-Encoding are both given."
    TransferEncodingInHttp10 BAD_REQUEST "RFC 9112 §6.1"
        "An HTTP/1.0 message has a Transfer-Encoding."
    TransferEncodingMalformed BAD_REQUEST "RFC 9112 §6.1"
        "Transfer-Encoding is not a list of codings without parameters."
    TransferCodingUnknown NOT_IMPLEMENTED "RFC 9112 §6.1"
        "Transfer-Encoding names a coding other than chunked."
    ChunkedNotLast BAD_REQUEST "RFC 9112 §6.3"
        "The transfer coding chunked is not the last one."
    ChunkedRepeated BAD_REQUEST "RFC 9112 §6.1"
        "The transfer coding chunked is given more than once."
    ConnectionInvalid BAD_REQUEST "RFC 9110 §7.6.1"
        "The Connection field is not a list of tokens."
    ExpectationUnknown EXPECTATION_FAILED "RFC 9110 §10.1.1"
        "The Expect field asks for something other than `100-continue`."

    ChunkSizeInvalid BAD_REQUEST "RFC 9112 §7.1"
        "A chunk does not start with its size in hexadecimal digits."
    ChunkSizeTooLong BAD_REQUEST "RFC 9112 §7.1"
        "A chunk size has more than 16 digits."
    ChunkExtensionInvalid BAD_REQUEST "RFC 9112 §7.1.1"
        "A chunk extension is not `;name`, `;name=token` or `;name=\"text\"` without white space around."
    ChunkExtensionsTooLong PAYLOAD_TOO_LARGE "RFC 9112 §7.1.1"
        "The chunk extensions of the body are too long."
    ChunkEndMissing BAD_REQUEST "RFC 9112 §7.1"
        "The data of a chunk is not followed by CRLF."
    TrailersTooLong REQUEST_HEADER_FIELDS_TOO_LARGE "RFC 6585 §5"
        "The trailers are too long."
    TooManyTrailers REQUEST_HEADER_FIELDS_TOO_LARGE "RFC 6585 §5"
        "The trailers have too many field lines."
    TrailerForbidden BAD_REQUEST "RFC 9110 §6.5.1"
        "A trailer has a name that frames, routes, authenticates or describes the message."
}

impl Fault {
    /// The limit that was passed, if it was one.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Fault::TargetTooLong => Some("request_line_bytes_max"),
            Fault::HeadTooLong | Fault::TrailersTooLong => Some("head_bytes_max"),
            Fault::TooManyFields | Fault::TooManyTrailers => Some("fields_max"),
            Fault::ChunkExtensionsTooLong => Some("chunk_extension_bytes_max"),
            _ => None,
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.text())
    }
}

impl Error for Fault {}

/// An error of the caller. A call that returns this error has written nothing, except
/// [`Http1::write_response`](crate::Http1::write_response) with a body of another length. That call has written its
/// head, and a body that is too short. The connection is still in step with its peer, or will be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// The call does not fit what has been written so far.
    OutOfTurn {
        /// The state of the response.
        at: Writing,
        /// The call.
        on: WriteEvent,
    },
    /// More body bytes than the head declared. None of this call's body bytes was written.
    TooManyBytes,
    /// The body ended before all bytes that the head declared. The connection must be closed at once. Otherwise the
    /// client does not notice (RFC 9112 §8).
    TooFewBytes,
    /// A given Content-Length is not decimal, is given twice, or is not the length of the body.
    ContentLengthInvalid,
    /// A Content-Length with a status that must not have one (RFC 9110 §8.6).
    ContentLengthForbidden,
    /// A Transfer-Encoding was given: the codec alone decides on it.
    TransferEncodingGiven,
    /// A given Connection field is not a list of tokens.
    ConnectionInvalid,
    /// A status that cannot be sent by this call: an interim one as the final one, or the other way round.
    StatusNotAllowed,
    /// 101 for a request that did not ask for that protocol, or from a call that cannot know. Also 101, or the start
    /// of a tunnel, before the body of the request was read.
    UpgradeNotPossible,
    /// An interim response without a request that it could belong to.
    InterimWithoutRequest,
    /// Bytes were sent past the codec in a body whose length was not declared.
    BypassWithoutLength,
    /// Trailers after a body of declared length, where they cannot be sent (RFC 9112 §7.1.2).
    TrailersWithoutChunks,
    /// A trailer has a name that no trailer may have (RFC 9110 §6.5.1).
    TrailerForbidden,
}

impl Display for Misuse {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Misuse::OutOfTurn { at, on } => return write!(f, "{on} is out of turn: {at}."),
            Misuse::TooManyBytes => "The body is longer than its head declared.",
            Misuse::TooFewBytes => "The body is shorter than its head declared.",
            Misuse::ContentLengthInvalid => "The given Content-Length is not the length of the body.",
            Misuse::ContentLengthForbidden => "A response with this status has no Content-Length.",
            Misuse::TransferEncodingGiven => "Transfer-Encoding is for the server to choose.",
            Misuse::ConnectionInvalid => "The given Connection field is not a list of tokens.",
            Misuse::StatusNotAllowed => "The status does not fit the kind of response.",
            Misuse::UpgradeNotPossible => {
                "The request did not ask for that protocol, or its body is still unread."
            }
            Misuse::InterimWithoutRequest => "There is no request that an interim response could belong to.",
            Misuse::BypassWithoutLength => "Only a body of declared length can be sent past the codec.",
            Misuse::TrailersWithoutChunks => "A body of declared length cannot have trailers.",
            Misuse::TrailerForbidden => "A trailer has a name that no trailer may have.",
        })
    }
}

impl Error for Misuse {}

#[cfg(test)]
mod tests;
