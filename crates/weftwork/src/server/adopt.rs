//! Connections that other code has accepted.

use std::error::Error as StdError;
use std::fmt;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::Running;
use crate::engine::{self, EngineHandle, NotAdopted};
use crate::transport::context::Context;

impl Running {
    /// Serves a connection that other code has accepted: from a listener of the program, another process, inetd, or a socket
    /// pair.
    ///
    /// The server treats the connection like one at an address without a prefix. So the connection begins with TLS if the
    /// server has certificates (`Server::tls`), unless it is [`plain`](AcceptedSocket::plain). It begins with a PROXY header if the
    /// setting `proxy_protocol` is on. All settings, limits and counters apply. The function does not wait.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    /// use weftwork::prelude::*;
    ///
    /// let running = Server::unbound().start(|req: &mut Request| format!("you asked for {}\n", req.path()))?;
    /// let (mut client, socket) = UnixStream::pair()?;
    /// running.adopt(socket)?;
    ///
    /// client.write_all(b"GET /tea HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    /// let mut response = String::new();
    /// client.read_to_string(&mut response)?;
    /// assert!(response.ends_with("you asked for /tea\n"));
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// `connections_max` is reached, or the socket is not connected. The socket is in the error, see [`AdoptError`].
    pub fn adopt(&self, socket: impl Into<AcceptedSocket>) -> Result<(), AdoptError> {
        adopt(&self.handle, &self.cx, socket.into())
    }

    /// Returns a handle that adopts connections, for a thread that accepts them.
    ///
    /// ```no_run
    /// use std::net::TcpListener;
    /// use weftwork::prelude::*;
    ///
    /// let running = Server::unbound().start(|_: &mut Request| "hello\n")?;
    /// let (adopter, listener) = (running.adopter(), TcpListener::bind("127.0.0.1:8080")?);
    /// std::thread::spawn(move || {
    ///     for socket in listener.incoming().flatten() {
    ///         if adopter.adopt(socket).is_err_and(|error| error.is_stopping()) {
    ///             return;
    ///         }
    ///     }
    /// });
    /// running.wait(Signals::install()?)?;
    /// # use weftwork::Signals;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    pub fn adopter(&self) -> Adopter {
        Adopter { cx: Arc::downgrade(&self.cx), engine: Arc::downgrade(&self.handle) }
    }
}

/// Hands connections to a running server. [`Running::adopter`] returns it. It does not keep the server alive, so the server's
/// own handler may hold it.
#[derive(Clone)]
pub struct Adopter {
    cx: Weak<Context>,
    engine: Weak<dyn EngineHandle>,
}

impl Adopter {
    /// Serves a connection that other code has accepted, as [`Running::adopt`] does.
    ///
    /// # Errors
    /// As for [`Running::adopt`], or the server has stopped accepting.
    pub fn adopt(&self, socket: impl Into<AcceptedSocket>) -> Result<(), AdoptError> {
        match (self.engine.upgrade(), self.cx.upgrade()) {
            (Some(engine), Some(cx)) => adopt(&engine, &cx, socket.into()),
            _ => Err(AdoptError { why: NotAdopted::Stopping, socket: socket.into() }),
        }
    }
}

fn adopt(engine: &Arc<dyn EngineHandle>, cx: &Context, accepted: AcceptedSocket) -> Result<(), AdoptError> {
    let AcceptedSocket { socket, bytes_read, is_plain } = accepted;
    engine::adopt(engine, cx, socket, &bytes_read, is_plain).map_err(|(why, socket)| {
        let socket = AcceptedSocket { socket, bytes_read, is_plain };
        AdoptError { why, socket }
    })
}

impl fmt::Debug for Adopter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopter").finish_non_exhaustive()
    }
}

/// A connected socket, for [`Running::adopt`]. It is made from a [`TcpStream`] or a [`UnixStream`].
///
/// The server sets the options that it needs. Duplicates of the socket must not be used any more.
#[derive(Debug)]
pub struct AcceptedSocket {
    socket: OwnedFd,
    bytes_read: Bytes,
    is_plain: bool,
}

impl AcceptedSocket {
    /// Wraps a [`TcpStream`] or a [`UnixStream`].
    pub fn new(socket: impl Into<AcceptedSocket>) -> AcceptedSocket {
        socket.into()
    }

    /// Adds the bytes that the program has read from the socket already, for example to see which protocol the client speaks.
    /// The server serves them before it reads on.
    ///
    /// ```
    /// # use std::io::{Read, Write};
    /// # use std::os::unix::net::UnixStream;
    /// # use weftwork::{AcceptedSocket, prelude::*};
    /// # let running = Server::unbound().start(|_: &mut Request| "hello\n")?;
    /// # let (mut client, mut socket) = UnixStream::pair()?;
    /// # client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    /// let mut first = [0; 4];
    /// socket.read_exact(&mut first)?;
    /// if first == *b"GET " {
    ///     running.adopt(AcceptedSocket::new(socket).with_bytes_read(first.to_vec()))?;
    /// }
    /// # let mut response = String::new();
    /// # client.read_to_string(&mut response)?;
    /// # assert!(response.ends_with("hello\n"));
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    #[must_use]
    pub fn with_bytes_read(mut self, bytes: impl Into<Bytes>) -> AcceptedSocket {
        self.bytes_read = bytes.into();
        self
    }

    /// Serves the connection without TLS, also if the server has TLS. It is what the prefix `plain+` is for an address.
    #[must_use]
    pub fn plain(mut self) -> AcceptedSocket {
        self.is_plain = true;
        self
    }

    /// Returns the socket, and the bytes that were read from it.
    pub fn into_parts(self) -> (OwnedFd, Bytes) {
        (self.socket, self.bytes_read)
    }
}

impl From<TcpStream> for AcceptedSocket {
    fn from(socket: TcpStream) -> AcceptedSocket {
        AcceptedSocket { socket: socket.into(), bytes_read: Bytes::new(), is_plain: false }
    }
}

impl From<UnixStream> for AcceptedSocket {
    fn from(socket: UnixStream) -> AcceptedSocket {
        AcceptedSocket { socket: socket.into(), bytes_read: Bytes::new(), is_plain: false }
    }
}

/// Error of [`Running::adopt`]. It holds the socket, from which nothing was read and to which nothing was written. Dropping the
/// error closes the connection without a response.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use weftwork::prelude::*;
///
/// let server = Server::unbound().settings(|s| s.connections_max(1).accepted_max(1));
/// let running = server.start(|_: &mut Request| "hello\n")?;
/// let (_first, socket) = UnixStream::pair()?;
/// running.adopt(socket)?;
///
/// let (mut second, socket) = UnixStream::pair()?;
/// let error = running.adopt(socket).unwrap_err();
/// assert!(error.is_full());
/// let (socket, _) = error.into_socket().into_parts();
/// UnixStream::from(socket).write_all(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")?;
/// let mut response = String::new();
/// second.read_to_string(&mut response)?;
/// assert!(response.starts_with("HTTP/1.1 503"));
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Debug)]
pub struct AdoptError {
    why: NotAdopted,
    socket: AcceptedSocket,
}

impl AdoptError {
    /// Returns whether the server has `connections_max` connections, or no room for one that waits (`queue_max`). The server then
    /// ends connections that were idle for a second, so a later attempt may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self.why, NotAdopted::Full)
    }

    /// Returns whether the server has stopped accepting connections.
    pub fn is_stopping(&self) -> bool {
        matches!(self.why, NotAdopted::Stopping)
    }

    /// Returns the socket.
    pub fn into_socket(self) -> AcceptedSocket {
        self.socket
    }
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot adopt a connection: ")?;
        match &self.why {
            NotAdopted::Full => {
                f.write_str("the server is full, try later or raise connections_max or queue_max")
            }
            NotAdopted::Stopping => f.write_str("the server has stopped accepting connections"),
            NotAdopted::Socket(error) => write!(f, "its socket cannot be used: {error}"),
        }
    }
}

impl StdError for AdoptError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.why {
            NotAdopted::Socket(error) => Some(error),
            NotAdopted::Full | NotAdopted::Stopping => None,
        }
    }
}
