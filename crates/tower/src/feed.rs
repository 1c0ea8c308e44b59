//! A body that is sent as it comes.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;
use weftwork::{Feed, FeedLimits, FeedSender, OverflowStrategy, Response};

use crate::handler::BoxError;
use crate::place::Place;
use crate::response::{Part, fields_of, poll_part};

/// Limits of what waits for a slow client. The body is asked for more while less than half of them waits, so they are never
/// exceeded.
pub(crate) const LIMITS: FeedLimits =
    FeedLimits { messages_max: 1024, bytes_max: 128 << 10, overflow: OverflowStrategy::Disconnect };

/// Sends the parts, and then the rest of the body.
pub(crate) fn start<B>(parts: Vec<Bytes>, body: Pin<Box<B>>, place: &Place) -> Response
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (sender, feed) = Feed::new(LIMITS);
    Response::feed(place.fill(feed, send(parts, body, Outlet { sender, is_over: false })))
}

/// The sending end. What is dropped before its end is cut, so that it does not look whole.
struct Outlet {
    sender: FeedSender,
    is_over: bool,
}

impl Outlet {
    /// Sends a part when the client has read enough. Returns false if it has left.
    async fn send(&self, part: Bytes) -> bool {
        poll_fn(|cx| self.sender.poll_ready(cx)).await.and_then(|()| self.sender.send(part)).is_ok()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if !self.is_over {
            self.sender.cut();
        }
    }
}

async fn send<B>(parts: Vec<Bytes>, mut body: Pin<Box<B>>, mut outlet: Outlet)
where
    B: Body,
    B::Error: Into<BoxError>,
{
    for part in parts {
        if !outlet.send(part).await {
            return;
        }
    }
    loop {
        match poll_fn(|cx| poll_part(body.as_mut(), cx)).await {
            Part::Data(data) => {
                if !outlet.send(data).await {
                    return;
                }
            }
            Part::End(trailers) => {
                outlet.is_over = true;
                // Fields that cannot be trailers are left out, with all others.
                let trailers: Vec<_> = trailers.into_iter().flat_map(fields_of).collect();
                let _ = outlet.sender.close_with(&trailers);
                return;
            }
            Part::Failed(error) => {
                log::error!("the body of a response failed, and its connection is cut: {error}");
                return;
            }
        }
    }
}
