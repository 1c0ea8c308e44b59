//! WebSockets without a thread each: loops read and write them, and one function is told what comes.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::frames::{self, Failed, Got, Incoming};
use super::{Message, WebSockets, handshake};
use crate::error::Error;
use crate::message::{Feed, FeedSender, IntoResponse, Receive, Request, Response};

/// An idle socket holds this much to read into; messages that are larger take what they need.
const READ_BYTES: usize = 128;

/// One socket of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u64);

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What happens to a socket of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It was opened.
    Joined,
    /// It sent a message.
    Message(Message),
    /// It is gone.
    Left,
}

/// Many WebSockets, without a thread for any of them. Clones are the same hub; any thread may send.
///
/// The event loops read and write the sockets, and call one function with what happens. It must be quick and must not
/// wait: what takes long goes to a thread of your own. A socket costs its connection, its queue (see
/// [`WebSockets::waiting`]) and a few hundred bytes. A message to everybody is made and kept once.
///
/// ```
/// use weftwork::{Request, SocketEvent, WebSocketHub, WebSockets};
///
/// let chat = WebSocketHub::new(WebSockets::new(), |hub, from, event| match event {
///     SocketEvent::Message(message) => drop(hub.send(&message)),
///     SocketEvent::Joined => drop(hub.send(&format!("{from} has come").into())),
///     SocketEvent::Left => drop(hub.send(&format!("{from} has gone").into())),
/// });
/// let handler = move |req: &mut Request| chat.accept(req);
/// # fn takes(_: impl weftwork::Handler) {}
/// # takes(handler);
/// ```
#[derive(Clone)]
pub struct WebSocketHub {
    shared: Arc<Shared>,
}

/// What is told of everything that happens.
type On = Box<dyn Fn(&WebSocketHub, SocketId, SocketEvent) + Send + Sync>;

struct Shared {
    options: WebSockets,
    on: On,
    sockets: Mutex<HashMap<SocketId, FeedSender>>,
    next: AtomicU64,
}

impl WebSocketHub {
    /// A hub that lets in whom `options` let in, and tells `on` what happens.
    pub fn new(
        options: WebSockets,
        on: impl Fn(&WebSocketHub, SocketId, SocketEvent) + Send + Sync + 'static,
    ) -> WebSocketHub {
        let (sockets, next) = (Mutex::default(), AtomicU64::new(1));
        WebSocketHub { shared: Arc::new(Shared { options, on: Box::new(on), sockets, next }) }
    }

    /// Answers the handshake, and takes the socket in. A request that is no handshake, or is not let in, is answered
    /// with a problem that says so.
    pub fn accept(&self, req: &Request<'_>) -> Response {
        let shared = &self.shared;
        let hands = match handshake::shake(req, &shared.options) {
            Ok(hands) => hands,
            Err(refused) => return *refused,
        };
        let (sender, feed) = Feed::new(shared.options.waiting);
        let id = SocketId(shared.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(id, sender.clone());
        let member = Member {
            incoming: Incoming::new(shared.options.message_bytes_max, READ_BYTES),
            hub: self.clone(),
            id,
            sender,
            asked: false,
            closed: false,
        };
        if let Err(error) = self.tell(id, SocketEvent::Joined) {
            return Error::from(error).into_response();
        }
        hands.seal(Response::upgrade_fed(handshake::WEBSOCKET, feed, member))
    }

    /// Sends a message to everybody, and returns to how many.
    pub fn send(&self, message: &Message) -> usize {
        let frame = Bytes::from(frames::message(message));
        // Those that cannot be sent to are on their way out.
        self.lock().values().filter(|socket| socket.send(frame.clone()).is_ok()).count()
    }

    /// Sends a message to one. False: it has gone, or is cut off for being too slow.
    pub fn send_to(&self, id: SocketId, message: &Message) -> bool {
        let sender = self.lock().get(&id).cloned();
        sender.is_some_and(|sender| sender.send(frames::message(message)).is_ok())
    }

    /// Closes a socket: see [`WebSocket::close`](super::WebSocket::close).
    pub fn close(&self, id: SocketId, code: u16, reason: &str) {
        let sender = self.lock().get(&id).cloned();
        if let Some(sender) = sender {
            // It is closed either way.
            let _ = sender.send(frames::close(code, reason));
            sender.close();
        }
    }

    /// The sockets there are.
    pub fn sockets(&self) -> Vec<SocketId> {
        self.lock().keys().copied().collect()
    }

    /// Says what has happened. Its loop must not go down with the function that is told.
    fn tell(&self, id: SocketId, event: SocketEvent) -> io::Result<()> {
        catch_unwind(AssertUnwindSafe(|| (self.shared.on)(self, id, event)))
            .map_err(|_| io::Error::other("the function of a WebSocket hub panicked"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketId, FeedSender>> {
        self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One socket, as its loop sees it.
struct Member {
    incoming: Incoming,
    hub: WebSocketHub,
    id: SocketId,
    sender: FeedSender,
    /// A ping was sent, and nothing has come since.
    asked: bool,
    /// A close was sent or answered.
    closed: bool,
}

impl Member {
    fn answer(&mut self, got: Got) -> io::Result<()> {
        match got {
            Got::Message(message) => self.hub.tell(self.id, SocketEvent::Message(message))?,
            Got::Pong => {}
            Got::Ping(bytes) => self.bring(frames::pong(bytes)),
            Got::Close(said) => {
                if !self.closed {
                    self.bring(frames::close_reply(said.as_ref()));
                }
                self.closed = true;
                self.sender.close();
            }
        }
        Ok(())
    }

    /// A feed that takes no more is over, which its loop sees by itself.
    fn bring(&self, frame: Vec<u8>) {
        let _ = self.sender.send(frame);
    }
}

impl Receive for Member {
    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len();
        self.asked = false;
        loop {
            match self.incoming.next(&mut Part(&mut bytes)) {
                Ok(got) => self.answer(got)?,
                Err(Failed::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(Failed::Ended) => return Ok(count),
                Err(Failed::Io(error)) => return Err(error),
                Err(Failed::Fault(code, why)) => {
                    log::info!("the WebSocket {} is closed: {why}", self.id);
                    self.bring(frames::close(code, &why));
                    self.sender.close();
                    return Ok(count);
                }
            }
        }
    }

    fn idle(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.asked, true) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to a ping"));
        }
        self.bring(frames::ping());
        Ok(())
    }

    fn stopping(&mut self) -> bool {
        // Nothing may follow a close: from here on the hub does not know it.
        self.hub.lock().remove(&self.id);
        self.closed = true;
        self.bring(frames::close(frames::CLOSE_AWAY, "the server is stopping"));
        true
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.id);
        if let Err(error) = self.hub.tell(self.id, SocketEvent::Left) {
            log::error!("{error}");
        }
    }
}

/// What has come so far: there may be more, but not now.
struct Part<'p, 'b>(&'p mut &'b [u8]);

impl io::Read for Part<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(into)
    }
}

impl fmt::Debug for WebSocketHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketHub").field("sockets", &self.lock().len()).finish_non_exhaustive()
    }
}
