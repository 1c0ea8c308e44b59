//! The connection of one request: its own in HTTP/1.1, or a stream of a shared one in HTTP/2.

use std::io;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method};
use weftwork_wire::{Limits, Received};

use super::conn::Http1Conn;
use super::http2::Http2Stream;
use crate::app::proxy::Failure;

/// The next part of a response body.
pub(in crate::app::proxy) enum Part<'a> {
    Data(&'a [u8]),
    End,
    /// Nothing has arrived.
    NeedMore,
}

pub(in crate::app::proxy) enum UpstreamConn {
    Http1(Box<Http1Conn>),
    Http2(Box<Http2Stream>),
}

impl UpstreamConn {
    /// Queues a part of the request body.
    pub(in crate::app::proxy) fn put(&mut self, part: &[u8], in_chunks: bool) {
        match self {
            UpstreamConn::Http1(conn) => conn.put(part, in_chunks),
            UpstreamConn::Http2(stream) => stream.put(part),
        }
    }

    /// Queues the end of the request body. HTTP/1.1 gets no trailers.
    pub(in crate::app::proxy) fn end_body(
        &mut self,
        in_chunks: bool,
        trailers: &[(HeaderName, HeaderValue)],
    ) {
        match self {
            UpstreamConn::Http1(conn) if in_chunks => conn.put(b"", true),
            UpstreamConn::Http1(_) => {}
            UpstreamConn::Http2(stream) => stream.end_body(trailers.to_vec()),
        }
    }

    pub(in crate::app::proxy) fn is_http2(&self) -> bool {
        matches!(self, UpstreamConn::Http2(_))
    }

    pub(in crate::app::proxy) fn is_sent(&self) -> bool {
        match self {
            UpstreamConn::Http1(conn) => conn.is_sent(),
            UpstreamConn::Http2(stream) => stream.is_sent(),
        }
    }

    /// Returns how many bytes the server has accepted.
    pub(in crate::app::proxy) fn bytes_sent(&self) -> u64 {
        match self {
            UpstreamConn::Http1(conn) => conn.bytes_sent,
            UpstreamConn::Http2(stream) => stream.bytes_sent,
        }
    }

    pub(in crate::app::proxy) fn has_received_nothing(&self) -> bool {
        match self {
            UpstreamConn::Http1(conn) => conn.has_received_nothing,
            UpstreamConn::Http2(stream) => stream.has_received_nothing,
        }
    }

    /// Sends what is queued. Returns false if the server stopped reading and has sent something. The server may read
    /// nothing for `timeout`, and must have read everything by `end`.
    pub(in crate::app::proxy) fn send_output(&mut self, timeout: Duration, end: Instant) -> io::Result<bool> {
        match self {
            UpstreamConn::Http1(conn) => conn.send_output(timeout, end),
            UpstreamConn::Http2(stream) => stream.send_output(timeout, end),
        }
    }

    /// Returns whether input is available that was not examined. Does not wait.
    pub(in crate::app::proxy) fn has_input(&self) -> io::Result<bool> {
        match self {
            UpstreamConn::Http1(conn) => conn.has_input(),
            UpstreamConn::Http2(stream) => Ok(stream.has_input()),
        }
    }

    /// Waits for input. Returns false if no input arrives by `until`.
    pub(in crate::app::proxy) fn wait_for_input(&self, until: Instant) -> io::Result<bool> {
        match self {
            UpstreamConn::Http1(conn) => conn.wait_for_input(until),
            UpstreamConn::Http2(stream) => stream.wait_for_input(until),
        }
    }

    /// Waits for input if necessary, and reads once. Returns false if the server has ended its side.
    pub(in crate::app::proxy) fn fill(&mut self, until: Instant) -> io::Result<bool> {
        match self {
            UpstreamConn::Http1(conn) => Ok(conn.fill(until)? > 0),
            UpstreamConn::Http2(stream) => stream.fill(until).map(|()| true),
        }
    }

    /// Returns the next head, if all of it has arrived.
    pub(in crate::app::proxy) fn read_head(
        &mut self,
        method: &Method,
        limits: &Limits,
    ) -> Result<Option<Received>, Failure> {
        match self {
            UpstreamConn::Http1(conn) => Ok(conn.read_head(method, limits)?),
            UpstreamConn::Http2(stream) => stream.read_head(),
        }
    }

    pub(in crate::app::proxy) fn next_part(&mut self, limits: &Limits) -> Result<Part<'_>, Failure> {
        match self {
            UpstreamConn::Http1(conn) => Ok(conn.next_part(limits)?),
            UpstreamConn::Http2(stream) => stream.next_part(),
        }
    }

    /// The server has ended its side within a body.
    pub(in crate::app::proxy) fn end(&mut self) -> io::Result<()> {
        match self {
            UpstreamConn::Http1(conn) => {
                conn.reader.end().map_err(|fault| io::Error::new(io::ErrorKind::UnexpectedEof, fault))
            }
            UpstreamConn::Http2(_) => Ok(()),
        }
    }

    /// Returns the trailers of a response that was read to its end.
    pub(in crate::app::proxy) fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        match self {
            UpstreamConn::Http1(conn) => conn.reader.trailers(),
            UpstreamConn::Http2(stream) => stream.trailers(),
        }
    }
}
