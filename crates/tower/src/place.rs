//! Polls the future of a request in place or in a runtime, and also what no connection polls.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
#[cfg(feature = "tokio")]
use weftwork::IntoResponse;
use weftwork::{Feed, Problem, Response};

#[cfg(feature = "tokio")]
use weftwork_tokio::{Tokio, within};

type Pending = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A runtime of tokio, or none.
#[derive(Clone)]
pub(crate) struct Place {
    #[cfg(feature = "tokio")]
    tokio: Option<Tokio>,
    #[cfg(feature = "tokio")]
    is_spawned: bool,
}

impl Place {
    /// Returns the runtime of this thread, or the shared one.
    pub(crate) fn here() -> Place {
        Place {
            #[cfg(feature = "tokio")]
            tokio: runtime(),
            #[cfg(feature = "tokio")]
            is_spawned: false,
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn on(self, tokio: Tokio) -> Place {
        Place { tokio: Some(tokio), ..self }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn spawned(self) -> Place {
        Place { is_spawned: true, ..self }
    }

    /// Returns the response of the future. See [`Response::when`].
    pub(crate) fn poll(
        &self,
        future: impl Future<Output = Response> + Send + 'static,
        is_detached: bool,
        timeout: Option<Duration>,
    ) -> Response {
        #[cfg(feature = "tokio")]
        if let Some(tokio) = &self.tokio {
            if self.is_spawned {
                let task = crate::task::run(tokio.handle(), future, is_detached);
                return when(async { task.await.unwrap_or_else(response_of) }, timeout);
            }
            return self.poll_here(within(tokio.handle().clone(), future), is_detached, timeout);
        }
        self.poll_here(future, is_detached, timeout)
    }

    fn poll_here(
        &self,
        future: impl Future<Output = Response> + Send + 'static,
        is_detached: bool,
        timeout: Option<Duration>,
    ) -> Response {
        if is_detached {
            return when(Detached { future: Some(Box::pin(future)), place: self.clone() }, timeout);
        }
        when(future, timeout)
    }

    /// Fills a feed by a future that has its sender.
    pub(crate) fn fill(&self, feed: Feed, future: impl Future<Output = ()> + Send + 'static) -> Feed {
        #[cfg(feature = "tokio")]
        if let Some(tokio) = &self.tokio {
            if self.is_spawned {
                let task = crate::task::run(tokio.handle(), future, false);
                // A panic of a task is reported by tokio, and its sender has cut the feed.
                return feed.with_source(async { drop(task.await) });
            }
            return feed.with_source(within(tokio.handle().clone(), future));
        }
        feed.with_source(future)
    }

    /// Polls a future that no connection polls, until its end.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "tokio")]
        if let Some(tokio) = &self.tokio {
            tokio.handle().spawn(task);
            return;
        }
        crate::executor::spawn(task);
    }
}

/// Returns the response to a request whose task has no end.
#[cfg(feature = "tokio")]
fn response_of(error: tokio::task::JoinError) -> Response {
    match error.try_into_panic() {
        // A panic of the service is a panic of the handler.
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE)
            .detail("the runtime of this service has ended")
            .into_response(),
    }
}

/// A server without a runtime answers what needs none.
#[cfg(feature = "tokio")]
fn runtime() -> Option<Tokio> {
    Tokio::current().or_else(|_| Tokio::shared()).ok()
}

fn when(future: impl Future<Output = Response> + Send + 'static, timeout: Option<Duration>) -> Response {
    match timeout {
        None => Response::when(future),
        Some(timeout) => {
            let late =
                Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail("the response was not ready in time");
            Response::when_within(timeout, late, future)
        }
    }
}

/// A future that goes on elsewhere when its connection drops it.
struct Detached {
    /// None after its end, and if it has panicked.
    future: Option<Pending>,
    place: Place,
}

impl Future for Detached {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.place.spawn(async move { drop(future.await) });
        }
    }
}
