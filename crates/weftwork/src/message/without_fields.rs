//! Presents a request without some of its fields.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weftwork_wire::Head;

use super::body::BodyError;
use super::decoding::take_data;
use super::exchange::{Exchange, forward_the_response, forward_the_rest};
use super::owned_body::OwnedBody;
use super::request::Request;
use super::response::Response;

/// Runs a handler that sees `req` without the fields of these names, which are in lower case.
pub(crate) fn without_fields(
    req: &mut Request<'_>,
    names: &[HeaderName],
    next: impl FnOnce(&mut Request<'_>) -> Response,
) -> Response {
    let (head, bytes) = req.exchange.head();
    let mut head = head.clone();
    let is_hidden =
        |name: &[u8]| names.iter().any(|hidden| name.eq_ignore_ascii_case(hidden.as_str().as_bytes()));
    head.fields.retain(|field| !is_hidden(field.name.of(bytes)));
    let (deadline, data) = (req.deadline, take_data(req));
    let mut view = HeadView { head, below: req.exchange };
    let mut inner = Request { exchange: &mut view, deadline, data };
    // Outer middleware reads this from the request, even after the handler has panicked.
    let answered = catch_unwind(AssertUnwindSafe(|| next(&mut inner)));
    let (deadline, data) = (inner.deadline, take_data(&mut inner));
    (req.deadline, req.data) = (deadline, data);
    answered.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Exchange with another head. The body is the same, so the writer of a streamed response needs no view.
struct HeadView<'a> {
    head: Head,
    below: &'a mut dyn Exchange,
}

impl Exchange for HeadView<'_> {
    fn head(&self) -> (&Head, &[u8]) {
        (&self.head, self.below.head().1)
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        self.below.fill()
    }

    fn fills_within(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        self.below.fills_within(timeout)
    }

    fn consume(&mut self, count: usize) {
        self.below.consume(count);
    }

    fn take_into(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.below.take_into(into)
    }

    fn take_body(&mut self) -> OwnedBody {
        self.below.take_body()
    }

    fn body_left(&self) -> Option<u64> {
        self.below.body_left()
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.below.trailers()
    }

    forward_the_response!();
    forward_the_rest!();
}
