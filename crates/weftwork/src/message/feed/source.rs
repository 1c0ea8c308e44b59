//! A future that fills a feed, polled by the connection of the feed.

use std::future::Future;

use super::Feed;
use crate::message::pending_future::PendingFuture;

impl Feed {
    /// Fills the feed by a future, which has its [`FeedSender`](super::FeedSender). The connection polls the future, in its event
    /// loop whenever it was woken. No thread and no executor is held meanwhile. Wait for room before each message, with
    /// [`poll_ready`](super::FeedSender::poll_ready).
    ///
    /// The future is dropped when the client leaves. A client that closes its sending side counts as gone here. A poll that
    /// blocks is a handler that blocks, as with [`Response::when`](crate::Response::when). A panic in a poll cuts the connection, so
    /// that a partial body never looks complete. A future of tokio needs the context of a runtime in each poll.
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use weftwork::prelude::*;
    /// use weftwork::{Feed, FeedLimits};
    ///
    /// fn count(_: &mut Request) -> Response {
    ///     let (sender, feed) = Feed::new(FeedLimits::default());
    ///     let fill = async move {
    ///         for number in 0..1000 {
    ///             let is_ready = poll_fn(|cx| sender.poll_ready(cx)).await;
    ///             if is_ready.and_then(|()| sender.send(format!("{number}\n"))).is_err() {
    ///                 return;
    ///             }
    ///         }
    ///     };
    ///     Response::feed(feed.with_source(fill))
    /// }
    /// # assert!(weftwork::TestClient::new(count).get("/").send().text().ends_with("\n999\n"));
    /// ```
    #[must_use]
    pub fn with_source(mut self, future: impl Future<Output = ()> + Send + 'static) -> Feed {
        self.source = Some(PendingFuture::new(future));
        self
    }

    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Returns whether its future wants to be polled.
    pub(crate) fn source_is_woken(&self) -> bool {
        self.source.as_ref().is_some_and(PendingFuture::is_woken)
    }

    /// Polls its future, and drops it when it has ended.
    pub(crate) fn poll_source(&mut self) {
        if self.source.as_mut().is_some_and(|source| source.poll().is_ready()) {
            self.source = None;
        }
    }
}
