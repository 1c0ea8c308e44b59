//! The errors of a peer, each with its code and its rule.

use std::error::Error;
use std::fmt::{Display, Formatter, Result};

use http::StatusCode;

use crate::error::Fault;

/// A code of RST_STREAM and GOAWAY (RFC 9113 §7). Unknown codes are allowed, and have no special meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

/// One line for each code: name, number, text.
macro_rules! codes {
    ($($name:ident $code:literal $text:literal)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`", $text, "`")] pub const $name: ErrorCode = ErrorCode($code);)*

            /// Returns the name that RFC 9113 gives the code, if it gives one.
            pub fn name(self) -> Option<&'static str> {
                match self { $(ErrorCode::$name => Some($text),)* _ => None }
            }
        }
    };
}

codes! {
    NO_ERROR 0x0 "NO_ERROR"
    PROTOCOL_ERROR 0x1 "PROTOCOL_ERROR"
    INTERNAL_ERROR 0x2 "INTERNAL_ERROR"
    FLOW_CONTROL_ERROR 0x3 "FLOW_CONTROL_ERROR"
    SETTINGS_TIMEOUT 0x4 "SETTINGS_TIMEOUT"
    STREAM_CLOSED 0x5 "STREAM_CLOSED"
    FRAME_SIZE_ERROR 0x6 "FRAME_SIZE_ERROR"
    REFUSED_STREAM 0x7 "REFUSED_STREAM"
    CANCEL 0x8 "CANCEL"
    COMPRESSION_ERROR 0x9 "COMPRESSION_ERROR"
    CONNECT_ERROR 0xa "CONNECT_ERROR"
    ENHANCE_YOUR_CALM 0xb "ENHANCE_YOUR_CALM"
    INADEQUATE_SECURITY 0xc "INADEQUATE_SECURITY"
    HTTP_1_1_REQUIRED 0xd "HTTP_1_1_REQUIRED"
}

impl std::fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(self, f)
    }
}

impl Display for ErrorCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// An error of the peer: the rule that was broken, and whether that ends one stream or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Http2Fault {
    /// The rule.
    pub violation: Violation,
    /// The stream. 0 means that the fault ends the connection.
    pub stream: u32,
}

impl Http2Fault {
    /// Returns a fault that ends the connection, with GOAWAY.
    #[cold]
    pub fn connection(violation: Violation) -> Http2Fault {
        Http2Fault { violation, stream: 0 }
    }

    /// Returns a fault that ends one stream, with RST_STREAM.
    #[cold]
    pub fn stream_error(stream: u32, violation: Violation) -> Http2Fault {
        Http2Fault { violation, stream }
    }

    /// Returns the code for RST_STREAM or GOAWAY.
    pub fn code(&self) -> ErrorCode {
        self.violation.code()
    }

    /// Returns the stream that the fault ends, or None if the fault ends the connection.
    pub fn stream(&self) -> Option<u32> {
        (self.stream != 0).then_some(self.stream)
    }

    /// Returns the status to answer the request with before the stream ends (RFC 9113 §8.1.1). None if the fault is
    /// not about the head of a request.
    pub fn status(&self) -> Option<StatusCode> {
        self.violation.status()
    }
}

impl Display for Http2Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.stream() {
            Some(stream) => write!(f, "Stream {stream}: {} ({})", self.violation, self.violation.rule()),
            None => write!(f, "{} ({})", self.violation, self.violation.rule()),
        }
    }
}

impl Error for Http2Fault {}

/// One line for each rule: name, code, status of the response if the fault is about a head, rule, sentence.
macro_rules! violations {
    ($($name:ident $code:ident $status:expr, $rule:literal $text:literal)*) => {
        /// A rule of HTTP/2 that a peer broke.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Violation {
            /// A rule that HTTP/1.1 has too.
            Message(Fault),
            $(#[doc = $text] $name,)*
        }

        impl Violation {
            /// Every rule that HTTP/1.1 does not have, for documentation and for tests.
            pub const ALL: &[Violation] = &[$(Violation::$name),*];

            /// Returns the code for RST_STREAM or GOAWAY.
            pub fn code(self) -> ErrorCode {
                match self {
                    // RFC 9113 §8.1.1 is about malformed messages. Requests that are refused for another reason get
                    // their response, and no error.
                    Violation::Message(fault) if fault.status() == StatusCode::BAD_REQUEST => ErrorCode::PROTOCOL_ERROR,
                    Violation::Message(_) => ErrorCode::NO_ERROR,
                    $(Violation::$name => ErrorCode::$code,)*
                }
            }

            /// Returns the status of the response, if the rule is about the head of a request.
            pub fn status(self) -> Option<StatusCode> {
                match self {
                    Violation::Message(fault) => Some(fault.status()),
                    $(Violation::$name => $status,)*
                }
            }

            /// Returns the location of the rule, such as `RFC 9113 §8.3`.
            pub fn rule(self) -> &'static str {
                match self {
                    Violation::Message(fault) => fault.rule(),
                    $(Violation::$name => $rule,)*
                }
            }
        }

        impl Display for Violation {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                match self {
                    Violation::Message(fault) => Display::fmt(fault, f),
                    $(Violation::$name => f.write_str($text),)*
                }
            }
        }
    };
}

impl From<Fault> for Violation {
    fn from(fault: Fault) -> Violation {
        Violation::Message(fault)
    }
}

/// The request is malformed, and may be told so.
const MALFORMED: Option<StatusCode> = Some(StatusCode::BAD_REQUEST);

violations! {
    PrefaceInvalid PROTOCOL_ERROR None, "RFC 9113 §3.4"
        "The connection does not start with the preface of HTTP/2."
    SettingsExpected PROTOCOL_ERROR None, "RFC 9113 §3.4"
        "The first frame is not SETTINGS."
    FrameTooLarge FRAME_SIZE_ERROR None, "RFC 9113 §4.2"
        "A frame is larger than SETTINGS_MAX_FRAME_SIZE."
    FrameSizeInvalid FRAME_SIZE_ERROR None, "RFC 9113 §4.2"
        "A frame has a length that its type does not allow."
    PaddingTooLong PROTOCOL_ERROR None, "RFC 9113 §6.1"
        "The padding of a frame is longer than the frame."
    StreamMissing PROTOCOL_ERROR None, "RFC 9113 §6"
        "A frame that belongs to a stream is on stream 0."
    StreamNotAllowed PROTOCOL_ERROR None, "RFC 9113 §6"
        "A frame that concerns the connection is on a stream."
    StreamIdle PROTOCOL_ERROR None, "RFC 9113 §5.1"
        "A frame is on a stream that was not opened."
    StreamIdInvalid PROTOCOL_ERROR None, "RFC 9113 §5.1.1"
        "A stream that the peer opens has an even number, or a lower number than an earlier stream."
    StreamClosed STREAM_CLOSED None, "RFC 9113 §5.1"
        "A frame is on a stream that the peer has ended."
    StreamsTooMany REFUSED_STREAM None, "RFC 9113 §5.1.2"
        "The peer opens more streams than SETTINGS_MAX_CONCURRENT_STREAMS allows."
    BlockInterrupted PROTOCOL_ERROR None, "RFC 9113 §4.3"
        "A field block is interrupted by another frame."
    ContinuationUnexpected PROTOCOL_ERROR None, "RFC 9113 §6.10"
        "A CONTINUATION frame does not continue a field block."
    ContinuationEmpty ENHANCE_YOUR_CALM None, "RFC 9113 §10.5"
        "A CONTINUATION frame is empty."
    ContinuationsTooMany ENHANCE_YOUR_CALM None, "RFC 9113 §10.5"
        "A field block is cut into too many frames."
    BlockTooLarge ENHANCE_YOUR_CALM None, "RFC 9113 §10.5.1"
        "A field block is far larger than SETTINGS_MAX_HEADER_LIST_SIZE."
    BlockInvalid COMPRESSION_ERROR None, "RFC 9113 §4.3"
        "A field block cannot be decompressed."
    PushNotAllowed PROTOCOL_ERROR None, "RFC 9113 §8.4"
        "The peer pushes, which it must not."
    SettingInvalid PROTOCOL_ERROR None, "RFC 9113 §6.5.2"
        "A setting has a value that it cannot have."
    WindowSettingInvalid FLOW_CONTROL_ERROR None, "RFC 9113 §6.5.2"
        "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31-1."
    SettingsTooMany ENHANCE_YOUR_CALM None, "RFC 9113 §10.5"
        "A SETTINGS frame has too many settings."
    WindowIncrementZero PROTOCOL_ERROR None, "RFC 9113 §6.9"
        "A WINDOW_UPDATE adds nothing."
    WindowTooLarge FLOW_CONTROL_ERROR None, "RFC 9113 §6.9.1"
        "A flow-control window grows above 2^31-1."
    WindowExceeded FLOW_CONTROL_ERROR None, "RFC 9113 §6.9"
        "The peer sends more than the flow-control window allows."
    BudgetSpent ENHANCE_YOUR_CALM None, "RFC 9113 §10.5"
        "The peer makes too much work that leads to no response."

    PseudoFieldUnknown PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3"
        "A pseudo-field has a name that is not defined here."
    PseudoFieldRepeated PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3"
        "A pseudo-field is given more than once."
    PseudoFieldLate PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3"
        "A pseudo-field follows a field."
    PseudoFieldMissing PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3.1"
        "A pseudo-field that the message needs is missing."
    PseudoFieldNotAllowed PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.5"
        "A pseudo-field is given that the message must not have."
    StatusInvalid PROTOCOL_ERROR None, "RFC 9113 §8.3.2"
        "The status is not a number from 100 to 599, or is 101, or ends a stream although it is interim."
    SchemeUnknown PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3.1"
        "The scheme is neither `http` nor `https`."
    HostDiffers PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.3.1"
        "The Host field and `:authority` name different hosts."
    FieldNameUpperCase PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.2.1"
        "A field name holds an upper-case letter."
    FieldValuePadded PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.2.1"
        "A field value starts or ends with white space."
    ConnectionField PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.2.2"
        "A field is given that concerns a connection of HTTP/1.1."
    TeInvalid PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.2.2"
        "The TE field is not `trailers`."
    ContentLengthDiffers PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.1.1"
        "The body does not have the length that Content-Length declares."
    TrailersNotLast PROTOCOL_ERROR MALFORMED, "RFC 9113 §8.1"
        "A second head is given that does not end the message."
    TrailersNotAllowed PROTOCOL_ERROR None, "RFC 9113 §8.5"
        "A tunnel has trailers."
}
