//! The shape that the user gives to the responses of the library itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use http::StatusCode;

use super::drop_caught::drop_payload;
use super::headers::OF_CONTENT;
use super::into_response::IntoResponse;
use super::problem::Problem;
use super::request::Request;
use super::response::{Payload, Response};
use crate::error::{OneLine, panic_message};
use crate::transport::log_queue::log_line;

type Shape = dyn Fn(StatusCode, &Problem, Option<&Request<'_>>) -> Response + Send + Sync;

/// Function of the user that makes a response of a problem.
#[derive(Clone)]
pub(crate) struct ProblemShape(Arc<Shape>);

impl ProblemShape {
    pub(crate) fn new<R: IntoResponse>(
        shape: impl Fn(StatusCode, &Problem, Option<&Request<'_>>) -> R + Send + Sync + 'static,
    ) -> ProblemShape {
        ProblemShape(Arc::new(move |status, problem, req| shape(status, problem, req).into_response()))
    }

    /// Returns the response in the shape of the user, if it has a problem. If the function panics, the response stays.
    pub(crate) fn apply(&self, response: Response, req: Option<&Request<'_>>) -> Response {
        let Some(problem) = response.problem() else { return response };
        match catch_unwind(AssertUnwindSafe(|| (self.0)(response.status, &problem, req))) {
            Ok(shaped) => response.in_shape_of(shaped),
            Err(panic) => {
                // The engine unwinds a fiber that it ends, and that is no panic.
                if req.is_some_and(|req| req.exchange.status_of_panic(&*panic).is_none()) {
                    resume_unwind(panic);
                }
                log_line!(
                    Error,
                    "the function of Server::problems panicked: {}",
                    OneLine(panic_message(&*panic))
                );
                drop_payload(panic);
                response
            }
        }
    }

    /// Makes a response of a problem, with a body in memory. Any other body becomes the usual one of the problem.
    pub(crate) fn whole(&self, problem: &Problem, req: Option<&Request<'_>>) -> Response {
        let shaped = self.apply(problem.clone().into_response(), req);
        if matches!(shaped.payload, Payload::Bytes(_) | Payload::Empty) {
            return shaped;
        }
        let status = problem.status().as_u16();
        log_line!(
            Error,
            "the function of Server::problems must return text or bytes for this {status}, so the default shape is sent"
        );
        problem.clone().into_response()
    }
}

impl Response {
    /// Takes status, body and headers of `shaped`. Its own other headers stay, and so do its error for the log and its
    /// extensions. A success is no status for a problem.
    fn in_shape_of(mut self, shaped: Response) -> Response {
        let Response { status, content_type, fields, payload, close, .. } = shaped;
        self.fields.retain(|(name, _)| !OF_CONTENT.contains(name));
        if !status.is_success() {
            self.status = status;
        }
        self.declined = false;
        self.close |= close;
        self.content_type = content_type;
        self.replace_headers(fields);
        match (payload, &mut self.payload) {
            (Payload::Bytes(body), Payload::HandlerError(failed)) => failed.body = body,
            (payload, own) => *own = payload,
        }
        self
    }
}

impl fmt::Debug for ProblemShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProblemShape").finish_non_exhaustive()
    }
}
