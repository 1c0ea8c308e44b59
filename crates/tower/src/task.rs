//! A request as a task of tokio.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use weftwork::{IntoResponse, Problem, Response};

/// Starts a task, and returns its end. The task is aborted if that is dropped, unless it `is_detached`.
pub(crate) fn run(
    handle: &Handle,
    future: impl Future<Output = Response> + Send + 'static,
    is_detached: bool,
) -> impl Future<Output = Response> + Send + 'static {
    Task { handle: handle.spawn(future), is_detached }
}

struct Task {
    handle: JoinHandle<Response>,
    is_detached: bool,
}

impl Future for Task {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        Poll::Ready(match ready!(Pin::new(&mut self.handle).poll(cx)) {
            Ok(response) => response,
            Err(error) => match error.try_into_panic() {
                // A panic of the service is a panic of the handler.
                Ok(panic) => resume_unwind(panic),
                Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE)
                    .detail("the runtime of this service has ended")
                    .into_response(),
            },
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_detached {
            self.handle.abort();
        }
    }
}
