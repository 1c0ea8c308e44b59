//! An alternative response that depends on why it is sent.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::{Core, Provider, ResponseSender};
use crate::message::into_response::IntoResponse;
use crate::message::response::Response;

/// Makes the alternative response.
pub(super) type OtherwiseFn = Box<dyn FnOnce(LaterReason) -> Response + Send>;

/// Reason for the alternative response of [`Response::later_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaterReason {
    /// The response was not sent in time.
    Timeout,
    /// The sender was dropped without a response. For example, its task has panicked.
    SenderDropped,
    /// The server stops, and the response is [endless](Response::endless). Other responses still have
    /// [`drain_timeout`](crate::Settings::drain_timeout).
    ShuttingDown,
}

impl Response {
    /// Returns a response that another thread sends, as [`later`](Response::later) does. The alternative is made when it
    /// is needed, by a function that is told why. It runs as a handler does: a panic in it is a 500. A `timeout` of
    /// [`Duration::MAX`] is no limit.
    ///
    /// Middleware sees an empty 503 as the placeholder. Headers that middleware adds are sent with the final response.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    /// use weftwork::LaterReason;
    ///
    /// fn report(_: &mut Request) -> Response {
    ///     let (sender, response) = Response::later_with(Duration::from_secs(20), |reason| match reason {
    ///         LaterReason::Timeout => StatusCode::GATEWAY_TIMEOUT,
    ///         LaterReason::SenderDropped => StatusCode::INTERNAL_SERVER_ERROR,
    ///         _ => StatusCode::SERVICE_UNAVAILABLE,
    ///     });
    ///     drop(sender);       // as by a task that panics
    ///     response
    /// }
    /// assert_eq!(weftwork::TestClient::new(report).get("/").send().status, 500);
    /// ```
    pub fn later_with<R: IntoResponse>(
        timeout: Duration,
        otherwise: impl FnOnce(LaterReason) -> R + Send + 'static,
    ) -> (ResponseSender, Response) {
        let core = Arc::new(Core::default());
        let placeholder = Response::new(StatusCode::SERVICE_UNAVAILABLE);
        let response = placeholder.after(Some(timeout), Provider::Sender(core.clone()));
        let response = response.with_otherwise(Box::new(move |reason| otherwise(reason).into_response()));
        (ResponseSender { core }, response)
    }

    /// Replaces the alternative of a response that is sent later by one that is made when it is needed.
    pub(super) fn with_otherwise(mut self, otherwise: OtherwiseFn) -> Response {
        if let Some(later) = self.later_mut() {
            later.otherwise_with = Some(otherwise);
        }
        self
    }
}
