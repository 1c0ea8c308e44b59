//! Drives one connection: joins the reader, the writer and their states.

mod stream;
mod switch;

use http::{HeaderName, HeaderValue, Method};

use crate::body::{BodyEvent, BodyReader};
use crate::date::Date;
use crate::encode::{self, Delimiter, Persistence, Request, ResponseHead};
use crate::error::{Fault, Misuse};
use crate::framing::Framing;
use crate::head::{self, Head, HeadEvent, Scan, Version};
use crate::limits::Limits;
use crate::segment;
use crate::state::{After, KeepAlive, ReadEvent, Reading, WriteEvent, Writing, after};

/// One connection's protocol, server side. It holds no bytes of the connection but trailers.
///
/// Reading and writing are independent: a response may be written before, while or after the request's body
/// is read. The order within each is checked: see [`Misuse::OutOfTurn`].
#[derive(Debug, Default)]
pub struct Http1 {
    scan: Scan,
    body: BodyReader,
    delimiter: Delimiter,
    reading: Reading,
    writing: Writing,
    keep_alive: KeepAlive,
    fault: Option<Fault>,
    request: RequestFacts,
}

/// State of the request in progress.
#[derive(Clone, Copy, Debug, Default)]
struct RequestFacts {
    version: Version,
    is_head: bool,
    /// CONNECT, also the extended one of HTTP/2.
    is_connect: bool,
    wants_upgrade: bool,
    /// `100 Continue` is waited for, as far as we know.
    expects_continue: bool,
}

// Every idle connection holds one.
const _: () = assert!(size_of::<Http1>() <= 64);

impl Http1 {
    /// A connection on which nothing has happened.
    pub fn new() -> Http1 {
        Http1::default()
    }

    /// Reads the next request's head.
    ///
    /// `bytes` are all unused bytes of the connection, from the request's first byte on. After
    /// [`HeadEvent::NeedMore`], the caller passes the same bytes and more. Bytes that were read are not read again.
    /// While a request is in progress, the result is `NeedMore`, whatever the bytes are.
    ///
    /// # Errors
    /// The rule of RFC 9112 §2 to §6 that the head breaks. A fault is permanent: every later call returns it, and the
    /// next response closes the connection.
    pub fn read_head(&mut self, bytes: &[u8], limits: &Limits, head: &mut Head) -> Result<HeadEvent, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.reading != Reading::Head {
            return Ok(HeadEvent::NeedMore);
        }
        match head::read(&mut self.scan, bytes, limits, head) {
            Ok(HeadEvent::Head(used)) => {
                self.begin(head, BodyReader::new);
                Ok(HeadEvent::Head(used))
            }
            // It may never be whole.
            Ok(HeadEvent::NeedMore) => {
                self.request.is_head = begins_head(bytes);
                Ok(HeadEvent::NeedMore)
            }
            Err(fault) => {
                self.request.is_head = begins_head(bytes);
                Err(self.refuse(fault))
            }
        }
    }

    // A function with two callers would not be part of the one that each request passes.
    #[inline(always)]
    fn begin(&mut self, head: &Head, body: impl FnOnce(Framing) -> BodyReader) {
        self.scan = Scan::default();
        // It is over, and to drop what may own memory is not free.
        if head.framing != Framing::None {
            self.body = body(head.framing);
        }
        self.keep_alive.and(head.keep_alive);
        self.request = RequestFacts {
            version: head.version,
            is_head: head.method == Method::HEAD,
            is_connect: head.method == Method::CONNECT,
            wants_upgrade: head.upgrade,
            expects_continue: head.expect_continue,
        };
        let event = if self.body.is_over() { ReadEvent::HeadWithoutBody } else { ReadEvent::HeadWithBody };
        self.reading = self.reading.next(event);
    }

    #[cold]
    fn refuse(&mut self, fault: Fault) -> Fault {
        self.fault = Some(fault);
        self.reading = self.reading.next(ReadEvent::Fault);
        self.keep_alive.and(false);
        fault
    }

    /// Returns whether the request is a CONNECT, also an extended one (RFC 8441). A 2xx then begins another protocol.
    #[inline]
    pub fn is_connect(&self) -> bool {
        self.request.is_connect
    }

    /// Reads the body of the request in progress. Returns how many bytes were used and what they were.
    ///
    /// `bytes`: what follows the head and what earlier calls used. Nothing is used past the body's end, and
    /// without a request in progress the answer is [`BodyEvent::End`].
    ///
    /// # Errors
    /// The rule of RFC 9112 §7.1 that the body breaks, or the connection's earlier fault. See
    /// [`read_head`](Http1::read_head).
    #[inline]
    pub fn read_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<(usize, BodyEvent), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.reading != Reading::Body {
            return Ok((0, BodyEvent::End));
        }
        let (used, event) = self.body.read(bytes, limits).map_err(|fault| self.refuse(fault))?;
        // RFC 9110 §10.1.1: who has sent some of the body does not wait for leave to send it.
        self.request.expects_continue &= used == 0;
        if event == BodyEvent::End || self.body.is_over() {
            self.reading = self.reading.next(ReadEvent::BodyEnd);
        }
        Ok((used, event))
    }

    /// The body's length that is still to come, as far as the framing says it. None: chunked, and not over.
    #[inline]
    pub fn body_left(&self) -> Option<u64> {
        self.body.left()
    }

    /// True when the request in progress (if any) has been read to its end.
    #[inline]
    pub fn request_is_read(&self) -> bool {
        match self.reading {
            Reading::Head => self.scan.is_untouched(),
            Reading::Whole => true,
            Reading::Body | Reading::Refused => false,
        }
    }

    /// Trailer fields of the body that has ended. They are apart from the head's fields, and stay so: a
    /// trailer must not pass for a field of the head (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.body.trailers()
    }

    /// The client waits for `100 Continue`, and nothing has been answered yet.
    #[inline]
    pub fn wants_continue(&self) -> bool {
        self.request.expects_continue && self.reading == Reading::Body && self.writing == Writing::Head
    }

    /// Appends the head of the final response. Before a request's head is read, or after a fault, the response closes
    /// the connection. That is how a server reports a timeout or a fault.
    ///
    /// # Errors
    /// The error of the head. Nothing is written then, and another head may be tried.
    pub fn write_head(
        &mut self,
        head: &ResponseHead<'_>,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let writing = self.writing.next(WriteEvent::Head)?;
        if let Some((content_type, length)) = encode::plain(head)
            && self.takes_plain_heads()
        {
            encode::write_plain(content_type, length, self.closes(), date, out);
            self.delimiter = Delimiter::Length(length);
            self.writing = writing;
            return Ok(());
        }
        self.write_any_head(head, false, date, out)
    }

    /// Appends a whole response: head, body and end. `head` gives the length of `body` as
    /// [`BodyLength::Exact`](crate::BodyLength::Exact).
    ///
    /// This is the same as [`write_head`](Http1::write_head), [`write_body`](Http1::write_body) and
    /// [`finish`](Http1::finish) in turn.
    ///
    /// # Errors
    /// The errors of the three. After an error of `write_head`, nothing is written.
    #[inline]
    pub fn write_response(
        &mut self,
        head: &ResponseHead<'_>,
        body: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<After, Misuse> {
        if let Some((content_type, length)) = encode::plain(head)
            && length == body.len() as u64
            && self.takes_plain_heads()
        {
            let writing = self.writing.next(WriteEvent::Head)?;
            self.writing = writing.next(WriteEvent::Body)?.next(WriteEvent::Finish)?;
            self.delimiter = Delimiter::Length(0);
            encode::write_plain(content_type, length, self.closes(), date, out);
            out.extend_from_slice(body);
            return Ok(after(self.reading, self.keep_alive));
        }
        self.write_in_turn(head, body, date, out)
    }

    /// Apart: within, it takes registers from the plain way.
    #[inline(never)]
    fn write_in_turn(
        &mut self,
        head: &ResponseHead<'_>,
        body: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<After, Misuse> {
        if self.request.version == Version::Http2 && self.write_plain_segments(head, body, date, out)? {
            return Ok(after(self.reading, self.keep_alive));
        }
        self.write_any_head(head, false, date, out)?;
        self.write_body(body, out)?;
        self.finish(&[], out)
    }

    /// Nothing in the request or on the connection changes a plain head, except for whether it closes. To find that
    /// out before a plan is made saves a quarter of the instructions.
    #[inline]
    fn takes_plain_heads(&self) -> bool {
        let RequestFacts { version, is_head, is_connect, .. } = self.request;
        version == Version::Http11 && !is_head && !is_connect && self.reading == Reading::Whole
    }

    #[inline]
    fn closes(&self) -> bool {
        self.keep_alive == KeepAlive::No
    }

    #[inline(never)]
    fn write_any_head(
        &mut self,
        head: &ResponseHead<'_>,
        can_switch: bool,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        if self.request.version == Version::Http2 {
            return self.write_segment_of_head(head, can_switch, date, out);
        }
        let writing = self.writing.next(WriteEvent::Head)?;
        let plan = encode::plan(head, self.encoder_view(can_switch))?;
        // RFC 9110 §10.1.1: without the 100 it waits for, the client may send the body or the next request;
        // nobody can tell which, so nobody reads on.
        let is_in_step = !self.wants_continue() && matches!(self.reading, Reading::Body | Reading::Whole);
        self.keep_alive.and(is_in_step && !head.close && !plan.close);
        encode::write_head(head, &plan, self.persistence(plan.switches), date, out);
        // The connection belongs to another protocol now.
        self.keep_alive.and(!plan.switches);
        self.delimiter = plan.delimiter;
        self.writing = writing;
        Ok(())
    }

    fn encoder_view(&self, can_switch: bool) -> Request {
        let RequestFacts { version, is_head, is_connect, .. } = self.request;
        Request { version, is_head, is_connect, is_read: self.reading == Reading::Whole, can_switch }
    }

    /// RFC 9112 §9.3: HTTP/1.1 persists and HTTP/1.0 closes, unless they say otherwise.
    fn persistence(&self, switches: bool) -> Persistence {
        match (self.keep_alive, self.request.version) {
            // RFC 9110 §9.3.6: a tunnel is no upgrade, whatever came along with CONNECT.
            _ if switches && self.request.wants_upgrade && !self.request.is_connect => Persistence::Upgrade,
            _ if switches => Persistence::Implied,
            // Also to HTTP/1.0: what goes by the version of the response takes ours for one that persists.
            (KeepAlive::No, _) => Persistence::Close,
            (KeepAlive::Yes, Version::Http10) => Persistence::KeepAlive,
            (KeepAlive::Yes, Version::Http11 | Version::Http2) => Persistence::Implied,
        }
    }

    /// False for HEAD, 204, 304: the head said all, [`write_body`](Http1::write_body) swallows what it is
    /// given. Before the head is written it can be false for HEAD only.
    #[inline]
    pub fn sends_body(&self) -> bool {
        match self.writing {
            Writing::Head => !self.request.is_head,
            Writing::Body | Writing::Whole | Writing::Broken => self.delimiter != Delimiter::NoBody,
        }
    }

    /// Appends `data` with its framing. An empty slice writes nothing.
    ///
    /// # Errors
    /// [`Misuse::TooManyBytes`] if the head declared fewer bytes. No byte of `data` is written then. Out of turn
    /// before the head and after the end.
    #[inline]
    pub fn write_body(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.writing = self.writing.next(WriteEvent::Body)?;
        match self.delimiter {
            Delimiter::NoBody => {}
            Delimiter::Length(left) => {
                self.delimiter = Delimiter::Length(self.count_off(left, data.len() as u64)?);
                out.extend_from_slice(data);
            }
            Delimiter::Chunked if data.is_empty() => {}
            Delimiter::Chunked if self.request.version == Version::Http2 => {
                segment::write_part(data.len() as u64, out);
                out.extend_from_slice(data);
            }
            Delimiter::Chunked => encode::write_chunk(data, out),
            Delimiter::Close => out.extend_from_slice(data),
        }
        Ok(())
    }

    /// Prepares to send `bytes` of the body, not 0, past `out`. Appends what precedes these bytes, and returns what
    /// must follow them. The caller sends the three in this order.
    ///
    /// # Errors
    /// The errors of [`write_body`](Http1::write_body). Nothing is appended then.
    pub fn begin_part(&mut self, bytes: u64, out: &mut Vec<u8>) -> Result<&'static [u8], Misuse> {
        self.writing = self.writing.next(WriteEvent::Body)?;
        match self.delimiter {
            Delimiter::NoBody | Delimiter::Close => Ok(b""),
            Delimiter::Length(left) => {
                self.delimiter = Delimiter::Length(self.count_off(left, bytes)?);
                Ok(b"")
            }
            Delimiter::Chunked if self.request.version == Version::Http2 => {
                segment::write_part(bytes, out);
                Ok(b"")
            }
            Delimiter::Chunked => {
                encode::write_chunk_size(bytes, out);
                Ok(b"\r\n")
            }
        }
    }

    /// Whether all is written of a body whose length the head has declared. One without a declared length is over at
    /// [`finish`](Http1::finish) only.
    pub fn has_written_all(&self) -> bool {
        self.delimiter == Delimiter::Length(0)
    }

    /// `bytes` of an Exact body were (or will be) sent past `out`.
    ///
    /// # Errors
    /// [`Misuse::TooManyBytes`] if the head declared fewer bytes. [`Misuse::BypassWithoutLength`] if it declared no
    /// length.
    pub fn body_bypassed(&mut self, bytes: u64) -> Result<(), Misuse> {
        self.writing = self.writing.next(WriteEvent::Body)?;
        match self.delimiter {
            Delimiter::NoBody => Ok(()),
            Delimiter::Length(left) => {
                self.delimiter = Delimiter::Length(self.count_off(left, bytes)?);
                Ok(())
            }
            Delimiter::Chunked | Delimiter::Close => Err(Misuse::BypassWithoutLength),
        }
    }

    /// A writer that has lost count is not trusted with a next response.
    fn count_off(&mut self, left: u64, bytes: u64) -> Result<u64, Misuse> {
        self.keep_alive.and(bytes <= left);
        left.checked_sub(bytes).ok_or(Misuse::TooManyBytes)
    }

    /// The body is whole: appends the last chunk and trailers, or checks that all declared bytes were
    /// written. Trailers are dropped where the client cannot take them: from responses to HEAD and to
    /// HTTP/1.0.
    ///
    /// # Errors
    /// [`Misuse::TooFewBytes`]: the connection has to be closed at once. Trailers that must not be sent:
    /// nothing is written, and `finish` may be tried again without them. Out of turn.
    #[inline]
    pub fn finish(
        &mut self,
        trailers: &[(HeaderName, HeaderValue)],
        out: &mut Vec<u8>,
    ) -> Result<After, Misuse> {
        let writing = self.writing.next(WriteEvent::Finish)?;
        if let Delimiter::Length(1..) = self.delimiter {
            self.writing = self.writing.next(WriteEvent::Break)?;
            self.keep_alive.and(false);
            return Err(Misuse::TooFewBytes);
        }
        encode::trailers(self.delimiter, trailers)?;
        if self.delimiter == Delimiter::Chunked {
            match self.request.version {
                Version::Http2 if trailers.is_empty() => segment::write_end(out),
                Version::Http2 => segment::write_trailers(out, |out| encode::write_block(trailers, out)),
                _ => encode::write_last_chunk(trailers, out),
            }
        }
        self.writing = writing;
        Ok(after(self.reading, self.keep_alive))
    }

    /// The body in progress would end where the connection does, and it is not over: an end in good order would make
    /// it look whole (RFC 9112 §8).
    pub fn is_cut_short(&self) -> bool {
        self.writing == Writing::Body && self.delimiter == Delimiter::Close
    }

    /// The body in progress goes out in chunks: trailers can follow it.
    pub fn sends_chunks(&self) -> bool {
        self.writing == Writing::Body && self.delimiter == Delimiter::Chunked
    }

    /// Ready for the next request on this connection: after [`After::Next`], or [`After::Drain`] and the
    /// body's end. At any other time it does nothing.
    #[inline]
    pub fn next_request(&mut self) {
        if after(self.reading, self.keep_alive) != After::Next {
            return;
        }
        if let Ok(writing) = self.writing.next(WriteEvent::NextRequest) {
            self.writing = writing;
            self.reading = self.reading.next(ReadEvent::NextRequest);
            self.request = RequestFacts::default();
            if !matches!(self.body, BodyReader::Over) {
                self.body = BodyReader::Over;
            }
        }
    }

    /// The connection ends after the response in progress, or the next one, which says so if its head is not
    /// written yet. There is no way back.
    #[inline]
    pub fn close_after(&mut self) {
        self.keep_alive.and(false);
    }
}

/// RFC 9110 §9.3.2: whatever is wrong with it, the answer to a HEAD has no content.
fn begins_head(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"\r\n").unwrap_or(bytes).starts_with(b"HEAD ")
}

#[cfg(test)]
mod tests;
