//! Waits of a handler for a future, which end with its client.

use std::fmt;
use std::future::Future;
use std::pin::pin;

use http::StatusCode;

use super::into_response::IntoResponse;
use super::request::Request;
use super::response::Response;
use crate::error::{Error, ErrorClass};

/// The wait for a future has ended without its output. See [`Request::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The client has left: 400, which is never seen.
    ClientGone,
    /// The [deadline](Request::deadline) of the request has passed: 503.
    Timeout,
    /// The server cuts its connections: 503.
    ShuttingDown,
    /// All threads are busy (`threads_max`), or no descriptor is free: 503.
    Overload,
}

impl WaitError {
    /// Returns the status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            WaitError::ClientGone => StatusCode::BAD_REQUEST,
            WaitError::Timeout | WaitError::ShuttingDown | WaitError::Overload => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    pub(crate) fn class(&self) -> ErrorClass {
        ErrorClass::Client(self.status())
    }
}

/// Formats the text for the client.
impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitError::ClientGone => "the client has left",
            WaitError::Timeout => "the response was not ready in time",
            WaitError::ShuttingDown => "the server is stopping",
            WaitError::Overload => "the server is too busy to wait",
        })
    }
}

impl std::error::Error for WaitError {}

impl IntoResponse for WaitError {
    fn into_response(self) -> Response {
        Error::from(self).into_response()
    }
}

impl Request<'_> {
    /// Waits for a future as [`wait`](crate::wait) does, but no longer than somebody waits for the response. The future
    /// is dropped when the client leaves, and when the [`deadline`](Request::deadline) of the request has passed. So a query of an async client
    /// is cancelled as it is in an async handler. The future may borrow from the request.
    ///
    /// A client that has closed only its sending side counts as one that has left, as in [`client_gone`](Request::client_gone).
    /// Over HTTP/2, a client leaves by a reset of its stream. In the engine `reactor`, the loop waits.
    ///
    /// # Errors
    /// [`WaitError`] says why the wait has ended. With `?`, it becomes the response.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    ///
    /// async fn price(tea: &str) -> usize {
    ///     tea.len()
    /// }
    ///
    /// fn show(req: &mut Request) -> Result<String> {
    ///     req.set_deadline(req.now() + Duration::from_secs(2));
    ///     let price = req.wait(price(req.path()))?;
    ///     Ok(format!("{price}\n"))
    /// }
    /// assert_eq!(weftwork::TestClient::new(show).get("/assam").send().text(), "6\n");
    /// ```
    pub fn wait<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        let mut output = None;
        {
            let future = pin!(async { output = Some(future.await) });
            self.exchange.wait_for(future, self.deadline())?;
        }
        Ok(output.unwrap_or_else(|| unreachable!("the future has returned")))
    }
}
