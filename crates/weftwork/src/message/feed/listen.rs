//! Back-pressure towards the senders of a feed, and how they learn of its end.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use weftwork_wire::may_be_trailer;

use super::{Core, End, Feed, FeedClosed, FeedLimits, FeedSender, State};
use crate::message::listeners::{Call, Listeners, run};

/// What few feeds have.
#[derive(Default)]
pub(super) struct Extras {
    /// Told when there is room, or never will be.
    room: Listeners,
    /// Told when the connection has let go of the feed.
    end: Listeners,
    trailers: Vec<(HeaderName, HeaderValue)>,
}

impl State {
    pub(super) fn is_closed(&self) -> bool {
        self.end != End::Open || self.is_last_queued
    }

    /// Returns whether less than half of the limits waits.
    pub(super) fn has_room(&self, limits: &FeedLimits) -> bool {
        self.queue.len() < (limits.messages_max / 2).max(1) && self.bytes < (limits.bytes_max / 2).max(1)
    }

    /// Returns whether at most a quarter of the limits waits.
    fn is_low(&self, limits: &FeedLimits) -> bool {
        self.queue.len() <= limits.messages_max / 4 && self.bytes <= limits.bytes_max / 4
    }

    /// Takes those who wait for what has happened. They are told after the lock was released.
    pub(super) fn due(&mut self, limits: &FeedLimits) -> Listeners {
        let mut due = Listeners::default();
        if self.extras.is_some() {
            let (has_room, is_cut) = (self.is_closed() || self.is_low(limits), self.end == End::Cut);
            let extras = self.extras();
            if has_room {
                due.append(&mut extras.room);
            }
            if is_cut {
                due.append(&mut extras.end);
            }
        }
        due
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

impl Core {
    /// Registers the task, without a lock while its waker is cloned or dropped. That runs code of the task's executor.
    fn wait_for_room(&self, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        // The room may have come meanwhile.
        if state.is_closed() || state.has_room(&self.limits) {
            drop(state);
            waker.wake();
            return;
        }
        let unused = state.extras().room.add_waker(waker);
        drop(state);
        drop(unused);
    }

    fn on_closed(&self, call: Call) {
        let mut state = self.lock();
        if state.end == End::Cut {
            drop(state);
            return run(call);
        }
        state.extras().end.add_call(call);
    }

    fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if state.end == End::Cut {
            drop(state);
            return Poll::Ready(());
        }
        let unused = state.extras().end.add_waker(waker);
        drop(state);
        drop(unused);
        Poll::Pending
    }
}

impl Feed {
    pub(crate) fn take_trailers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let mut state = self.core.lock();
        state.extras.as_mut().map(|extras| std::mem::take(&mut extras.trailers)).unwrap_or_default()
    }
}

impl FeedSender {
    /// Returns whether there is room for a message: less than half of [`messages_max`](FeedLimits::messages_max) and less
    /// than half of [`bytes_max`](FeedLimits::bytes_max) wait. A message that is sent then is accepted, however large it is.
    /// A sender that asks before each message never overflows the feed. If several senders ask at the same time, use
    /// [`send_blocking`](FeedSender::send_blocking) in each of them.
    ///
    /// Bytes that the connection has taken no longer wait, although the client may not have read them. A closed feed has
    /// no room.
    ///
    /// ```
    /// use weftwork::{Feed, FeedLimits};
    /// let (sender, _feed) = Feed::new(FeedLimits::default());
    /// while sender.room() {
    ///     sender.send(vec![0; 64 << 10])?;
    /// }
    /// assert_eq!(sender.waiting().1, 512 << 10);      // half of 1 MiB
    /// # Ok::<(), weftwork::FeedClosed>(())
    /// ```
    pub fn room(&self) -> bool {
        let state = self.core.lock();
        !state.is_closed() && state.has_room(&self.core.limits)
    }

    /// Calls `call` once, when there is room again: at most a quarter of [`messages_max`](FeedLimits::messages_max) and of
    /// [`bytes_max`](FeedLimits::bytes_max) waits. It is also called when the feed has ended, so that nobody waits for
    /// ever. If there is [`room`](FeedSender::room) or an end already, it is called at once, on this thread.
    ///
    /// Otherwise it runs on a thread of the server, often in an event loop. Only pass the news on: wake a task, or send to a channel.
    /// A panic in it is logged, and has no other effect.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use weftwork::{Feed, FeedLimits};
    /// let (sender, feed) = Feed::new(FeedLimits { messages_max: 1, ..FeedLimits::default() });
    /// sender.send("one")?;
    /// let (tell, told) = channel();
    /// sender.on_room(move || tell.send("go on").unwrap());
    /// assert!(told.try_recv().is_err());
    /// drop(feed);                             // the client has left
    /// assert_eq!(told.recv(), Ok("go on"));
    /// # Ok::<(), weftwork::FeedClosed>(())
    /// ```
    pub fn on_room(&self, call: impl FnOnce() + Send + 'static) {
        let call = Box::new(call);
        let mut state = self.core.lock();
        if state.is_closed() || state.has_room(&self.core.limits) {
            drop(state);
            return run(call);
        }
        state.extras().room.add_call(call);
    }

    /// Polls for [`room`](FeedSender::room), for async code of any runtime. `Ready` means that the next message is accepted, or
    /// that the feed has ended. Otherwise the task is woken when [`on_room`](FeedSender::on_room) would call.
    ///
    /// # Errors
    /// [`FeedClosed`]: no message reaches the client any more.
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use weftwork::{Feed, FeedClosed, FeedLimits, FeedSender};
    ///
    /// async fn export(sender: FeedSender) -> Result<(), FeedClosed> {
    ///     for row in 0..1000 {
    ///         poll_fn(|cx| sender.poll_ready(cx)).await?;
    ///         sender.send(format!("{row}\n"))?;
    ///     }
    ///     Ok(())
    /// }
    /// # let (sender, _feed) = Feed::new(FeedLimits::default());
    /// # assert_eq!(weftwork::wait(export(sender)), Ok(()));
    /// ```
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), FeedClosed>> {
        let state = self.core.lock();
        if state.is_closed() {
            return Poll::Ready(Err(FeedClosed));
        }
        if state.has_room(&self.core.limits) {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        self.core.wait_for_room(cx);
        Poll::Pending
    }

    /// Sends `message` as soon as there is room. No other sender can take the room in between.
    pub(crate) fn poll_send(
        &self,
        message: &mut Bytes,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), FeedClosed>> {
        let state = self.core.lock();
        if state.is_closed() || state.has_room(&self.core.limits) {
            return Poll::Ready(self.core.push_to(state, std::mem::take(message), false));
        }
        drop(state);
        self.core.wait_for_room(cx);
        Poll::Pending
    }

    /// Calls `call` once, when nothing more is sent to the client: it has left, was disconnected, or has the whole response.
    /// If that is so already, `call` runs at once, on this thread. Use it to cancel a query of which nobody reads the result.
    ///
    /// It runs on the thread that finds out, often in an event loop. It must not block, and a panic in it is logged. A clone of the
    /// sender in it keeps the feed open until then.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use weftwork::{Feed, FeedLimits};
    /// let (sender, feed) = Feed::new(FeedLimits::default());
    /// let (tell, told) = channel();
    /// sender.on_closed(move || tell.send("cancel").unwrap());
    /// drop(feed);                             // the client has left
    /// assert_eq!(told.recv(), Ok("cancel"));
    /// ```
    pub fn on_closed(&self, call: impl FnOnce() + Send + 'static) {
        self.core.on_closed(Box::new(call));
    }

    /// Returns a future that is ready when [`on_closed`](FeedSender::on_closed) would call, for any runtime. It does not keep the
    /// feed open.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let core = Arc::clone(&self.core);
        poll_fn(move |cx| core.poll_closed(cx))
    }

    /// Ends the response as [`close`](FeedSender::close) does, with fields after its body: a checksum, or the number of
    /// rows. Clients get them that have sent `TE: trailers` (RFC 9110 section 6.5.1), over HTTP/1.1 and HTTP/2. For other clients, and
    /// for HTTP/1.0, they are left out.
    ///
    /// # Errors
    /// A field cannot be a trailer (`InvalidInput`), see [`BodyWriter::trailers`](crate::BodyWriter::trailers). The feed is then closed without
    /// fields. Or it was closed already (`BrokenPipe`).
    ///
    /// ```
    /// use weftwork::http::{HeaderName, HeaderValue};
    /// use weftwork::{Feed, FeedLimits};
    /// let (sender, _feed) = Feed::new(FeedLimits::default());
    /// sender.send("the rows")?;
    /// sender.close_with(&[(HeaderName::from_static("x-rows"), HeaderValue::from(8))])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_with(&self, trailers: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        let forbidden = trailers.iter().find(|(name, _)| !may_be_trailer(name));
        let mut state = self.core.lock();
        let is_late = state.is_closed();
        if !is_late && forbidden.is_none() && !trailers.is_empty() {
            state.extras().trailers = trailers.to_vec();
        }
        drop(state);
        self.close();
        if let Some((name, _)) = forbidden {
            let why = format!("{name} may not be a trailer (RFC 9110 section 6.5.1)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if is_late { Err(io::Error::new(io::ErrorKind::BrokenPipe, FeedClosed)) } else { Ok(()) }
    }
}
