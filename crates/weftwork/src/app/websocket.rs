//! WebSocket (RFC 6455): messages in both directions. A socket has a thread or fiber of its own, or belongs to
//! a hub without threads.
//!
//! ```text
//! GET, Upgrade: websocket --handshake.rs--> 101 --+--> socket.rs: a reader and a writer, which may part
//!                                                 +--> hub.rs: the loop reads and writes, nobody waits
//! ```
//!
//! Over HTTP/2, the request is an extended CONNECT (RFC 8441), and the response is 200.
//!
//! Frames and messages are from the crate tungstenite. This module adds the handshake, origin checks, compression
//! (deflate.rs), queue limits and closing.

#[cfg(test)]
mod close_tests;
mod deflate;
mod frames;
mod handshake;
mod hub;
mod outgoing;
mod socket;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bytes::Bytes;

pub use hub::{HubSocket, SocketEvent, SocketId, WebSocketHub};
pub use socket::{WebSocket, WebSocketReader, WebSocketWriter};

use crate::app::middleware::origin;
use crate::error::Result;
use crate::message::{FeedLimits, Request, Response};

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text, which is always UTF-8.
    Text(String),
    /// Arbitrary bytes.
    Binary(Bytes),
}

impl Message {
    /// Returns the text of a [`Text`](Message::Text) message. A [`Binary`](Message::Binary) message has no
    /// text, even with the same bytes.
    ///
    /// ```
    /// use weftwork::Message;
    ///
    /// assert_eq!(Message::from("hello").as_text(), Some("hello"));
    /// assert_eq!(Message::from(weftwork::Bytes::from("hello")).as_text(), None);
    /// ```
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            Message::Binary(_) => None,
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Text(text.to_owned())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message::Binary(bytes)
    }
}

/// Settings of a WebSocket route: allowed origins, sub-protocols and limits.
///
/// Browsers let every page open a WebSocket to every server and send its cookies. A request whose `Origin` is
/// another host therefore gets 403, unless the origin is [allowed](WebSockets::allow_origin). Clients that are
/// not browsers send no `Origin` and are accepted.
///
/// If one of the [`trusted_proxies`](crate::Settings::trusted_proxies) sets `X-Forwarded-Host`, the origin is
/// compared with that host. If [`forwarded_header`](crate::Settings::forwarded_header) is `Forwarded`, the host
/// in that field counts. A default port, stated or not, makes no difference.
#[derive(Clone, Debug)]
pub struct WebSockets {
    message_bytes_max: u64,
    feed_limits: FeedLimits,
    origins: Origins,
    protocols: Cow<'static, [&'static str]>,
    compresses: bool,
}

#[derive(Clone, Debug)]
enum Origins {
    Same(Vec<Box<str>>),
    Any,
}

impl Default for WebSockets {
    fn default() -> WebSockets {
        WebSockets {
            message_bytes_max: 1 << 20,
            feed_limits: FeedLimits::default(),
            origins: Origins::Same(Vec::new()),
            protocols: Cow::Borrowed(&[]),
            compresses: true,
        }
    }
}

impl WebSockets {
    /// Creates the default settings.
    pub fn new() -> WebSockets {
        WebSockets::default()
    }

    /// Does not offer compression. Use it for messages that hold a secret beside text that others choose, because
    /// the size of a compressed message can give the secret away (RFC 7692 section 8).
    ///
    /// By default, permessage-deflate is accepted if the client offers it, as browsers do. Messages of at least
    /// 128 bytes are compressed if that makes them smaller. Each one is compressed by itself
    /// (`no_context_takeover`). An idle socket therefore needs no memory for compression, and a hub compresses a
    /// message to many sockets once.
    #[must_use]
    pub fn without_compression(self) -> WebSockets {
        WebSockets { compresses: false, ..self }
    }

    /// Sets the maximum size of a message from a client, in bytes. A compressed message counts with its size after
    /// decompression. Default: 1 MiB. When exceeded: the socket closes with 1009.
    #[must_use]
    pub fn message_bytes_max(self, bytes: u64) -> WebSockets {
        WebSockets { message_bytes_max: bytes, ..self }
    }

    /// Sets how much may be queued for a slow client. A hub enforces all limits. A socket with a thread waits
    /// for its client, until the client reads nothing for `write_timeout`. It enforces only the byte limit.
    /// When exceeded: the client is disconnected without a close frame, because the frame would wait in the
    /// same queue.
    #[must_use]
    pub fn feed_limits(self, limits: FeedLimits) -> WebSockets {
        WebSockets { feed_limits: limits, ..self }
    }

    /// Also accepts pages of this origin, written as browsers do: `https://app.example`.
    ///
    /// # Errors
    /// Fails if the origin has a path, a final slash, upper case or the default port, or is `null` or `*`. Such
    /// an origin never matches.
    pub fn allow_origin(mut self, origin: &str) -> Result<WebSockets> {
        let origin = origin::checked(origin)?;
        if let Origins::Same(others) = &mut self.origins {
            others.push(origin);
        }
        Ok(self)
    }

    /// Accepts pages of every origin. Use it if neither cookies nor addresses grant access.
    #[must_use]
    pub fn allow_any_origin(self) -> WebSockets {
        WebSockets { origins: Origins::Any, ..self }
    }

    /// Sets the supported sub-protocols, the preferred one first. A client that offers none of them is accepted
    /// without a sub-protocol.
    #[must_use]
    pub fn protocols(self, protocols: impl Into<Cow<'static, [&'static str]>>) -> WebSockets {
        WebSockets { protocols: protocols.into(), ..self }
    }

    /// Answers the handshake and runs `serve` with the socket on its own thread or fiber. A request that is not
    /// a handshake, or is not allowed, gets a problem that states the reason.
    ///
    /// The socket is closed when `serve` returns: with 1000, or with 1011 after an error or a panic. The cause is
    /// logged.
    ///
    /// ```
    /// use weftwork::{Request, Response, WebSockets};
    ///
    /// fn echo(req: &mut Request) -> Response {
    ///     WebSockets::new().accept(req, |mut socket| {
    ///         while let Some(message) = socket.read()? {
    ///             socket.send(message)?;
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn accept(
        &self,
        req: &Request<'_>,
        serve: impl FnOnce(WebSocket) -> io::Result<()> + Send + 'static,
    ) -> Response {
        let agreed = match handshake::accept(req, self) {
            Ok(agreed) => agreed,
            Err(refused) => return *refused,
        };
        let (message_bytes_max, waiting_bytes_max) = (self.message_bytes_max, self.feed_limits.bytes_max);
        let negotiated = (agreed.protocol, agreed.deflate);
        agreed.complete(Response::upgrade(handshake::WEBSOCKET, move |line| {
            let socket = WebSocket::new(line, negotiated, message_bytes_max, waiting_bytes_max);
            let outgoing = Arc::clone(socket.outgoing());
            let served = catch_unwind(AssertUnwindSafe(|| serve(socket)));
            let code = if let Ok(Ok(())) = served { frames::CLOSE_NORMAL } else { frames::CLOSE_ERROR };
            outgoing.finish(code);
            served.unwrap_or_else(|panic| resume_unwind(panic))
        }))
    }
}

/// Calls [`WebSockets::accept`] with the default settings.
///
/// ```
/// use weftwork::{Request, Response, websocket};
///
/// fn shout(req: &mut Request) -> Response {
///     websocket(req, |mut socket| {
///         while let Some(message) = socket.read()? {
///             if let weftwork::Message::Text(text) = message {
///                 socket.send(text.to_uppercase())?;
///             }
///         }
///         Ok(())
///     })
/// }
/// ```
pub fn websocket(
    req: &Request<'_>,
    serve: impl FnOnce(WebSocket) -> io::Result<()> + Send + 'static,
) -> Response {
    WebSockets::new().accept(req, serve)
}
