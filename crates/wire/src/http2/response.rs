//! Writes the response of one stream.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::Http2;
use super::block::{BlockStart, CONTENT_TYPE_BYTES_MAX, SHORT_LENGTH_MAX, write_plain};
use crate::date::Date;
use crate::encode::{self, Delimiter, Plan, Request, ResponseHead};
use crate::error::Misuse;
use crate::grammar::elements;
use crate::head::{Head, Version};
use crate::state::{WriteEvent, Writing};

/// The response of one stream: what [`Http1`](crate::Http1) does for its connection, by the same rules. It needs nothing
/// of the connection, so any thread can write the response, in any order with others.
///
/// Bytes of the body are framed where the windows are known, by [`Http2::write_data`] or [`Http2::data_header`]. So
/// [`count_body`](Http2Response::count_body) only counts them.
#[derive(Clone, Copy, Debug)]
pub struct Http2Response {
    stream: u32,
    is_head: bool,
    is_connect: bool,
    /// The peer has lowered the size of the table for encoding, and each block says that it is 0.
    resets_table: bool,
    closes: bool,
    writing: Writing,
    delimiter: Delimiter,
}

impl Http2Response {
    /// Returns the response to a request, of which only the method matters.
    #[inline]
    pub fn new(http: &Http2, stream: u32, method: &Method) -> Http2Response {
        Http2Response {
            stream,
            is_head: *method == Method::HEAD,
            is_connect: *method == Method::CONNECT,
            resets_table: http.resets_table,
            closes: false,
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
        status: StatusCode,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let writing = self.writing.next(WriteEvent::Interim)?;
        encode::interim(status, fields)?;
        self.writing = writing;
        let block = BlockStart::new(self.stream, self.resets_table, out);
        encode::write_interim_block(status, fields, out);
        block.finish(false, out);
        Ok(())
    }

    /// Appends the head of the final response. Returns whether it ends the stream, because the response has no body.
    /// Fields that concern a connection are left out: see [`closes`](Http2Response::closes).
    ///
    /// # Errors
    /// The error of the head. Nothing is written then, and another head may be tried.
    #[inline]
    pub fn write_head(
        &mut self,
        head: &ResponseHead<'_>,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        let writing = self.writing.next(WriteEvent::Head)?;
        if let Some((content_type, length)) = encode::plain(head)
            && self.takes_plain_heads(content_type, length)
        {
            write_plain(self.stream, content_type, length, date, out);
            self.delimiter = Delimiter::Length(length);
            self.writing = writing;
            return Ok(false);
        }
        self.write_any_head(head, date, out)
    }

    /// Nothing in the request changes a plain head, and the body ends the stream.
    #[inline]
    fn takes_plain_heads(&self, content_type: &[u8], length: u64) -> bool {
        (1..=SHORT_LENGTH_MAX).contains(&length)
            && content_type.len() <= CONTENT_TYPE_BYTES_MAX
            && !self.is_head
            && !self.is_connect
            && !self.resets_table
    }

    #[inline(never)]
    fn write_any_head(
        &mut self,
        head: &ResponseHead<'_>,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        let writing = self.writing.next(WriteEvent::Head)?;
        let plan = encode::plan(head, self.request(false))?;
        let ends =
            plan.delimiter == Delimiter::Length(0) || (plan.delimiter == Delimiter::NoBody && !plan.switches);
        self.write_planned(head, &plan, ends, date, out);
        self.writing = writing;
        Ok(ends)
    }

    /// Appends a whole response, which ends the stream. `head` gives the length of `body` as
    /// [`BodyLength::Exact`](crate::BodyLength::Exact). The windows are the caller's.
    ///
    /// # Errors
    /// As [`Http1::write_response`](crate::Http1::write_response).
    #[inline]
    pub fn write_response(
        &mut self,
        head: &ResponseHead<'_>,
        body: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let ends = self.write_head(head, date, out)?;
        self.count_body(body.len() as u64)?;
        if !ends {
            Http2::write_data(self.stream, body, true, out);
        }
        self.finish(&[], out).map(|_| ())
    }

    /// Appends the head that accepts the protocol of an extended CONNECT (RFC 8441 §5), for a `head` that accepts an
    /// upgrade in HTTP/1.1: 101 becomes 200, and `Sec-WebSocket-Accept` is left out. `request_head` was read into
    /// `text`.
    ///
    /// # Errors
    /// As [`Http1::write_switch`](crate::Http1::write_switch).
    pub fn write_switch(
        &mut self,
        head: &ResponseHead<'_>,
        request_head: &Head,
        text: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Misuse::StatusNotAllowed);
        }
        let writing = self.writing.next(WriteEvent::Head)?;
        let can_switch =
            request_head.protocol.is_some_and(|protocol| names_protocol(head.fields, protocol.of(text)));
        let plan = encode::plan(head, self.request(can_switch))?;
        self.write_planned(head, &plan, false, date, out);
        self.writing = writing;
        Ok(())
    }

    #[inline]
    fn request(&self, can_switch: bool) -> Request {
        let Http2Response { is_head, is_connect, .. } = *self;
        // Content before a tunnel has no place: all DATA of CONNECT is of the tunnel.
        Request { version: Version::Http2, is_head, is_connect, is_read: true, can_switch }
    }

    #[inline]
    fn write_planned(
        &mut self,
        head: &ResponseHead<'_>,
        plan: &Plan,
        ends: bool,
        date: &Date,
        out: &mut Vec<u8>,
    ) {
        let block = BlockStart::new(self.stream, self.resets_table, out);
        encode::write_response(head, plan, date, out);
        block.finish(ends, out);
        self.closes |= head.close || plan.close;
        self.delimiter = if plan.switches { Delimiter::Close } else { plan.delimiter };
    }

    /// Whether the response has a body to send: see [`Http1::sends_body`](crate::Http1::sends_body).
    #[inline]
    pub fn sends_body(&self) -> bool {
        match self.writing {
            Writing::Head => !self.is_head,
            Writing::Body | Writing::Whole | Writing::Broken => self.delimiter != Delimiter::NoBody,
        }
    }

    /// Counts bytes of the body, which the caller frames and sends if the response [sends a
    /// body](Http2Response::sends_body).
    ///
    /// # Errors
    /// [`Misuse::TooManyBytes`] if the head declared fewer bytes. Out of turn before the head and after the end.
    #[inline]
    pub fn count_body(&mut self, bytes: u64) -> Result<(), Misuse> {
        self.writing = self.writing.next(WriteEvent::Body)?;
        if let Delimiter::Length(left) = &mut self.delimiter {
            *left = left.checked_sub(bytes).ok_or(Misuse::TooManyBytes)?;
        }
        Ok(())
    }

    /// Whether all is written of a body whose length the head has declared. The last DATA may end the stream.
    #[inline]
    pub fn has_written_all(&self) -> bool {
        self.delimiter == Delimiter::Length(0)
    }

    /// Trailers can follow the body in progress: its length is not declared.
    pub fn takes_trailers(&self) -> bool {
        self.writing == Writing::Body && self.delimiter == Delimiter::Chunked
    }

    /// The body is whole. Returns whether trailers were appended, which end the stream. Otherwise the caller ends the
    /// stream with its last DATA, unless the head did.
    ///
    /// # Errors
    /// As [`Http1::finish`](crate::Http1::finish). After [`Misuse::TooFewBytes`], the stream has to be reset.
    #[inline]
    pub fn finish(
        &mut self,
        trailers: &[(HeaderName, HeaderValue)],
        out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        let writing = self.writing.next(WriteEvent::Finish)?;
        if let Delimiter::Length(1..) = self.delimiter {
            self.writing = self.writing.next(WriteEvent::Break)?;
            return Err(Misuse::TooFewBytes);
        }
        let mut is_written = false;
        if !trailers.is_empty() {
            encode::trailers(self.delimiter, trailers)?;
            is_written = self.delimiter == Delimiter::Chunked;
        }
        if is_written {
            let block = BlockStart::new(self.stream, self.resets_table, out);
            encode::write_block(trailers, out);
            block.finish(true, out);
        }
        self.writing = writing;
        Ok(is_written)
    }

    /// The head asked to close the connection: a GOAWAY should follow.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Returns how far the response has been written.
    #[inline]
    pub fn writing(&self) -> Writing {
        self.writing
    }
}

/// Whether these fields of a response name this protocol in `Upgrade`, and no other.
fn names_protocol(fields: &[(HeaderName, HeaderValue)], protocol: &[u8]) -> bool {
    let mut named = (fields.iter().filter(|(name, _)| name == http::header::UPGRADE))
        .flat_map(|(_, value)| elements(value.as_bytes()))
        .peekable();
    named.peek().is_some() && named.all(|named| named.eq_ignore_ascii_case(protocol))
}
