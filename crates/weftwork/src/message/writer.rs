//! The writing end of a streamed response.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weftwork_wire::may_be_trailer;

use super::body::Body;
use super::exchange::Exchange;
use super::response::{Payload, Response};

/// Writes the body of a streamed [`Response`](super::Response).
///
/// Bytes are gathered and sent when some 64 KiB are there, at [`flush`](Write::flush), and at the end; what is written in pieces
/// so large is sent from where it is, and copied only where the client is slow. The end of what is sent so, less than a segment of
/// TCP, may stay behind for some 0.2 s where more could follow: [`flush`](Write::flush) what a client waits for. When
/// the client reads slowly, a write waits and holds nothing but its own thread; it fails when the client takes nothing for
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
    /// Lets this much time pass, after a [`flush`](Write::flush). False: the server has begun to stop, and a response
    /// without an end should have one. The first false comes at once, later ones when the time has passed.
    ///
    /// # Errors
    /// The client has gone, which is noticed at once, unless it has sent more than 64 KiB ahead: then by the next write. Or the
    /// server has waited for `drain_timeout`, and cuts its connections.
    pub fn pause(&mut self, duration: Duration) -> io::Result<bool> {
        self.exchange.pause(duration)
    }

    /// Whether the client has gone, as far as that is known without waiting. One that has only ended its sending side
    /// looks the same: see [`Request::client_gone`](crate::Request::client_gone).
    pub fn client_gone(&mut self) -> bool {
        self.exchange.client_gone()
    }

    /// The setting `heartbeat`.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.exchange.heartbeat()
    }

    /// Reads what has come of the request's body into `into`, after a wait if need be; 0 at its end. What was
    /// written before is on its way to the client when it waits. This is what an echo or a filter needs.
    ///
    /// The limit is that of [`Request::body`](crate::Request::body), and what was read there counts: the setting `body_bytes_max`,
    /// or what [`BodyLimit`](crate::middleware::BodyLimit) or
    /// [`set_body_bytes_max`](crate::Request::set_body_bytes_max) have made of it. A handler that keeps nothing of what it reads
    /// may lift it.
    ///
    /// # Errors
    /// A [`BodyError`](super::BodyError), inside the [`io::Error`]. While nothing is written, passed on by `?` it becomes the
    /// status that answers it, 413 for a body that is too large.
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

    /// Whether that would wait for no longer than `patience`.
    pub(crate) fn request_comes_within(&mut self, patience: Duration) -> io::Result<bool> {
        Ok(Body::new(self.exchange).comes_within(patience)?)
    }

    /// As [`read_request`](BodyWriter::read_request), but adds what has come to `into`: no more than there is room for
    /// ([`capacity`](Vec::capacity)), and room is made only where there is none. Nothing has to be zeroed for it, and what has not
    /// come yet is read from the socket into room of 16 KiB and more without a copy, where the length of the body is known and no
    /// less than the room is left of it: room for a whole part of it, a half or a quarter, serves best.
    ///
    /// # Errors
    /// Those of [`read_request`](BodyWriter::read_request).
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

    /// Has fields sent behind the body: a checksum, say, or how a long job went. They are sent at its end, and
    /// may be added to until then.
    ///
    /// False: they will not be sent. That takes a client that has said `TE: trailers` (RFC 9110 section 6.5.1)
    /// and a body in chunks, so no HTTP/1.0 and no `Content-Length`. Whatever a client needs belongs in the head
    /// or the body.
    ///
    /// # Errors
    /// A field may not be a trailer (`InvalidInput`): it frames or routes the message, authenticates, or says how
    /// to read the content, and all of that has to be known before. None of the fields is taken then.
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
    /// The same, and its writer, if it has one, reads the request's body within this limit.
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
