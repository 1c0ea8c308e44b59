//! A response, made of typed parts so that no text can split it.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::failed::Failed;
use super::feed::Feed;
use super::later::Later;
use super::upgrade::{Receive, Silence, Take};
use super::writer::BodyWriter;
use crate::error::{Error, Result};

/// Printable, and in no URL (RFC 3986 section 2); nor are letters beyond ASCII.
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

/// What follows a response's head.
pub(crate) enum Payload {
    Empty,
    Bytes(Bytes),
    /// `count` bytes of a file from `offset`, sent by the engine when the handler is long done.
    File {
        file: Arc<File>,
        offset: u64,
        count: u64,
        /// The same bytes, where somebody has them in memory, and they are few enough to be copied.
        read: Option<Bytes>,
    },
    /// One behind the other; none of them is empty.
    Parts(Vec<Part>),
    Stream(Stream),
    Lasting(Box<Lasting>),
    /// An error of ours, and what the client is told in its place.
    Failed(Box<Failed>),
}

/// What goes on when the handler is done.
pub(crate) enum Lasting {
    /// Nothing is sent yet: the response itself comes later.
    Later(Later),
    /// A body that other threads bring.
    Feed(Feed),
    /// Another protocol, on a thread or a fiber of its own.
    Take(Take),
    /// Another protocol, without a thread.
    Fed(Feed, Box<dyn Receive>, Silence),
}

impl Lasting {
    pub(crate) fn is_other_protocol(&self) -> bool {
        matches!(self, Lasting::Take(_) | Lasting::Fed(..))
    }
}

/// A piece of a body that is known before it is sent.
#[derive(Debug)]
pub(crate) enum Part {
    Bytes(Bytes),
    File { file: Arc<File>, offset: u64, count: u64 },
}

impl Part {
    pub(crate) fn count(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File { count, .. } => *count,
        }
    }
}

/// A response: a status, headers and a body.
///
/// `Date`, `Content-Length` or `Transfer-Encoding`, and `Connection` are written by the connection.
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) payload: Payload,
    pub(crate) close: bool,
    pub(crate) declined: bool,
}

/// A response with `text` as `text/plain; charset=utf-8`.
pub fn text(text: impl Into<Bytes>) -> Response {
    Response::text(text)
}

/// A response with `page` as `text/html; charset=utf-8`.
pub fn html(page: impl Into<Bytes>) -> Response {
    Response::html(page)
}

impl Response {
    /// An empty response with `status`.
    pub fn new(status: StatusCode) -> Response {
        Response {
            status,
            content_type: None,
            fields: Vec::new(),
            payload: Payload::Empty,
            close: false,
            declined: false,
        }
    }

    /// This handler has no answer, another one may: a router goes on to the next that takes the path, and to its
    /// fallback. Where there is no other it is 404, with a [`Problem`](crate::Problem).
    pub fn decline() -> Response {
        Response { declined: true, ..Response::not_found() }
    }

    /// 200 with `text/plain; charset=utf-8`.
    pub fn text(text: impl Into<Bytes>) -> Response {
        Response::with_bytes(text.into(), TEXT)
    }

    /// 200 with `text/html; charset=utf-8`.
    pub fn html(page: impl Into<Bytes>) -> Response {
        Response::with_bytes(page.into(), HTML)
    }

    /// 200 with `application/octet-stream`; see [`with_content_type`](Response::with_content_type).
    pub fn bytes(bytes: impl Into<Bytes>) -> Response {
        Response::with_bytes(bytes.into(), OCTETS)
    }

    pub(super) fn with_bytes(bytes: Bytes, content_type: HeaderValue) -> Response {
        // Not from an empty one: to drop what is not taken over from that is a call.
        Response {
            status: StatusCode::OK,
            content_type: Some(content_type),
            fields: Vec::new(),
            payload: Payload::Bytes(bytes),
            close: false,
            declined: false,
        }
    }

    /// 200 with what is in `file`, as `application/octet-stream`. The engine sends it after the handler has
    /// returned, without copying it through this process where the system can; a slow client holds no thread.
    ///
    /// # Errors
    /// The file's length cannot be read, or it is not a regular file.
    pub fn file(file: File) -> Result<Response> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::ours("only a regular file can be sent"));
        }
        let payload = Payload::File { file: Arc::new(file), offset: 0, count: metadata.len(), read: None };
        Ok(Response { content_type: Some(OCTETS), payload, ..Response::new(StatusCode::OK) })
    }

    /// 200 with a body that `write` produces piece by piece. The head leaves with the first of them.
    ///
    /// Clients of 1.1 get it in chunks; clients of 1.0 until the connection closes. With a `Content-Length`
    /// field the length is declared, and writing another one ends the connection. An error from `write`
    /// ends the connection too, so that the client can tell the body is not whole; before the first piece it is answered
    /// as an error of a handler is, with 500 or the [`Problem`](crate::Problem) in it. Errors of other types become one by `.map_err(io::Error::other)?`.
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
        Response {
            content_type: Some(OCTETS),
            payload: Payload::Stream(Box::new(write)),
            ..Response::new(StatusCode::OK)
        }
    }

    /// 303 to `location`: the client gets it with GET. What a URL has only percent-encoded is so encoded: spaces, letters that
    /// are not ASCII.
    ///
    /// # Errors
    /// `location` has a character that no field value may have.
    pub fn redirect(location: &str) -> Result<Response> {
        let encoded = utf8_percent_encode(location, NOT_IN_URLS).to_string();
        Response::new(StatusCode::SEE_OTHER).try_with_header(header::LOCATION, encoded)
    }

    /// The same with another status; see [`set_status`](Response::set_status).
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.set_status(status);
        self
    }

    /// The same with another `Content-Type`.
    #[must_use]
    pub fn with_content_type(mut self, value: HeaderValue) -> Response {
        self.set_content_type(value);
        self
    }

    /// The same with one more header; one of that name which is there already stays (but for `Content-Type`, of
    /// which there is one).
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.append_header(name, value);
        self
    }

    /// As [`with_header`](Response::with_header), from text: `.try_with_header("x-key", "value")?`.
    ///
    /// # Errors
    /// The name is not a token, or the value has a CR, LF, NUL or another control character.
    pub fn try_with_header<N, V>(self, name: N, value: V) -> Result<Response>
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let name =
            name.try_into().map_err(|error| Error::http("the name of a header".into(), error.into()))?;
        let value =
            value.try_into().map_err(|error| Error::http(format!("the value of {name}"), error.into()))?;
        Ok(self.with_header(name, value))
    }

    /// The same, and the connection ends behind it.
    #[must_use]
    pub fn with_close(self) -> Response {
        Response { close: true, ..self }
    }

    /// Whether it was made by [`decline`](Response::decline), and nobody has given it a status, a body or a
    /// `Content-Type` since: whoever does has an answer, and nobody else is asked. Other headers change nothing here.
    pub fn is_declined(&self) -> bool {
        self.declined
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers that were set, but `Content-Type`: name and value, in order.
    pub fn header_lines(&self) -> &[(HeaderName, HeaderValue)] {
        &self.fields
    }

    /// The `Content-Type`.
    pub fn content_type(&self) -> Option<&HeaderValue> {
        self.content_type.as_ref()
    }
}

impl Default for Response {
    /// An empty response with 200.
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
            Payload::Failed(_) => "an error".to_owned(),
            Payload::Lasting(lasting) => match **lasting {
                Lasting::Later(_) => "to come later".to_owned(),
                Lasting::Feed(_) => "a feed".to_owned(),
                Lasting::Take(_) | Lasting::Fed(..) => "another protocol".to_owned(),
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
