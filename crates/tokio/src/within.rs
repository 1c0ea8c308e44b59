//! A future that is polled in the context of a runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::runtime::Handle;

/// A future that enters the context of a runtime in each poll. See [`within`].
pub struct Within<F> {
    handle: Handle,
    /// None after it was dropped.
    future: Option<Pin<Box<F>>>,
}

/// Wraps a future so that each poll, and its drop, enters the context of a runtime. Any executor may poll it, such as
/// [`weftwork::wait`].
pub fn within<F: Future>(handle: Handle, future: F) -> Within<F> {
    Within { handle, future: Some(Box::pin(future)) }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let within = &mut *self;
        let _guard = within.handle.enter();
        match &mut within.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Within<F> {
    /// What a future holds may spawn tasks when it is dropped: a transaction of a database, for example.
    fn drop(&mut self) {
        let _guard = self.handle.enter();
        self.future = None;
    }
}

impl<F> fmt::Debug for Within<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("handle", &self.handle).finish_non_exhaustive()
    }
}
