//! A future as a task of tokio.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// Starts a task, and returns its end. The task is aborted if that is dropped, unless it `is_detached`.
pub(crate) fn run<T: Send + 'static>(
    handle: &Handle,
    future: impl Future<Output = T> + Send + 'static,
    is_detached: bool,
) -> Task<T> {
    Task { handle: handle.spawn(future), is_detached }
}

pub(crate) struct Task<T> {
    handle: JoinHandle<T>,
    is_detached: bool,
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(cx)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.handle.abort();
        }
    }
}
