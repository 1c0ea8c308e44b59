//! Writes the response of one stream.

use http::{HeaderName, HeaderValue, StatusCode};

use super::Http2;
use crate::date::Date;
use crate::encode::{Delimiter, ResponseHead};
use crate::error::Misuse;
use crate::head::Head;
use crate::state::Writing;

/// The response of one stream: what [`Http1`](crate::Http1) does for its connection. It needs nothing of the
/// connection, so any thread can write the response, in any order with others.
///
/// The bytes of the body are framed where the windows are known. So [`write_body`](Http2Response::count_body) only
/// counts them.
#[derive(Clone, Copy, Debug)]
pub struct Http2Response {
    stream: u32,
    is_head: bool,
    is_connect: bool,
    /// The peer has lowered the size of our dynamic table, which is 0: the block has to say so.
    resets_table: bool,
    writing: Writing,
    delimiter: Delimiter,
}

impl Http2Response {
    /// Returns the response to the request with this head.
    pub fn new(http: &Http2, stream: u32, head: &Head) -> Http2Response {
        Http2Response {
            stream,
            is_head: head.method == http::Method::HEAD,
            is_connect: head.method == http::Method::CONNECT,
            resets_table: http.resets_table(),
            writing: Writing::Head,
            delimiter: Delimiter::NoBody,
        }
    }

    /// Appends an interim response: any 1xx except 101.
    ///
    /// # Errors
    /// As [`Http1::write_interim`](crate::Http1::write_interim).
    pub fn write_interim(
        &mut self,
        _status: StatusCode,
        _fields: &[(HeaderName, HeaderValue)],
        _out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        Err(Misuse::StatusNotAllowed)
    }

    /// Appends the head of the final response. Returns whether it ends the stream, because the response has no body.
    /// The rules are those of HTTP/1.1. Fields that concern a connection are left out: see
    /// [`closes`](Http2Response::closes).
    ///
    /// # Errors
    /// The error of the head. Nothing is written then, and another head may be tried.
    pub fn write_head(
        &mut self,
        _head: &ResponseHead<'_>,
        _date: &Date,
        _out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        Err(Misuse::StatusNotAllowed)
    }

    /// Appends the head that accepts the protocol of an extended CONNECT (RFC 8441 §5), for a `head` that accepts an
    /// upgrade in HTTP/1.1: 101 becomes 200. `request_head` was read into `text`.
    ///
    /// # Errors
    /// As [`Http1::write_switch`](crate::Http1::write_switch).
    pub fn write_switch(
        &mut self,
        _head: &ResponseHead<'_>,
        _request_head: &Head,
        _text: &[u8],
        _date: &Date,
        _out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        Err(Misuse::StatusNotAllowed)
    }

    /// Whether the response has a body to send: see [`Http1::sends_body`](crate::Http1::sends_body).
    pub fn sends_body(&self) -> bool {
        match self.writing {
            Writing::Head => !self.is_head,
            Writing::Body | Writing::Whole | Writing::Broken => self.delimiter != Delimiter::NoBody,
        }
    }

    /// Counts bytes of the body that are given to [`Http2::write_data`]. If the response sends no body, they must not be.
    ///
    /// # Errors
    /// [`Misuse::TooManyBytes`] if the head declared fewer bytes. Out of turn before the head and after the end.
    pub fn count_body(&mut self, _bytes: u64) -> Result<(), Misuse> {
        Err(Misuse::TooManyBytes)
    }

    /// Whether all is written of a body whose length the head has declared. The last DATA may end the stream.
    pub fn has_written_all(&self) -> bool {
        self.delimiter == Delimiter::Length(0)
    }

    /// Trailers can follow the body: its length is not declared.
    pub fn takes_trailers(&self) -> bool {
        self.writing == Writing::Body && self.delimiter == Delimiter::Chunked
    }

    /// The body is whole. Returns whether the trailers were written, which end the stream. Otherwise the caller ends
    /// the stream with its last DATA, unless the head did.
    ///
    /// # Errors
    /// As [`Http1::finish`](crate::Http1::finish). After [`Misuse::TooFewBytes`] the stream has to be reset.
    pub fn finish(
        &mut self,
        _trailers: &[(HeaderName, HeaderValue)],
        _out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        Err(Misuse::TooFewBytes)
    }

    /// The head asked to close the connection: a GOAWAY should follow.
    pub fn closes(&self) -> bool {
        false
    }

    /// How far the response has been written.
    pub fn writing(&self) -> Writing {
        self.writing
    }
}
