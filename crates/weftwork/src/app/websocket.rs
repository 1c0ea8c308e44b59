//! WebSocket (RFC 6455): messages in both directions, on a thread or fiber of their own, or from a hub without any.
//!
//! ```text
//! GET, Upgrade: websocket --handshake.rs--> 101 --+--> socket.rs: a reader and a writer, which may part
//!                                                 +--> hub.rs: the loop reads and writes, nobody waits
//! ```
//!
//! Frames and messages are tungstenite's; what is ours is who is let in, how much may wait, and how it ends.

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

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text, which is always UTF-8.
    Text(String),
    /// Anything.
    Binary(Bytes),
}

impl Message {
    /// Its text, if it is one: the same bytes as [`Binary`](Message::Binary) are none.
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

/// Who is let in, and what may come and wait: the settings of a WebSocket route.
///
/// Browsers let any page open a WebSocket to any server, with its cookies; so a request whose `Origin` is not this
/// host gets 403, unless it is [allowed](WebSockets::allow_origin). Clients that are no browsers send none, and are let
/// in. Where one of the [`trusted_proxies`](crate::Settings::trusted_proxies) names the host in `X-Forwarded-Host` (or in
/// the `host` of `Forwarded`, if that is the [`forwarded_header`](crate::Settings::forwarded_header)), this host is that one.
/// The default port of the origin's scheme, said or not, makes no other host of it.
#[derive(Clone, Debug)]
pub struct WebSockets {
    message_bytes_max: usize,
    waiting: FeedLimits,
    origins: Origins,
    protocols: Cow<'static, [&'static str]>,
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
            waiting: FeedLimits::default(),
            origins: Origins::Same(Vec::new()),
            protocols: Cow::Borrowed(&[]),
        }
    }
}

impl WebSockets {
    /// The defaults.
    pub fn new() -> WebSockets {
        WebSockets::default()
    }

    /// The largest message that a client may send, in bytes; a larger one closes the socket with 1009. Default 1 MiB.
    #[must_use]
    pub fn message_bytes_max(self, bytes: usize) -> WebSockets {
        WebSockets { message_bytes_max: bytes, ..self }
    }

    /// How much may wait for a client that reads slowly. In a hub all of it holds; a socket with a thread waits
    /// for its client (until that takes nothing for `write_timeout`) and knows only the bytes, past which it is cut off. Who is cut off
    /// is not told why: a close would have to wait behind what the client does not take.
    #[must_use]
    pub fn waiting(self, limits: FeedLimits) -> WebSockets {
        WebSockets { waiting: limits, ..self }
    }

    /// Also lets pages of this origin in, written as browsers do: `https://app.example`.
    ///
    /// # Errors
    /// It has a path, a slash at its end, upper case, the default port, or is `null` or `*`: no page would be let in by it.
    pub fn allow_origin(mut self, origin: &str) -> Result<WebSockets> {
        let origin = origin::checked(origin)?;
        if let Origins::Same(others) = &mut self.origins {
            others.push(origin);
        }
        Ok(self)
    }

    /// Lets pages of every origin in: for what needs no cookie and no address to be allowed.
    #[must_use]
    pub fn allow_any_origin(self) -> WebSockets {
        WebSockets { origins: Origins::Any, ..self }
    }

    /// The sub-protocols that are spoken here, the best first. A client that offers none of them is let in without.
    #[must_use]
    pub fn protocols(self, protocols: impl Into<Cow<'static, [&'static str]>>) -> WebSockets {
        WebSockets { protocols: protocols.into(), ..self }
    }

    /// Answers the handshake, and runs `serve` with the socket, on a thread or fiber of its own. A request that is no
    /// handshake, or is not let in, is answered with a problem that says so.
    ///
    /// The socket is closed when `serve` returns: with 1000, or with 1011 after an error or a panic, which is logged.
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
        let (message_bytes_max, waiting_bytes_max) = (self.message_bytes_max, self.waiting.bytes_max);
        let protocol = agreed.protocol;
        agreed.complete(Response::upgrade(handshake::WEBSOCKET, move |line| {
            let socket = WebSocket::new(line, protocol, message_bytes_max, waiting_bytes_max);
            let outgoing = Arc::clone(socket.outgoing());
            let served = catch_unwind(AssertUnwindSafe(|| serve(socket)));
            let code = if let Ok(Ok(())) = served { frames::CLOSE_NORMAL } else { frames::CLOSE_ERROR };
            outgoing.finish(code);
            served.unwrap_or_else(|panic| resume_unwind(panic))
        }))
    }
}

/// [`WebSockets::accept`] with the defaults.
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
