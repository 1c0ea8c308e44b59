//! The body of a request as a service of tower reads it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use weftwork::{BodyError, Request};

/// Body of a request for a service of tower.
///
/// Its error is [`BodyError`]. A service that passes the error on by `?` has the status in [`BodyError::status`].
pub struct RequestBody {
    data: Bytes,
    trailers: Option<HeaderMap>,
    failed: Option<BodyError>,
}

impl RequestBody {
    /// Takes the body of a request.
    pub(crate) fn take(req: &mut Request<'_>) -> RequestBody {
        match req.body().bytes() {
            Ok(data) => RequestBody { data, trailers: trailers_of(req), failed: None },
            Err(error) => RequestBody { failed: Some(error), ..RequestBody::empty() },
        }
    }

    fn empty() -> RequestBody {
        RequestBody { data: Bytes::new(), trailers: None, failed: None }
    }
}

fn trailers_of(req: &Request<'_>) -> Option<HeaderMap> {
    let fields = req.trailers();
    (!fields.is_empty()).then(|| fields.iter().cloned().collect())
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(self.trailers.take().map(|fields| Ok(Frame::trailers(fields))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none() && self.failed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.failed {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.data.len() as u64),
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("is_end_stream", &self.is_end_stream()).finish_non_exhaustive()
    }
}
