//! Writing end of a streamed response.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weftwork_wire::may_be_trailer;

use super::body::Body;
use super::exchange::{ConnValue, Exchange};
use super::response::{Payload, Response};

/// Writes the body of a streamed [`Response`](super::Response).
///
/// Bytes are collected and sent when about 64 KiB are there, at [`flush`](Write::flush), and at the end. A piece of
/// that size is sent without a copy, unless the client is slow. The end of such a piece, less than a TCP segment, may
/// be delayed by about 0.2 s if more could follow. So call [`flush`](Write::flush) if the client waits for it.
///
/// If the client reads slowly, a write waits and holds only its own thread. It fails if the client reads nothing for
/// `write_timeout`, or less than `rate_bytes_min` on average.
pub struct BodyWriter<'c> {
    exchange: &'c mut dyn Exchange,
}

impl<'c> BodyWriter<'c> {
    pub(crate) fn new(exchange: &'c mut dyn Exchange) -> BodyWriter<'c> {
        BodyWriter { exchange }
    }

    pub(super) fn exchange(&mut self) -> &mut dyn Exchange {
        self.exchange
    }
}

impl Write for BodyWriter<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.exchange.write(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exchange.flush()
    }
}

impl BodyWriter<'_> {
    /// Pauses for this time, after a [`flush`](Write::flush). Returns false if the server has begun to stop, so that an
    /// endless response can end. The first false ends the pause, and later ones are returned after the time has passed. If
    /// many responses pause, they are told one after another (see [`drain_timeout`](crate::Settings::drain_timeout)).
    ///
    /// # Errors
    /// The client has gone. This is noticed at once, unless the client has sent more than 64 KiB ahead. Then the next
    /// write notices it. Or the server has waited for `drain_timeout` and cuts its connections.
    pub fn pause(&mut self, duration: Duration) -> io::Result<bool> {
        self.exchange.pause(duration)
    }

    /// Returns whether the client has gone, as far as that is known without waiting. A client that has closed only its
    /// sending side looks the same: see [`Request::client_gone`](crate::Request::client_gone).
    pub fn client_gone(&mut self) -> bool {
        self.exchange.client_gone()
    }

    /// Returns the value that handlers keep for the client's connection.
    pub(crate) fn conn_value(&mut self) -> &mut ConnValue {
        self.exchange.conn_value()
    }

    /// Returns the setting `heartbeat`.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.exchange.heartbeat()
    }

    /// Reads available bytes of the request body into `into`, after a wait if necessary. 0 means the end of the body.
    /// Before a wait, all written bytes are sent to the client. Use it for an echo or a filter.
    ///
    /// The limit is that of [`Request::body`](crate::Request::body), and bytes that were read there count. It is the
    /// setting `body_bytes_max`, unless [`BodyLimit`](crate::middleware::BodyLimit) or
    /// [`set_body_bytes_max`](crate::Request::set_body_bytes_max) has changed it. A handler that keeps no bytes may
    /// remove the limit.
    ///
    /// # Errors
    /// A [`BodyError`](super::BodyError) inside the [`io::Error`]. If nothing was written yet and `?` passes it on, it
    /// becomes the status of the response, such as 413 for a body that is too large.
    ///
    /// ```
    /// use std::io::Write;
    /// use weftwork::{Request, Response};
    ///
    /// fn shout(req: &mut Request) -> Response {
    ///     req.set_body_bytes_max(u64::MAX);
    ///     Response::stream(|out| {
    ///         let mut part = [0; 4096];
    ///         loop {
    ///             match out.read_request(&mut part)? {
    ///                 0 => return Ok(()),
    ///                 count => out.write_all(&part[..count].to_ascii_uppercase())?,
    ///             }
    ///         }
    ///     })
    /// }
    /// # let long = vec![b'a'; 3 << 20];
    /// # assert!(weftwork::TestClient::new(shout).post("/").body(long).send().text().starts_with("AAA"));
    /// ```
    pub fn read_request(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Body::new(self.exchange).read(into)
    }

    /// Returns the trailers of the request, after its body was read to its end.
    pub(crate) fn request_trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.exchange.trailers()
    }

    /// Returns whether reading would wait for at most `patience`.
    pub(crate) fn request_comes_within(&mut self, timeout: Duration) -> io::Result<bool> {
        Ok(Body::new(self.exchange).comes_within(timeout)?)
    }

    /// Reads like [`read_request`](BodyWriter::read_request), and appends to `into`, up to its
    /// [`capacity`](Vec::capacity). Space is reserved only if the capacity is used up. The space need not be zeroed.
    /// Bytes that have not arrived yet are read from the socket without a copy under three conditions: the space is at
    /// least 16 KiB, the length of the body is known, and at least that much of it is left. Space for a whole part, or
    /// a half or a quarter of it, works best.
    ///
    /// # Errors
    /// See [`read_request`](BodyWriter::read_request).
    ///
    /// ```
    /// use std::io::Write;
    /// use weftwork::{Request, Response};
    ///
    /// fn echo(_: &mut Request) -> Response {
    ///     Response::stream(|out| {
    ///         let mut part = Vec::with_capacity(64 << 10);
    ///         while out.read_request_buf(&mut part)? > 0 {
    ///             out.write_all(&part)?;
    ///             part.clear();
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// # let long = vec![b'a'; 1 << 20];
    /// # assert_eq!(weftwork::TestClient::new(echo).post("/").body(long.clone()).send().bytes(), &long[..]);
    /// ```
    pub fn read_request_buf(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        Ok(Body::new(self.exchange).append_to(into)?)
    }

    /// Sends fields after the body: for example, a checksum, or the duration of a job. They are sent at the end of the
    /// body, and fields can be added until then.
    ///
    /// Returns false if the fields will not be sent. The client must have sent `TE: trailers` (RFC 9110 section 6.5.1),
    /// and the body must be chunked, so neither HTTP/1.0 nor a `Content-Length` works. Data that every client needs
    /// belongs in the head or the body.
    ///
    /// # Errors
    /// A field cannot be a trailer (`InvalidInput`), because it frames or routes the message, authenticates, or
    /// describes the content. Such fields must be known before the content. No field is added then.
    ///
    /// ```
    /// use std::io::Write;
    /// use weftwork::{Response, http::{HeaderName, HeaderValue}};
    ///
    /// let answer = Response::stream(|out| {
    ///     out.write_all(b"the rows")?;
    ///     let rows = (HeaderName::from_static("x-rows"), HeaderValue::from(8));
    ///     out.trailers(&[rows])?;
    ///     Ok(())
    /// });
    /// ```
    pub fn trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        if let Some((name, _)) = fields.iter().find(|(name, _)| !may_be_trailer(name)) {
            let why = format!("{name} may not be a trailer (RFC 9110 section 6.5.1)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.exchange.send_trailers(fields)
    }
}

impl Response {
    /// Limits how much of the request body the writer of this response reads.
    pub(crate) fn reading_within(mut self, bytes_max: u64) -> Response {
        if let Payload::Stream(write) = self.payload {
            self.payload = Payload::Stream(Box::new(move |out| {
                out.exchange.quota_mut().limit = bytes_max;
                write(out)
            }));
        }
        self
    }
}

impl fmt::Debug for BodyWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter").finish_non_exhaustive()
    }
}
