//! Provides `wait`, with which a handler waits for a future in every engine.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::blocking::hook;
use crate::message::thread_wakeup::ThreadWakeup;
use crate::message::{FeedClosed, FeedSender};

/// Waits for a future, and returns its output. The future is polled here. If it is not ready, the engine first
/// makes sure that other requests go on. The future may borrow, and need not be `Send`.
///
/// | engine | while the future is not ready |
/// |---|---|
/// | adaptive | the event loop is handed to another thread, then this one waits |
/// | fibers | the fiber is suspended |
/// | reactor, workers, pool | the thread waits; in the reactor its loop waits |
/// | outside of a handler | the thread waits |
///
/// If very many clients wait at a time, return [`Response::when`](crate::Response::when), which needs no thread. Futures of
/// tokio need the context of a runtime in each poll.
///
/// ```
/// use weftwork::prelude::*;
///
/// async fn price(tea: &str) -> usize {
///     tea.len()
/// }
///
/// fn show(req: &mut Request) -> String {
///     let price = weftwork::wait(price(req.path()));
///     format!("{price}\n")
/// }
/// assert_eq!(weftwork::TestClient::new(show).get("/assam").send().text(), "6\n");
/// ```
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wakeup = Arc::new(ThreadWakeup::new(None));
    let waker = Waker::from(wakeup.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        match hook() {
            Some(hook) => hook.park(&wakeup),
            None => wakeup.park(),
        }
        wakeup.clear();
    }
}

impl FeedSender {
    /// Sends a message, after a wait until there is [`room`](FeedSender::room). The queue of a slow client then holds up its
    /// sender, and does not overflow. Any number of threads may send so to one client. The wait is that of [`wait`]. An empty message is
    /// ignored.
    ///
    /// Call it on a thread of your own, or in a call of [`blocking`](crate::blocking). Before the handler has returned the
    /// response of the feed, nobody takes its messages, and the handler would wait for itself. In a handler of the engine `reactor`, the loop
    /// that waits may be the one of the client.
    ///
    /// # Errors
    /// [`FeedClosed`]: the client has left or was disconnected, the feed was closed, or the server cuts its connections. This
    /// also ends a wait.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// use weftwork::{Feed, FeedLimits};
    ///
    /// fn export(_: &mut Request) -> Response {
    ///     let (sender, feed) = Feed::new(FeedLimits::default());
    ///     std::thread::spawn(move || {
    ///         for row in 0..1000 {
    ///             if sender.send_blocking(format!("{row}\n")).is_err() {
    ///                 return;     // nobody reads it any more
    ///             }
    ///         }
    ///     });
    ///     Response::feed(feed)
    /// }
    /// # let server = Server::bind("127.0.0.1:0")?.start(export)?;
    /// # let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
    /// # std::io::Write::write_all(&mut client, b"GET / HTTP/1.0\r\n\r\n")?;
    /// # assert!(std::io::read_to_string(client)?.ends_with("\n999\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_blocking(&self, message: impl Into<Bytes>) -> Result<(), FeedClosed> {
        let mut message = message.into();
        wait(poll_fn(|cx| self.poll_send(&mut message, cx)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_future_is_polled_until_it_is_ready() {
        let mut polls = 0;
        let borrowed = &mut polls;
        let future = poll_fn(move |cx| {
            *borrowed += 1;
            cx.waker().wake_by_ref();
            if *borrowed == 3 { Poll::Ready("ready") } else { Poll::Pending }
        });
        assert_eq!(wait(future), "ready");
        assert_eq!(polls, 3);
    }

    #[test]
    fn another_thread_may_wake() {
        let is_ready = Arc::new(AtomicBool::new(false));
        let mut is_begun = false;
        wait(poll_fn(|cx| {
            if is_ready.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_begun, true) {
                let (is_ready, waker) = (is_ready.clone(), cx.waker().clone());
                thread::spawn(move || {
                    waker.wake_by_ref();
                    is_ready.store(true, Ordering::SeqCst);
                    waker.wake();
                });
            }
            Poll::Pending
        }));
        assert!(is_ready.load(Ordering::SeqCst));
    }
}
