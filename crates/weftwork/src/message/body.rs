//! Body of a request: read at the handler's pace, within limits, from the connection's own buffer.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use weftwork_wire::Fault;

use super::exchange::Exchange;
use super::problem::Problem;
use crate::error::ErrorClass;

/// Why a body could not be read. Each variant has the status of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is larger than the limit, in bytes: 413. See [`Body::limit`] and the setting `body_bytes_max`.
    TooLarge {
        /// The exceeded limit.
        limit: u64,
    },
    /// The body paused for longer than `body_idle_timeout`, or arrived slower than `rate_bytes_min`: 408.
    Timeout,
    /// The client disconnected before the end of the body: 400, which is never seen.
    Disconnected,
    /// The framing is malformed (for example, a bad chunk). The status is that of the fault.
    Malformed(Fault),
    /// [`Body::text`] found bytes that are not UTF-8: 400.
    NotUtf8,
    /// [`Body::json`] could not parse the body: 400, with the position in the text.
    #[cfg_attr(not(feature = "json"), doc = include_str!("../links_without_json.txt"))]
    NotJson(String),
    /// The body does not match its `Content-Encoding`: 400.
    NotDecodable {
        /// The content coding.
        coding: &'static str,
    },
    /// The body expands too far when it is decompressed (a decompression bomb): 413.
    ExpansionRatio {
        /// Maximum number of bytes for each compressed byte.
        ratio_max: u64,
    },
    /// The `Content-Type` is not `multipart/form-data` with a boundary: 415.
    NotMultipart,
    /// The form is malformed or incomplete: 400, with the reason.
    MultipartMalformed(String),
    /// The form exceeds a limit: 413.
    FormLimit {
        /// The limit, a field of `MultipartLimits`.
        limit: &'static str,
        /// The value of the limit.
        value: u64,
    },
    /// A field of a form, or a file, is larger than allowed: 413. The [`Problem`](crate::Problem) names the field in
    /// the member `field`.
    FieldTooLarge {
        /// Name of the field, as the client sent it.
        field: String,
        /// The exceeded limit, in bytes.
        limit: u64,
    },
    /// The server was told to stop at once: 503.
    ShuttingDown,
    /// The response is sent [later](crate::Response::later), and the request no longer exists: 500. A handler must read
    /// what it needs of the body before it returns.
    AfterResponse,
    /// A thread waits for an [`OwnedBody`](crate::OwnedBody) within the call that has taken it: 500. The connection goes on when
    /// the handler has returned. A handler that waits itself reads [`Request::body`](super::Request::body).
    BeforeResponse,
    /// The body was already read or [taken](super::Request::take_body): to its end before [`Body::json`], or in part before
    /// `Request::multipart`. The status is 500. A middleware that reads the body must pass
    /// the data on as an extension.
    #[cfg_attr(not(feature = "json"), doc = include_str!("../links_without_json.txt"))]
    AlreadyRead,
    /// The body must be waited for, and all threads are busy (`threads_max`): 503.
    Overload,
    /// The socket failed: 400, which is never seen.
    Socket(io::ErrorKind),
}

impl BodyError {
    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            BodyError::TooLarge { .. }
            | BodyError::ExpansionRatio { .. }
            | BodyError::FormLimit { .. }
            | BodyError::FieldTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::NotMultipart => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            BodyError::Timeout => StatusCode::REQUEST_TIMEOUT,
            BodyError::Malformed(fault) => fault.status(),
            BodyError::ShuttingDown | BodyError::Overload => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::AfterResponse | BodyError::BeforeResponse | BodyError::AlreadyRead => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            BodyError::Disconnected
            | BodyError::NotUtf8
            | BodyError::NotJson(_)
            | BodyError::NotDecodable { .. }
            | BodyError::MultipartMalformed(_)
            | BodyError::Socket(_) => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            BodyError::AfterResponse | BodyError::BeforeResponse | BodyError::AlreadyRead => {
                ErrorClass::Internal
            }
            _ => ErrorClass::Client(self.status()),
        }
    }

    /// Returns the problem, if it says more than the text of the error.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let BodyError::FieldTooLarge { field, .. } = self else { return None };
        Some(Problem::new(self.status()).detail(self.to_string()).with("field", field))
    }
}

/// Formats the text for the client. It does not name settings, which are only for the log.
impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::TooLarge { limit } => {
                write!(f, "the request body is larger than the {limit} bytes that are allowed here")
            }
            BodyError::Timeout => f.write_str("the request body arrived too slowly"),
            BodyError::Disconnected => f.write_str("the client disconnected within its request body"),
            BodyError::Malformed(fault) => write!(f, "the request body is malformed: {fault}"),
            BodyError::NotUtf8 => f.write_str("the request body is not UTF-8 text"),
            BodyError::NotJson(why) => write!(f, "the request body is not the JSON that was expected: {why}"),
            BodyError::NotDecodable { coding } => write!(f, "the request body is not valid {coding}"),
            BodyError::ExpansionRatio { ratio_max } => {
                write!(f, "the request body expands more than {ratio_max}-fold")
            }
            BodyError::NotMultipart => {
                f.write_str("the request body is not multipart/form-data with a boundary")
            }
            BodyError::MultipartMalformed(why) => write!(f, "the request body is not a whole form: {why}"),
            BodyError::FormLimit { limit, value } => {
                f.write_str("the request body is a form with ")?;
                past_limit(f, limit, *value)
            }
            BodyError::FieldTooLarge { field, limit } => {
                let field = field.escape_debug();
                write!(f, "the request body is a form whose field `{field}` has more than {limit} bytes")
            }
            BodyError::ShuttingDown => f.write_str("the server is stopping"),
            BodyError::AfterResponse => f.write_str(
                "the request body is gone when a response is sent later: read it before the handler returns",
            ),
            BodyError::BeforeResponse => f.write_str(
                "an owned request body arrives after the handler has returned: read it on another thread",
            ),
            BodyError::AlreadyRead => f.write_str(
                "the request body was already read: a middleware that reads it must pass it on as an extension",
            ),
            BodyError::Overload => f.write_str("the server is too busy to wait for the request body"),
            BodyError::Socket(kind) => write!(f, "the request body could not be read: {kind}"),
        }
    }
}

/// Describes the exceeded limit to the client.
fn past_limit(f: &mut fmt::Formatter<'_>, limit: &str, value: u64) -> fmt::Result {
    match limit {
        "parts_max" => write!(f, "more than {value} parts"),
        "part_head_bytes_max" => write!(f, "more than {value} bytes before the data of a part"),
        "fields_bytes_max" => write!(f, "fields of more than {value} bytes together"),
        _ => write!(f, "more of something than is allowed: {value}"),
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> io::Error {
        let kind = match &error {
            BodyError::TooLarge { .. }
            | BodyError::ExpansionRatio { .. }
            | BodyError::FormLimit { .. }
            | BodyError::FieldTooLarge { .. } => io::ErrorKind::FileTooLarge,
            BodyError::Timeout => io::ErrorKind::TimedOut,
            BodyError::Disconnected => io::ErrorKind::UnexpectedEof,
            BodyError::Malformed(_)
            | BodyError::NotUtf8
            | BodyError::NotJson(_)
            | BodyError::NotMultipart
            | BodyError::MultipartMalformed(_)
            | BodyError::NotDecodable { .. } => io::ErrorKind::InvalidData,
            BodyError::ShuttingDown => io::ErrorKind::ConnectionAborted,
            BodyError::Overload => io::ErrorKind::ResourceBusy,
            BodyError::AfterResponse | BodyError::BeforeResponse | BodyError::AlreadyRead => {
                io::ErrorKind::Unsupported
            }
            BodyError::Socket(kind) => *kind,
        };
        io::Error::new(kind, error)
    }
}

/// Minimum space that is reserved for a body at a time.
const GROWTH_BYTES: usize = 8 << 10;

/// Limit of a body, the bytes read so far, and why no more could be read.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    pub(crate) limit: u64,
    pub(crate) taken: u64,
    /// Whether the reader has seen the end of the body.
    pub(crate) is_over: bool,
    pub(crate) failed: Option<BodyError>,
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Quota {
        Quota { limit, taken: 0, is_over: false, failed: None }
    }

    /// Returns how many bytes may still be read.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }
}

/// Body of a [`Request`](super::Request). Implements [`Read`] and [`BufRead`].
///
/// A read waits for the client if necessary. The deadlines of [`Settings`](crate::Settings) limit every wait. A client
/// that expects `100 Continue` gets it at the first read. If the handler leaves bytes unread, the connection drops
/// them, or closes if there are too many.
pub struct Body<'r> {
    exchange: &'r mut dyn Exchange,
}

impl<'r> Body<'r> {
    pub(super) fn new(exchange: &'r mut dyn Exchange) -> Body<'r> {
        Body { exchange }
    }

    /// Replaces the limit for this body, in bytes. `u64::MAX` removes the limit. Default: the setting `body_bytes_max`
    /// (2 MiB).
    #[must_use]
    pub fn limit(self, bytes: u64) -> Body<'r> {
        self.exchange.quota_mut().limit = bytes;
        self
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// Every [`BodyError`] except `NotUtf8` and `NotJson`.
    pub fn bytes(mut self) -> Result<Bytes, BodyError> {
        let expected = self.exchange.body_left().unwrap_or(0).min(self.exchange.quota().limit);
        // The declared length is only a promise. So 64 KiB are reserved at first, and more as bytes arrive.
        let mut all = Vec::with_capacity(usize::try_from(expected).unwrap_or(0).min(64 << 10));
        // The original error is returned, unchanged.
        while self.try_append_to(&mut all)? > 0 {}
        Ok(all.into())
    }

    /// Appends available bytes to `all`, after a wait if necessary. 0 means the end of the body.
    pub(super) fn append_to(&mut self, all: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.try_append_to(all).map_err(|error| self.fail(error))
    }

    fn try_append_to(&mut self, all: &mut Vec<u8>) -> Result<usize, BodyError> {
        let left = self.exchange.body_left();
        match left {
            Some(_) => self.check_length()?,
            None => self.look()?,
        }
        if all.len() == all.capacity() {
            let most = left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
            all.reserve_exact(most.min(all.len().max(GROWTH_BYTES)));
        }
        let count = self.exchange.take_into(all)?;
        let quota = self.exchange.quota_mut();
        quota.taken += count as u64;
        quota.is_over |= count == 0;
        Ok(count)
    }

    /// Reads the rest of the body as text.
    ///
    /// # Errors
    /// See [`bytes`](Body::bytes). Or [`BodyError::NotUtf8`].
    pub fn text(self) -> Result<String, BodyError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| BodyError::NotUtf8)
    }

    /// Parses the rest of the body as JSON, whatever its `Content-Type` is. Note that a page of another site can send
    /// such a body without a preflight. The argument [`Json`](crate::Json) requires a JSON type, and its problem names
    /// the invalid field.
    ///
    /// # Errors
    /// See [`bytes`](Body::bytes). Or [`BodyError::NotJson`] with line, column and cause, or [`BodyError::AlreadyRead`].
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, BodyError> {
        if self.has_been_read() && self.exchange.quota().is_over {
            return Err(BodyError::AlreadyRead);
        }
        let bytes = self.bytes()?;
        let read = super::large_stack::with_large_stack(|| serde_json::from_slice(&bytes));
        read.map_err(|error| BodyError::NotJson(error.to_string()))
    }

    pub(crate) fn part(&mut self) -> Result<&[u8], BodyError> {
        match self.look() {
            // The bytes are already in the buffer.
            Ok(()) => self.exchange.fill(),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Waits until bytes that may be read are available, or the end of the body.
    fn look(&mut self) -> Result<(), BodyError> {
        self.check_length()?;
        let left_by_limit = self.exchange.quota().left();
        let length = self.exchange.fill()?.len() as u64;
        if length > left_by_limit {
            return Err(self.refused());
        }
        self.exchange.quota_mut().is_over |= length == 0;
        Ok(())
    }

    /// Returns whether bytes or the end are available now or within `patience`.
    pub(crate) fn comes_within(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        let comes = self.check_length().and_then(|()| self.exchange.fills_within(timeout));
        comes.map_err(|error| self.fail(error))
    }

    /// If the length is known, the server does not wait for bytes above the limit.
    pub(super) fn check_length(&self) -> Result<(), BodyError> {
        let left_by_limit = self.exchange.quota().left();
        if self.exchange.body_left().is_some_and(|left| left > left_by_limit) {
            return Err(self.refused());
        }
        Ok(())
    }

    /// Returns whether a part of the body was already read.
    pub(crate) fn has_been_read(&self) -> bool {
        self.exchange.quota().taken > 0
    }

    /// Records why the body is not read to its end.
    #[cold]
    pub(crate) fn fail(&mut self, error: BodyError) -> BodyError {
        self.exchange.quota_mut().failed = Some(error.clone());
        error
    }

    #[cold]
    fn refused(&self) -> BodyError {
        let limit = self.exchange.quota().limit;
        self.log_client(format_args!(
            "a request body is larger than body_bytes_max, or a BodyLimit, allows here: {limit} bytes"
        ));
        BodyError::TooLarge { limit }
    }

    /// Logs a line about this body.
    pub(crate) fn log_client(&self, what: fmt::Arguments<'_>) {
        self.exchange.log_client(format_args!("{what}, at {}", self.exchange.request_line()));
    }

    fn used(&mut self, count: usize) {
        self.exchange.quota_mut().taken += count as u64;
        self.exchange.consume(count);
    }
}

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let part = self.part()?;
        let count = part.len().min(into.len());
        into[..count].copy_from_slice(&part[..count]);
        self.used(count);
        Ok(count)
    }
}

impl BufRead for Body<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.part()?)
    }

    fn consume(&mut self, count: usize) {
        self.used(count);
    }
}

impl fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("quota", self.exchange.quota()).finish_non_exhaustive()
    }
}
