//! A body that is sent as it comes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::Body;
use weftwork::{Feed, FeedLimits, FeedSender, OverflowStrategy, Response};

use crate::handler::BoxError;
use crate::place::Place;

/// Bytes that wait for a slow client before the body is asked for no more.
const WAITING_BYTES: u64 = 64 << 10;

/// Sends the parts, and then the rest of the body.
pub(crate) fn start<B>(parts: Vec<Bytes>, body: Pin<Box<B>>, place: &Place) -> Response
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let limits =
        FeedLimits { messages_max: usize::MAX, bytes_max: u64::MAX, overflow: OverflowStrategy::Disconnect };
    let (sender, feed) = Feed::new(limits);
    let outlet = Outlet { sender, is_over: false };
    for part in parts {
        let _ = outlet.sender.send(part);
    }
    place.spawn(send(body, outlet));
    Response::feed(feed)
}

/// The sending end. What is dropped before its end is cut, so that it does not look whole.
struct Outlet {
    sender: FeedSender,
    is_over: bool,
}

impl Outlet {
    /// Waits until the client has read.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sender.waiting().1 < WAITING_BYTES || self.sender.is_closed() {
            return Poll::Ready(());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn end(mut self) {
        self.is_over = true;
        self.sender.close();
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if !self.is_over {
            self.sender.cut();
        }
    }
}

async fn send<B>(mut body: Pin<Box<B>>, outlet: Outlet)
where
    B: Body,
    B::Error: Into<BoxError>,
{
    loop {
        poll_fn(|cx| outlet.poll_room(cx)).await;
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => return outlet.end(),
            Some(Err(_)) => return,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut data) => {
                    if outlet.sender.send(data.copy_to_bytes(data.remaining())).is_err() {
                        return;
                    }
                }
                Err(_) => return outlet.end(),
            },
        }
    }
}
