//! A hub of WebSockets that need no thread each. Event loops read and write them and call one function.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::deflate::Deflate;
use super::frames::{self, Encoded, FrameError, FrameEvent, Incoming};
use super::{Message, WebSockets, handshake};
use crate::error::{OneLine, panic_message};
use crate::message::drop_caught::{Guarded, caught};
use crate::message::{Feed, FeedSender, Request, Response, UpgradeHandler, UpgradePanic};
use crate::transport::log_queue::log_line;

/// Read buffer of an idle socket. Larger messages take more while they are read.
const READ_BYTES: usize = 128;

/// Number of a socket in its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u64);

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One socket of a hub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HubSocket<T = ()> {
    /// Number of the socket, which is never reused.
    pub id: SocketId,
    /// Negotiated sub-protocol. See [`WebSockets::protocols`].
    pub protocol: Option<&'static str>,
    /// Value that the socket was accepted with, such as a user or a room.
    pub value: T,
}

/// An event of a socket in a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// The socket was opened.
    Joined,
    /// The socket received a message.
    Message(Message),
    /// The socket is gone.
    Left,
}

/// A group of WebSockets without a thread for each one. (In the engine `workers`, each socket keeps the thread
/// of its connection.) Clones share the same hub, and any thread may send.
///
/// The event loops read and write the sockets and call one function with each event. The function must be quick
/// and must not wait. Run long work on a thread of your own. A socket costs its connection, its queue (see
/// [`WebSockets::feed_limits`]) and a few hundred bytes. A message to all sockets is encoded and stored once.
///
/// ```
/// use weftwork::{Request, SocketEvent, WebSocketHub, WebSockets};
///
/// let chat = WebSocketHub::new(WebSockets::new(), |hub, from, event| match event {
///     SocketEvent::Message(message) => drop(hub.send(&message)),
///     SocketEvent::Joined => drop(hub.send(&format!("{} has come", from.id).into())),
///     SocketEvent::Left => drop(hub.send(&format!("{} has gone", from.id).into())),
/// });
/// let handler = move |req: &mut Request| chat.join(req);
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(handler);
/// ```
///
/// The request tells which user joins. A hub with your own type keeps that value:
///
/// ```
/// use weftwork::{Request, SocketEvent, WebSocketHub, WebSockets};
///
/// struct Guest { name: String, room: u32 }
///
/// let rooms = WebSocketHub::<Guest>::new(WebSockets::new(), |hub, from, event| {
///     let Guest { name, room } = &from.value;
///     if let SocketEvent::Joined = event {
///         hub.send_where(&format!("{name} has come").into(), |socket| socket.value.room == *room);
///     }
/// });
/// let handler = move |req: &mut Request| {
///     let name = req.query_value("name").unwrap_or_default().into_owned();
///     rooms.join_as(req, Guest { name, room: 7 })
/// };
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(handler);
/// ```
pub struct WebSocketHub<T = ()> {
    shared: Arc<Shared<T>>,
}

/// Function that is called with every event.
type Callback<T> = Box<dyn Fn(&WebSocketHub<T>, &HubSocket<T>, SocketEvent) + Send + Sync>;

type Sockets<T> = HashMap<SocketId, Member<T>>;

struct Member<T> {
    sender: FeedSender,
    /// It may have the last of the user's data of the socket, and several may go at once.
    socket: Guarded<Arc<HubSocket<T>>>,
    deflate: Option<Deflate>,
}

impl<T> Clone for Member<T> {
    fn clone(&self) -> Member<T> {
        Member {
            sender: self.sender.clone(),
            socket: Guarded::new(Arc::clone(&self.socket)),
            deflate: self.deflate,
        }
    }
}

struct Shared<T> {
    options: WebSockets,
    on: Callback<T>,
    sockets: Mutex<Sockets<T>>,
    next: AtomicU64,
    /// Windows of compression that sockets have had, as bits.
    windows: AtomicU16,
}

impl<T> Clone for WebSocketHub<T> {
    fn clone(&self) -> WebSocketHub<T> {
        WebSocketHub { shared: self.shared.clone() }
    }
}

impl WebSocketHub {
    /// Answers the handshake and adds the socket to the hub. A request that is not a handshake, or is not
    /// allowed, gets a problem that states the reason.
    pub fn join(&self, req: &Request<'_>) -> Response {
        self.join_as(req, ())
    }
}

impl<T: Send + Sync + 'static> WebSocketHub<T> {
    /// Creates a hub. `options` decide which requests are accepted. `on` is called with every event.
    pub fn new(
        options: WebSockets,
        on: impl Fn(&WebSocketHub<T>, &HubSocket<T>, SocketEvent) + Send + Sync + 'static,
    ) -> WebSocketHub<T> {
        let (sockets, next) = (Mutex::default(), AtomicU64::new(1));
        let windows = AtomicU16::new(0);
        WebSocketHub { shared: Arc::new(Shared { options, on: Box::new(on), sockets, next, windows }) }
    }

    /// Answers the handshake like [`join`](WebSocketHub::join). The socket has this
    /// [value](HubSocket::value).
    ///
    /// The socket is in the hub before the function gets [`Joined`](SocketEvent::Joined). A message that is
    /// sent meanwhile may reach the socket first.
    pub fn join_as(&self, req: &Request<'_>, value: T) -> Response {
        self.join_with(req, value, [])
    }

    /// Answers the handshake like [`join_as`](WebSocketHub::join_as). The socket gets `first_messages`
    /// before all others, for example the history of a chat. Limit the history, or clients can fill the memory.
    ///
    /// If the history is under a lock, hold the lock while you call this function, and while you send. Then no
    /// message is lost or sent twice. The function is called with [`Joined`](SocketEvent::Joined) meanwhile,
    /// and with [`Left`](SocketEvent::Left) if it panics, so it must not take the same lock for these events.
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use std::sync::Mutex;
    /// use weftwork::{Message, Request, SocketEvent, WebSocketHub, WebSockets};
    ///
    /// const SAID_MAX: usize = 100;
    /// static SAID: Mutex<VecDeque<Message>> = Mutex::new(VecDeque::new());
    /// let chat = WebSocketHub::new(WebSockets::new(), |hub, _, event| {
    ///     if let SocketEvent::Message(message) = event {
    ///         let mut said = SAID.lock().unwrap();
    ///         hub.send(&message);
    ///         if said.len() == SAID_MAX {
    ///             said.pop_front();
    ///         }
    ///         said.push_back(message);
    ///     }
    /// });
    /// let handler = move |req: &mut Request| {
    ///     let said = SAID.lock().unwrap();
    ///     chat.join_with(req, (), said.iter().cloned())
    /// };
    /// # let mut client = weftwork::TestClient::new(handler);
    /// # let mut socket = client.websocket("/");
    /// # (0..=SAID_MAX).for_each(|number| socket.send(number.to_string()));
    /// # assert_eq!(client.websocket("/").read(), Some(Message::from("1")));
    /// ```
    pub fn join_with(
        &self,
        req: &Request<'_>,
        value: T,
        first_messages: impl IntoIterator<Item = Message>,
    ) -> Response {
        let shared = &self.shared;
        let agreed = match handshake::accept(req, &shared.options) {
            Ok(agreed) => agreed,
            Err(refused) => return *refused,
        };
        let (sender, feed) = Feed::new(shared.options.feed_limits);
        let deflate = agreed.deflate;
        shared.windows.fetch_or(deflate.map_or(0, Deflate::bit), Ordering::Relaxed);
        let first = first_messages.into_iter().map(|message| frames::message(&message, deflate).into());
        let feed = feed.with_backlog(first);
        let id = SocketId(shared.next.fetch_add(1, Ordering::Relaxed));
        let socket = Arc::new(HubSocket { id, protocol: agreed.protocol, value });
        let member = Member { sender: sender.clone(), socket: Guarded::new(socket.clone()), deflate };
        self.lock().insert(id, member);
        let receiver = HubReceiver {
            incoming: Incoming::new(shared.options.message_bytes_max, READ_BYTES, deflate.is_some()),
            hub: self.clone(),
            socket: Guarded::new(socket.clone()),
            sender,
            ping_sent: false,
        };
        // A panic is the handler's, because this is its thread.
        (shared.on)(self, &socket, SocketEvent::Joined);
        agreed.complete(Response::upgrade_asked(handshake::WEBSOCKET, feed, receiver))
    }

    /// Sends a message to all sockets. Returns the number of sockets.
    pub fn send(&self, message: &Message) -> usize {
        let mut frames = Encoded::new(message);
        frames.frame(None);
        // Compressed before the lock is taken, because that takes time.
        for deflate in Deflate::of_bits(self.shared.windows.load(Ordering::Relaxed)) {
            frames.frame(Some(deflate));
        }
        // Sockets that cannot be sent to are about to be removed.
        self.lock().values().filter(|member| member.sender.send(frames.frame(member.deflate)).is_ok()).count()
    }

    /// Sends a message to the sockets that `wanted` selects. Returns the number of sockets.
    pub fn send_where(&self, message: &Message, wanted: impl Fn(&HubSocket<T>) -> bool) -> usize {
        let mut frames = Encoded::new(message);
        // `wanted` may use the hub, so it is not called under the lock.
        let all: Vec<_> = self.lock().values().cloned().collect();
        let wanted = all.iter().filter(|member| wanted(&member.socket));
        wanted.filter(|member| member.sender.send(frames.frame(member.deflate)).is_ok()).count()
    }

    /// Sends a message to one socket. Returns false if the socket is gone, or is disconnected because its
    /// client is too slow.
    pub fn send_to(&self, id: SocketId, message: &Message) -> bool {
        let member = self.lock().get(&id).cloned();
        member.is_some_and(|member| member.sender.send(frames::message(message, member.deflate)).is_ok())
    }

    /// Closes a socket. See [`WebSocket::close`](super::WebSocket::close).
    pub fn close(&self, id: SocketId, code: u16, reason: &str) {
        if let Some(sender) = self.sender(id) {
            close_after(&sender, frames::close(code, reason));
        }
    }

    /// Closes all sockets at once. Clients that reconnect are served again. A page should wait a random time before it
    /// reconnects. If the server stops, the sockets are closed one after another (see
    /// [`drain_timeout`](crate::Settings::drain_timeout)).
    pub fn close_all(&self, code: u16, reason: &str) {
        let frame = Bytes::from(frames::close(code, reason));
        let all: Vec<FeedSender> = self.lock().values().map(|member| member.sender.clone()).collect();
        all.iter().for_each(|sender| close_after(sender, frame.clone()));
    }

    /// Returns the current number of sockets.
    pub fn clients(&self) -> usize {
        self.lock().len()
    }

    /// Returns the sockets of the hub.
    pub fn sockets(&self) -> Vec<Arc<HubSocket<T>>> {
        self.lock().values().map(|member| Arc::clone(&member.socket)).collect()
    }

    fn sender(&self, id: SocketId) -> Option<FeedSender> {
        self.lock().get(&id).map(|member| member.sender.clone())
    }

    /// Calls the function with an event. A panic must not end the loop, so it is returned as an error with its
    /// message.
    fn notify(&self, socket: &HubSocket<T>, event: SocketEvent) -> Result<(), String> {
        let notify = || {
            (self.shared.on)(self, socket, event);
            Ok(())
        };
        caught(notify, |panic| Err(panic_message(panic).to_owned()))
    }
}

impl<T> WebSocketHub<T> {
    fn lock(&self) -> MutexGuard<'_, Sockets<T>> {
        self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn close_after(sender: &FeedSender, frame: impl Into<Bytes>) {
    // The socket is closed in either case.
    let _ = sender.send_last(frame);
    sender.close();
}

/// One socket as its event loop sees it.
struct HubReceiver<T: Send + Sync + 'static> {
    incoming: Incoming,
    hub: WebSocketHub<T>,
    /// It may have the last of the user's data of the socket.
    socket: Guarded<Arc<HubSocket<T>>>,
    sender: FeedSender,
    /// Whether a ping was sent and nothing has arrived since.
    ping_sent: bool,
}

impl<T: Send + Sync + 'static> HubReceiver<T> {
    fn answer(&mut self, event: FrameEvent) -> io::Result<()> {
        match event {
            FrameEvent::Message(message) => {
                let notified = self.hub.notify(&self.socket, SocketEvent::Message(message));
                notified.map_err(|message| {
                    io::Error::other(UpgradePanic { message, final_message: self.final_frame() })
                })?;
            }
            FrameEvent::Pong => {}
            FrameEvent::Ping(bytes) => self.queue(frames::pong(bytes)),
            FrameEvent::Close(said) => {
                self.queue_last(frames::close_reply(said.as_ref()));
                self.sender.close();
            }
        }
        Ok(())
    }

    /// Queues a frame. The loop notices by itself if the feed is closed. After a close frame it accepts no more
    /// (RFC 6455 section 5.5.1).
    fn queue(&self, frame: Vec<u8>) {
        let _ = self.sender.send(frame);
    }

    fn queue_last(&self, frame: Vec<u8>) {
        let _ = self.sender.send_last(frame);
    }

    /// Returns the frame to send after the function has panicked.
    fn final_frame(&self) -> Bytes {
        match self.sender.is_closed() {
            true => Bytes::new(),
            false => frames::close(frames::CLOSE_ERROR, "something went wrong on the server").into(),
        }
    }
}

impl<T: Send + Sync + 'static> UpgradeHandler for HubReceiver<T> {
    fn on_data(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len();
        self.ping_sent = false;
        loop {
            match self.incoming.next(&mut AvailableBytes(&mut bytes)) {
                Ok(event) => self.answer(event)?,
                Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(FrameError::Eof) => return Ok(count),
                Err(FrameError::Io(error)) => return Err(error),
                Err(FrameError::Protocol(code, why)) => {
                    log_line!(Debug, "closing the WebSocket {}: {}", self.socket.id, OneLine(&why));
                    self.queue_last(frames::close(code, &why));
                    self.sender.close();
                    return Ok(count);
                }
            }
        }
    }

    fn on_idle(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.ping_sent, true) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to a ping"));
        }
        self.queue(frames::ping());
        Ok(())
    }

    fn on_shutdown(&mut self) -> bool {
        // No frame may follow a close frame, so the hub forgets the socket now.
        self.hub.lock().remove(&self.socket.id);
        self.queue_last(frames::close(frames::CLOSE_AWAY, "the server is stopping"));
        true
    }
}

impl<T: Send + Sync + 'static> Drop for HubReceiver<T> {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.socket.id);
        if let Err(said) = self.hub.notify(&self.socket, SocketEvent::Left) {
            log_line!(Error, "the function of a WebSocket hub panicked: {}", OneLine(said));
        }
    }
}

/// A reader of the bytes that have arrived. More may follow later.
struct AvailableBytes<'p, 'b>(&'p mut &'b [u8]);

impl io::Read for AvailableBytes<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(into)
    }
}

impl<T> fmt::Debug for WebSocketHub<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketHub").field("sockets", &self.lock().len()).finish_non_exhaustive()
    }
}
