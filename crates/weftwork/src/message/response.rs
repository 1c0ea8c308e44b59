//! A response made of typed parts, so that no text can split it.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::deferred::Deferred;
use super::drop_caught::{Guarded, GuardedExtensions};
use super::feed::Feed;
use super::handler_error::HandlerError;
use super::headers::converted;
use super::upgrade::{IdlePolicy, UpgradeFn, UpgradeHandler};
use super::writer::BodyWriter;
use crate::error::{Error, Result};

/// Printable characters that are invalid in a URL (RFC 3986 section 2). Characters beyond ASCII are invalid too.
const NOT_IN_URLS: &AsciiSet = &AsciiSet::EMPTY
    .add(b'\t')
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Writes a streamed body.
pub(crate) type Stream = Box<dyn FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send>;

/// Body of a response.
pub(crate) enum Payload {
    Empty,
    Bytes(Bytes),
    /// `count` bytes of a file from `offset`. The engine sends them after the handler has returned.
    File {
        file: Arc<File>,
        offset: u64,
        count: u64,
        /// The bytes, if they are in memory and few enough to copy.
        read: Option<Bytes>,
    },
    /// Parts in sequence. No part is empty.
    Parts(Vec<BodyPart>),
    Stream(Stream),
    LongLived(Box<LongLived>),
    /// An error of the server, and the response for the client.
    HandlerError(Box<HandlerError>),
}

/// Work that continues after the handler has returned.
pub(crate) enum LongLived {
    /// The response itself is sent later.
    Deferred(Deferred),
    /// A body that other threads send.
    Feed(Feed),
    /// An upgraded protocol, on a thread or a fiber of its own.
    Upgrade(UpgradeFn),
    /// An upgraded protocol without a thread.
    FeedUpgrade(Feed, Guarded<Box<dyn UpgradeHandler>>, IdlePolicy),
}

impl LongLived {
    pub(crate) fn is_other_protocol(&self) -> bool {
        matches!(self, LongLived::Upgrade(_) | LongLived::FeedUpgrade(..))
    }
}

/// A part of a body that is known before it is sent.
#[derive(Debug)]
pub(crate) enum BodyPart {
    Bytes(Bytes),
    File { file: Arc<File>, offset: u64, count: u64 },
}

impl BodyPart {
    pub(crate) fn count(&self) -> u64 {
        match self {
            BodyPart::Bytes(bytes) => bytes.len() as u64,
            BodyPart::File { count, .. } => *count,
        }
    }
}

/// A response: a status, headers and a body.
///
/// The connection writes `Date`, `Content-Length` or `Transfer-Encoding`, and `Connection`.
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) payload: Payload,
    pub(crate) extensions: GuardedExtensions,
    pub(crate) close: bool,
    pub(crate) declined: bool,
}

/// Returns a response with `text` as `text/plain; charset=utf-8`.
pub fn text(text: impl Into<Bytes>) -> Response {
    Response::text(text)
}

/// Returns a response with `page` as `text/html; charset=utf-8`.
pub fn html(page: impl Into<Bytes>) -> Response {
    Response::html(page)
}

impl Response {
    /// Returns an empty response with `status`.
    pub fn new(status: StatusCode) -> Response {
        Response {
            status,
            content_type: None,
            fields: Vec::new(),
            payload: Payload::Empty,
            extensions: GuardedExtensions::default(),
            close: false,
            declined: false,
        }
    }

    /// Passes the request on. A router tries the next handler that matches the path, then its fallback. If there is no
    /// other handler, the response is 404 with a [`Problem`](crate::Problem).
    pub fn decline() -> Response {
        Response::declined()
    }

    /// Returns 200 with `text/plain; charset=utf-8`.
    pub fn text(text: impl Into<Bytes>) -> Response {
        Response::with_bytes(text.into(), TEXT)
    }

    /// Returns 200 with `text/html; charset=utf-8`.
    pub fn html(page: impl Into<Bytes>) -> Response {
        Response::with_bytes(page.into(), HTML)
    }

    /// Returns 200 with `application/octet-stream`. See [`with_content_type`](Response::with_content_type).
    pub fn bytes(bytes: impl Into<Bytes>) -> Response {
        Response::with_bytes(bytes.into(), OCTETS)
    }

    pub(super) fn with_bytes(bytes: Bytes, content_type: HeaderValue) -> Response {
        // Not derived from an empty response, because dropping the replaced parts would cost a call.
        Response {
            status: StatusCode::OK,
            content_type: Some(content_type),
            fields: Vec::new(),
            payload: Payload::Bytes(bytes),
            extensions: GuardedExtensions::default(),
            close: false,
            declined: false,
        }
    }

    /// Returns 200 with the content of `file` as `application/octet-stream`. The engine sends it after the handler has
    /// returned, without a copy through this process if the system supports that. A slow client holds no thread.
    ///
    /// # Errors
    /// The length of the file cannot be read, or it is not a regular file.
    pub fn file(file: File) -> Result<Response> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::internal("only a regular file can be sent"));
        }
        let payload = Payload::File { file: Arc::new(file), offset: 0, count: metadata.len(), read: None };
        Ok(Response { content_type: Some(OCTETS), payload, ..Response::new(StatusCode::OK) })
    }

    /// Returns 200 with a body that `write` produces in pieces. The head is sent with the first piece.
    ///
    /// HTTP/1.1 clients get the body in chunks. HTTP/1.0 clients get it until the connection closes. A `Content-Length`
    /// field declares the length. If `write` produces another length, the connection closes.
    ///
    /// An error from `write` also closes the connection, so that the client can tell that the body is incomplete.
    /// Before the first piece, an error becomes a response as in any handler: 500, or the [`Problem`](crate::Problem)
    /// in it. Convert errors of other types with `.map_err(io::Error::other)?`.
    ///
    /// ```
    /// use std::io::Write;
    /// use weftwork::Response;
    /// let answer = Response::stream(|out| {
    ///     for line in 0..1000 {
    ///         writeln!(out, "line {line}")?;
    ///     }
    ///     Ok(())
    /// });
    /// ```
    pub fn stream(write: impl FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send + 'static) -> Response {
        // Middleware may panic while it has the response, and then drops what `write` has captured.
        let mut write = Guarded::new(write);
        Response {
            content_type: Some(OCTETS),
            payload: Payload::Stream(Box::new(move |out| write.take().map_or(Ok(()), |write| write(out)))),
            ..Response::new(StatusCode::OK)
        }
    }

    /// Returns 303 to `location`, which the client requests with GET. Characters that a URL has only percent-encoded
    /// are encoded: spaces and characters beyond ASCII.
    ///
    /// # Errors
    /// `location` contains a character that is invalid in a field value.
    pub fn redirect(location: &str) -> Result<Response> {
        let encoded = utf8_percent_encode(location, NOT_IN_URLS).to_string();
        Response::new(StatusCode::SEE_OTHER).try_with_header(header::LOCATION, encoded)
    }

    /// Replaces the status. See [`set_status`](Response::set_status).
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.set_status(status);
        self
    }

    /// Replaces the `Content-Type`: `.with_content_type("text/csv")`. Types and faults are those of
    /// [`with_header`](Response::with_header).
    #[must_use]
    #[track_caller]
    pub fn with_content_type<V>(self, value: V) -> Response
    where
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.with_header(header::CONTENT_TYPE, value)
    }

    /// Sets a header, and replaces existing headers of that name. Name and value are text, a number, or the types of
    /// [`http`].
    ///
    /// If the text is not valid (a control character in the value, for example), the response becomes a 500, and the log
    /// says which header. If the value comes from outside, [`try_with_header`](Response::try_with_header) returns that error.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// let response = text("tea").with_header("cache-control", "no-store").with_header(header::AGE, 7);
    /// let response = response.with_appended_header("link", "</a>").with_appended_header("link", "</b>");
    /// assert_eq!(response.headers().get_all("link").iter().count(), 2);
    /// assert_eq!(text("tea").with_header("x-tea", "\n").status(), 500);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_header<N, V>(mut self, name: N, value: V) -> Response
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.set_header(name, value);
        self
    }

    /// Adds a header like [`with_header`](Response::with_header), and existing headers of that name stay (except
    /// `Content-Type`). Use it for `Set-Cookie`, `Link` or `Vary`.
    #[must_use]
    #[track_caller]
    pub fn with_appended_header<N, V>(mut self, name: N, value: V) -> Response
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.append_header(name, value);
        self
    }

    /// Sets a header like [`with_header`](Response::with_header), for values from outside: `.try_with_header("x-key", value)?`.
    ///
    /// # Errors
    /// The name is not a token, or the value contains a CR, LF, NUL or another control character.
    #[track_caller]
    pub fn try_with_header<N, V>(self, name: N, value: V) -> Result<Response>
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let (name, value) = converted(name, value)?;
        Ok(self.with_header(name, value))
    }

    /// Closes the connection after this response.
    #[must_use]
    pub fn with_close(self) -> Response {
        Response { close: true, ..self }
    }

    /// Marks a [feed](Response::feed) or a [later](Response::later) response as one that has no end of its own. When the
    /// server stops, such a response ends in good order: a feed sends the messages that wait, its
    /// [final message](crate::Feed::with_final_message) and its end, and a later response is replaced by its alternative, at
    /// once. Many feeds end one after another (see [`drain_timeout`](crate::Settings::drain_timeout)). Responses without this mark count as requests in flight until
    /// [`drain_timeout`](crate::Settings::drain_timeout). A client that closes its sending side counts as gone here.
    ///
    /// Event streams and hubs are endless. Other responses do not change.
    ///
    /// ```
    /// use weftwork::{Feed, FeedLimits, Response};
    /// let (sender, feed) = Feed::new(FeedLimits::default());
    /// let response = Response::feed(feed).endless();      // a ticker
    /// # drop((sender, response));
    /// ```
    #[must_use]
    pub fn endless(mut self) -> Response {
        if let Payload::LongLived(lasting) = &mut self.payload {
            match &mut **lasting {
                LongLived::Deferred(later) => later.is_endless = true,
                LongLived::Feed(feed) => feed.is_endless = true,
                LongLived::Upgrade(_) | LongLived::FeedUpgrade(..) => {}
            }
        }
        self
    }

    /// Returns whether the response is from [`decline`](Response::decline), and no status, body or `Content-Type` was
    /// set since. Setting one of them makes it a response, so that no other handler is asked. Other headers have no
    /// effect here.
    pub fn is_declined(&self) -> bool {
        self.declined
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers that were set, except `Content-Type`: name and value, in order.
    pub fn header_lines(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }

    /// Returns the `Content-Type`.
    pub fn content_type(&self) -> Option<&HeaderValue> {
        self.content_type.as_ref()
    }
}

impl Default for Response {
    /// Returns an empty response with 200.
    fn default() -> Response {
        Response::new(StatusCode::OK)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = match &self.payload {
            Payload::Empty => "empty".to_owned(),
            Payload::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Payload::File { count, .. } => format!("{count} bytes of a file"),
            Payload::Parts(parts) => format!("{} parts", parts.len()),
            Payload::Stream(_) => "a stream".to_owned(),
            Payload::HandlerError(_) => "an error".to_owned(),
            Payload::LongLived(long_lived) => match **long_lived {
                LongLived::Deferred(_) => "to come later".to_owned(),
                LongLived::Feed(_) => "a feed".to_owned(),
                LongLived::Upgrade(_) | LongLived::FeedUpgrade(..) => "another protocol".to_owned(),
            },
        };
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("fields", &self.fields)
            .field("payload", &payload)
            .finish()
    }
}
