//! Tells the sender of a later response that its client has gone.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Core, ResponseSender};
use crate::message::listeners::run;

impl ResponseSender {
    /// Calls `call` once, when the connection waits for this response no longer: its client has left, its time is up, or it has
    /// the response. If that is so already, `call` runs at once, on this thread. Use it to cancel a query of which nobody
    /// reads the result.
    ///
    /// It runs on the thread that finds out, often in an event loop. It must not block, and a panic in it is logged. A client that has closed only its
    /// sending side still gets its response, unless the response is [`endless`](crate::Response::endless).
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use weftwork::prelude::*;
    /// let (sender, response) = Response::later(Duration::from_secs(20), StatusCode::NO_CONTENT);
    /// let (tell, told) = channel();
    /// sender.on_closed(move || tell.send("cancel").unwrap());
    /// drop(response);                         // the client has left
    /// assert_eq!(told.recv(), Ok("cancel"));
    /// ```
    pub fn on_closed(&self, call: impl FnOnce() + Send + 'static) {
        let call = Box::new(call);
        let mut state = self.core.lock();
        if state.is_released {
            drop(state);
            return run(call);
        }
        state.listeners.add_call(call);
    }

    /// Returns a future that is ready when [`on_closed`](ResponseSender::on_closed) would call, for any runtime. It may outlive
    /// the sender.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let core = Arc::clone(&self.core);
        poll_fn(move |cx| core.poll_closed(cx))
    }
}

impl Core {
    fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        // Cloning and dropping a waker runs code of its executor, so no lock is held.
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if state.is_released {
            drop(state);
            return Poll::Ready(());
        }
        let unused = state.listeners.add_waker(waker);
        drop(state);
        drop(unused);
        Poll::Pending
    }
}
