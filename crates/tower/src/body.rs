//! The body of a request as a service of tower reads it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weftwork::{BodyError, OwnedBody, Request};

/// Body of a request for a service of tower. It is read as it arrives, also while the response is sent.
///
/// Its error is [`BodyError`]. A service that passes the error on by `?` has the status in [`BodyError::status`].
pub struct RequestBody {
    body: OwnedBody,
    /// Whether nothing follows.
    is_over: bool,
}

impl RequestBody {
    /// Takes the body of a request.
    pub(crate) fn take(req: &mut Request<'_>) -> RequestBody {
        RequestBody { body: req.take_body(), is_over: false }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let chunk = ready!(self.body.poll_chunk(cx));
        self.is_over = !matches!(chunk, Some(Ok(_)));
        Poll::Ready(match chunk {
            Some(chunk) => Some(chunk.map(Frame::data)),
            None => {
                let fields = self.body.trailers();
                (!fields.is_empty()).then(|| Ok(Frame::trailers(fields.iter().cloned().collect())))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.body_left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.body_left() {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("is_end_stream", &self.is_end_stream()).finish_non_exhaustive()
    }
}
