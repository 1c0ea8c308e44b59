//! Filters between the writer of a streamed body and the client. They count, change or end the stream.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::Head;

use super::body::BodyError;
use super::drop_caught::Guarded;
use super::exchange::{Exchange, forward_the_rest};
use super::response::{LongLived, Payload, Response};
use super::writer::BodyWriter;
use crate::error::Error;

/// Sees every byte of a streamed body. See [`Response::filter_stream`].
pub trait StreamFilter: Send + 'static {
    /// Passes `data` on to `out` in any form. It may keep a part for later.
    ///
    /// # Errors
    /// Errors of `out`, and errors of the filter. Each ends the response and its connection.
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()>;

    /// Passes on all bytes that were kept, because the writer flushes or waits for the client.
    ///
    /// # Errors
    /// See [`write`](StreamFilter::write).
    fn sync(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Passes on the trailer fields that apply to the filtered body. See [`BodyWriter::trailers`]. Returns false if
    /// some fields are not sent.
    ///
    /// # Errors
    /// See [`write`](StreamFilter::write).
    fn trailers(
        &mut self,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut BodyWriter<'_>,
    ) -> io::Result<bool> {
        out.trailers(fields)
    }

    /// Ends the body. The writer has finished without an error.
    ///
    /// # Errors
    /// See [`write`](StreamFilter::write).
    fn finish(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Reports that the writer or a filter has failed or panicked. If nothing was sent, the client gets an error with
    /// the status `instead`. Otherwise the connection closes.
    fn failed(&mut self, instead: Option<StatusCode>) {
        let _ = instead;
    }

    /// Reports the response that was sent [later](Response::later) in place of the filtered one. If its body is
    /// streamed, the body follows. Otherwise the filter is dropped now.
    fn answered(&mut self, response: &Response) {
        let _ = response;
    }
}

impl StreamFilter for Box<dyn StreamFilter> {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        (**self).write(data, out)
    }

    fn sync(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        (**self).sync(out)
    }

    fn trailers(
        &mut self,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut BodyWriter<'_>,
    ) -> io::Result<bool> {
        (**self).trailers(fields, out)
    }

    fn finish(&mut self, out: &mut BodyWriter<'_>) -> io::Result<()> {
        (**self).finish(out)
    }

    fn failed(&mut self, instead: Option<StatusCode>) {
        (**self).failed(instead);
    }

    fn answered(&mut self, response: &Response) {
        (**self).answered(response);
    }
}

impl Response {
    /// Returns whether this response stands in for one that is sent later.
    pub(crate) fn is_to_come(&self) -> bool {
        matches!(&self.payload, Payload::LongLived(long_lived) if matches!(**long_lived, LongLived::Deferred(_)))
    }

    /// Sends a body that the handler's thread [streams](Response::stream) through `filter`. Bodies in memory and feeds
    /// are not filtered. If a response is sent [later](Response::later), its body is filtered.
    ///
    /// If a filter changes the number of bytes, it must remove a `Content-Length` field. The filter is dropped when the
    /// body has ended, has failed, or is not written (for HEAD).
    ///
    /// ```
    /// use std::io::{self, Write};
    /// use weftwork::{BodyWriter, Response, StreamFilter};
    ///
    /// struct Shout;
    /// impl StreamFilter for Shout {
    ///     fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
    ///         out.write_all(&data.to_ascii_uppercase())
    ///     }
    /// }
    /// let answer = Response::stream(|out| out.write_all(b"hello")).filter_stream(Shout);
    /// ```
    #[must_use]
    pub fn filter_stream(mut self, filter: impl StreamFilter) -> Response {
        if let Payload::LongLived(long_lived) = &mut self.payload
            && let LongLived::Deferred(later) = &mut **long_lived
        {
            later.add_filter(filter);
            return self;
        }
        if let Payload::Stream(write) = self.payload {
            let mut filter = Guarded::new(filter);
            self.payload = Payload::Stream(Box::new(move |out| {
                let mut written = Guarded::new(catch_unwind(AssertUnwindSafe(|| {
                    write(&mut BodyWriter::new(&mut Filtered {
                        filter: &mut *filter,
                        below: out.exchange(),
                    }))?;
                    filter.finish(out)
                })));
                let exchange = out.exchange();
                let instead = match &*written {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => Some(Error::status_of(error)),
                    Err(panic) => exchange.status_of_panic(&**panic),
                };
                filter.failed(instead.filter(|_| !exchange.has_begun()));
                match written.take() {
                    Some(Err(panic)) => resume_unwind(panic),
                    Some(Ok(written)) => written,
                    None => Ok(()),
                }
            }));
        }
        self
    }
}

#[cfg(feature = "compression")]
impl Response {
    /// Returns whether the body can go through filters, or is in memory.
    pub(crate) fn is_filterable(&self) -> bool {
        matches!(self.payload, Payload::Bytes(_) | Payload::File { .. } | Payload::Stream(_))
    }

    /// Streams a file body, so that the handler's thread reads and writes the file instead of the engine.
    pub(crate) fn into_stream(mut self) -> Response {
        if let Payload::File { file, offset, count, .. } = self.payload {
            self.payload = Payload::Stream(Box::new(move |out| copy(&file, offset, count, out)));
        }
        self
    }
}

#[cfg(feature = "compression")]
fn copy(file: &std::fs::File, mut offset: u64, count: u64, out: &mut BodyWriter<'_>) -> io::Result<()> {
    let end = offset + count;
    let mut part = vec![0; 64 << 10];
    while offset < end {
        let wanted = part.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let read = std::os::unix::fs::FileExt::read_at(file, &mut part[..wanted], offset)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        io::Write::write_all(out, &part[..read])?;
        offset += read as u64;
    }
    Ok(())
}

/// Exchange of a filtered writer.
struct Filtered<'a> {
    filter: &'a mut dyn StreamFilter,
    below: &'a mut dyn Exchange,
}

impl Filtered<'_> {
    /// The client may wait for the written bytes before it sends more.
    fn send_all(&mut self) -> Result<(), BodyError> {
        let passed = self.filter.sync(&mut BodyWriter::new(self.below));
        passed.map_err(|error| BodyError::Socket(error.kind()))
    }
}

impl Exchange for Filtered<'_> {
    fn head(&self) -> (&Head, &[u8]) {
        self.below.head()
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        self.send_all()?;
        self.below.fill()
    }

    fn fills_within(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        self.send_all()?;
        self.below.fills_within(timeout)
    }

    fn take_into(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.send_all()?;
        self.below.take_into(into)
    }

    fn consume(&mut self, count: usize) {
        self.below.consume(count);
    }

    fn body_left(&self) -> Option<u64> {
        self.below.body_left()
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.below.trailers()
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.filter.write(data, &mut BodyWriter::new(self.below))
    }

    fn send_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        self.filter.trailers(fields, &mut BodyWriter::new(self.below))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.filter.sync(&mut BodyWriter::new(self.below))?;
        self.below.flush()
    }

    fn pause(&mut self, timeout: Duration) -> io::Result<bool> {
        self.filter.sync(&mut BodyWriter::new(self.below))?;
        self.below.pause(timeout)
    }

    forward_the_rest!();
}
