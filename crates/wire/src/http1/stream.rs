//! Serves a stream of HTTP/2: its head was read by its connection, and its response goes there as segments.

use crate::body::BodyReader;
use crate::date::Date;
use crate::encode::{self, Delimiter, ResponseHead};
use crate::error::Misuse;
use crate::head::Head;
use crate::segment;
use crate::state::WriteEvent;

use super::{Http1, RequestFacts};

impl Http1 {
    /// Begins a request of HTTP/2, whose head was read by its connection. What follows is its body in chunks, so that
    /// trailers may end it. If `head.framing` has a length, the bytes that begin the first chunk are left out: the payload
    /// comes at once, or, if it is empty, the last chunk. The response is written as [`Segment`](crate::Segment)s.
    #[inline(never)]
    pub fn begin_stream(&mut self, head: &Head) {
        self.begin(head, BodyReader::of_stream);
        self.request.is_connect |= head.protocol.is_some();
        // A stream has one request.
        self.keep_alive.and(false);
    }

    /// Appends a whole response whose head nearly all have, or returns false: another way writes what it cannot.
    pub(super) fn write_plain_segments(
        &mut self,
        head: &ResponseHead<'_>,
        body: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<bool, Misuse> {
        let RequestFacts { is_head, is_connect, .. } = self.request;
        let Some((content_type, length)) = encode::plain(head) else { return Ok(false) };
        if is_head || is_connect || length != body.len() as u64 || !segment::is_short(content_type, body) {
            return Ok(false);
        }
        let writing = self.writing.next(WriteEvent::Head)?;
        self.writing = writing.next(WriteEvent::Body)?.next(WriteEvent::Finish)?;
        self.delimiter = Delimiter::Length(0);
        segment::write_plain(content_type, body, date, out);
        Ok(true)
    }

    /// Appends the head as a segment, and what begins a body of known length.
    #[inline(never)]
    pub(super) fn write_segment_of_head(
        &mut self,
        head: &ResponseHead<'_>,
        can_switch: bool,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let writing = self.writing.next(WriteEvent::Head)?;
        let plan = encode::plan(head, self.encoder_view(can_switch))?;
        segment::write_head(head.close || plan.close, out, |out| {
            encode::write_response(head, &plan, date, out);
        });
        match plan.delimiter {
            Delimiter::NoBody if plan.switches => segment::write_tunnel(out),
            Delimiter::NoBody => segment::write_end(out),
            Delimiter::Length(length) => segment::write_whole_body(length, out),
            Delimiter::Chunked | Delimiter::Close => {}
        }
        self.delimiter = plan.delimiter;
        self.writing = writing;
        Ok(())
    }
}
