//! A response that a future provides. The connection that waits for the response polls the future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};

use super::Provider;
use crate::message::drop_caught::Guarded;
use crate::message::into_response::IntoResponse;
use crate::message::pending_future::{PendingFuture, PollInto};
use crate::message::problem::Problem;
use crate::message::response::Response;

impl Response {
    /// Returns the response of a future. The future is polled here, and if it is not ready, in the connection's event loop
    /// whenever it was woken. No thread and no executor is held meanwhile. Use it for async clients of which very many wait at a time.
    ///
    /// A poll that blocks is a handler that blocks: the engine `adaptive` hands its loop to another thread, and the loop of a
    /// `reactor` waits. In the engine `workers`, the connection keeps the thread that it has anyway. Futures of tokio need the context of
    /// a runtime in each poll.
    ///
    /// The future has [`request_timeout`](crate::Settings::request_timeout), or 60 s if that is 0. The client then gets
    /// 503. [`when_within`](Response::when_within) takes another limit. When the server stops, the response counts as a
    /// request in flight for at most [`drain_timeout`](crate::Settings::drain_timeout). When the client closes its side of the
    /// connection or resets its stream, the future is dropped. A panic in a poll is a panic of the handler.
    ///
    /// Middleware sees the response of a future that is ready at once. Otherwise it sees an empty 503 as the placeholder, as
    /// with [`later_with`](Response::later_with).
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// async fn greeting(name: String) -> String {
    ///     format!("hello {name}\n")
    /// }
    ///
    /// fn hello(req: &mut Request) -> Response {
    ///     let name = req.path().trim_start_matches('/').to_owned();
    ///     Response::when(greeting(name))
    /// }
    /// let answer = weftwork::TestClient::new(hello).get("/you").send();
    /// assert_eq!(answer.text(), "hello you\n");
    /// ```
    pub fn when<F>(future: F) -> Response
    where
        F: Future + Send + 'static,
        F::Output: IntoResponse,
    {
        when(future, |pending| {
            let placeholder = Response::new(StatusCode::SERVICE_UNAVAILABLE);
            placeholder.after(None, pending).with_otherwise(Box::new(|_| too_late()))
        })
    }

    /// Returns the response of a future as [`when`](Response::when) does, or `otherwise` after `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    ///
    /// fn news(_: &mut Request) -> Response {
    ///     let never = std::future::pending::<String>();
    ///     Response::when_within(Duration::from_secs(20), StatusCode::NO_CONTENT, never)
    /// }
    /// let mut client = weftwork::TestClient::new(news).connect();
    /// client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    /// client.advance(Duration::from_secs(20));
    /// assert_eq!(client.response().status, StatusCode::NO_CONTENT);
    /// ```
    pub fn when_within<F>(timeout: Duration, otherwise: impl IntoResponse, future: F) -> Response
    where
        F: Future + Send + 'static,
        F::Output: IntoResponse,
    {
        when(future, move |pending| otherwise.into_response().after(Some(timeout), pending))
    }
}

impl<F> PollInto<Response> for F
where
    F: Future + Send,
    F::Output: IntoResponse,
{
    fn poll_into(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        self.poll(cx).map(IntoResponse::into_response)
    }
}

/// Polls the future. If the future is pending, `wait` makes the response that waits for it.
fn when<F>(future: F, wait: impl FnOnce(Provider) -> Response) -> Response
where
    F: Future + Send + 'static,
    F::Output: IntoResponse,
{
    let mut wait = Guarded::new(wait);
    let mut future = PendingFuture::new(future);
    match future.poll() {
        Poll::Ready(()) => future.take_output().map_or_else(Response::server_error, |response| *response),
        Poll::Pending => match wait.take() {
            Some(wait) => wait(Provider::Future(future)),
            None => Response::server_error(),
        },
    }
}

fn too_late() -> Response {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail("the response was not ready in time");
    problem.into_response().with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}
