//! Interface between a request in progress and its connection.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::Head;

use super::body::{BodyError, Quota};
use super::client::Source;
use super::handler::RequestLine;
use super::observer::{Arrival, ResponseObserver};
use super::owned_body::OwnedBody;
use super::wait::WaitError;

/// Value that handlers keep for a client's connection.
pub(crate) type ConnValue = Option<Box<dyn Any + Send>>;

/// A request and its response, as the connection serves them. This is a trait, so that this layer does not depend on
/// the layer above. The connection implements it. Decoders of bodies and filters of streams wrap it.
pub(crate) trait Exchange {
    /// Returns the parsed head, and the bytes to which its spans refer.
    fn head(&self) -> (&Head, &[u8]);
    /// Returns the address of the peer. Unix sockets have none.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Returns the facts about the TLS session of the connection.
    #[cfg(feature = "_tls")]
    fn tls(&self) -> Option<&crate::TlsInfo> {
        None
    }
    /// Returns who sent the request, and the settings that say whether it is trusted.
    fn source(&self) -> Source<'_>;
    /// Returns the time of the clock of the deadlines.
    fn now(&self) -> Instant;
    /// Returns the deadline of the request from the settings.
    fn deadline(&self) -> Option<Instant>;
    /// Returns whether the client has closed its side or the connection is broken. Does not wait.
    fn client_gone(&self) -> bool;
    /// Polls the future until it is ready, its client leaves, or the deadline has passed.
    fn wait_for(
        &self,
        future: Pin<&mut dyn Future<Output = ()>>,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError>;
    /// Returns the local address.
    fn local_addr(&self) -> Option<SocketAddr>;
    /// Returns payload that is available and not consumed, after a wait if necessary. Empty means the end of the body.
    fn fill(&mut self) -> Result<&[u8], BodyError>;
    /// Returns whether `fill` would return something now or within `patience`. An implementation that cannot tell
    /// leaves the wait to `fill`.
    fn fills_within(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        let _ = timeout;
        Ok(true)
    }
    /// Consumes the first `count` bytes of what `fill` returned.
    fn consume(&mut self, count: usize);
    /// Reads payload into the spare capacity of `into`, which must not be zero, after a wait if necessary. 0 means the
    /// end of the body.
    fn take_into(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        let part = self.fill()?;
        let count = part.len().min(into.capacity() - into.len());
        into.extend_from_slice(&part[..count]);
        self.consume(count);
        Ok(count)
    }
    /// Takes the rest of the body, which the connection brings after the handler has returned. A decoder reads it first.
    fn take_body(&mut self) -> OwnedBody {
        OwnedBody::collect(self)
    }
    /// Returns how many bytes of the body were not returned yet, if the head declares a length.
    fn body_left(&self) -> Option<u64>;
    /// Returns whether the whole rest of the body has arrived.
    fn body_is_here(&self) -> bool;
    /// Returns the limit of the body. The handler and the writer of its response share it.
    fn quota(&self) -> &Quota;
    /// Returns the same limit, to count and to change.
    fn quota_mut(&mut self) -> &mut Quota;
    /// Returns the trailer fields of a chunked body that was read to its end.
    fn trailers(&self) -> &[(HeaderName, HeaderValue)];
    /// Sends a 1xx response at once.
    fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()>;
    /// Writes a part of a streamed response body. Waits if the peer is slow.
    fn write(&mut self, data: &[u8]) -> io::Result<()>;
    /// Adds trailer fields to a streamed body. Returns false if they cannot be sent to this client.
    fn send_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool>;
    /// Returns the status of the response if the handler panics. Returns None if there will be no response.
    fn status_of_panic(&self, panic: &(dyn Any + Send)) -> Option<StatusCode>;
    /// Returns whether a part of the response was written, or no response will be written. It is then too late for
    /// another response.
    fn has_begun(&self) -> bool;
    /// Sends everything that was written, and waits until the kernel has accepted it.
    fn flush(&mut self) -> io::Result<()>;
    /// Pauses after a flush. Returns false if the server has begun to stop, and an error if the client has gone.
    fn pause(&mut self, timeout: Duration) -> io::Result<bool>;
    /// Returns when the request had arrived.
    fn arrival(&self) -> Arrival;
    /// Attaches an observer of the response.
    fn observe(&mut self, observer: Box<dyn ResponseObserver>);
    /// Returns the value of this setting.
    fn heartbeat(&self) -> Duration;
    /// Returns whether the server was told to stop.
    fn is_stopping(&self) -> bool;
    /// Appends `id` to later log lines about this request, even after its handler has panicked.
    fn identify(&mut self, id: &str);
    /// Returns the value that handlers keep for the client's connection. It is dropped with the connection.
    fn conn_value(&mut self) -> &mut ConnValue;
    /// Logs a line about the client. Clients can cause any number of such lines, so only a few are logged.
    fn log_client(&self, line: fmt::Arguments<'_>);

    /// Returns method and path for such lines.
    fn request_line(&self) -> RequestLine<'_> {
        let (head, bytes) = self.head();
        RequestLine::new(&head.method, head.path_in(bytes))
    }
}

/// Methods that a wrapping exchange forwards to the inner exchange, `below`.
macro_rules! forward_the_rest {
    () => {
        fn peer_addr(&self) -> Option<std::net::SocketAddr> {
            self.below.peer_addr()
        }

        #[cfg(feature = "_tls")]
        fn tls(&self) -> Option<&crate::TlsInfo> {
            self.below.tls()
        }

        fn source(&self) -> crate::message::client::Source<'_> {
            self.below.source()
        }

        fn now(&self) -> std::time::Instant {
            self.below.now()
        }

        fn deadline(&self) -> Option<std::time::Instant> {
            self.below.deadline()
        }

        fn client_gone(&self) -> bool {
            self.below.client_gone()
        }

        fn body_is_here(&self) -> bool {
            self.below.body_is_here()
        }

        fn wait_for(
            &self,
            future: std::pin::Pin<&mut dyn Future<Output = ()>>,
            deadline: Option<std::time::Instant>,
        ) -> Result<(), crate::WaitError> {
            self.below.wait_for(future, deadline)
        }

        fn local_addr(&self) -> Option<std::net::SocketAddr> {
            self.below.local_addr()
        }

        fn quota(&self) -> &crate::message::body::Quota {
            self.below.quota()
        }

        fn quota_mut(&mut self) -> &mut crate::message::body::Quota {
            self.below.quota_mut()
        }

        fn interim(
            &mut self,
            status: http::StatusCode,
            fields: &[(http::HeaderName, http::HeaderValue)],
        ) -> std::io::Result<()> {
            self.below.interim(status, fields)
        }

        fn status_of_panic(&self, panic: &(dyn std::any::Any + Send)) -> Option<http::StatusCode> {
            self.below.status_of_panic(panic)
        }

        fn has_begun(&self) -> bool {
            self.below.has_begun()
        }

        fn arrival(&self) -> crate::message::observer::Arrival {
            self.below.arrival()
        }

        fn observe(&mut self, observer: Box<dyn crate::message::observer::ResponseObserver>) {
            self.below.observe(observer);
        }

        fn heartbeat(&self) -> std::time::Duration {
            self.below.heartbeat()
        }

        fn is_stopping(&self) -> bool {
            self.below.is_stopping()
        }

        fn identify(&mut self, id: &str) {
            self.below.identify(id);
        }

        fn conn_value(&mut self) -> &mut crate::message::exchange::ConnValue {
            self.below.conn_value()
        }

        fn log_client(&self, line: std::fmt::Arguments<'_>) {
            self.below.log_client(line);
        }
    };
}
pub(super) use forward_the_rest;

/// Methods that write the response, which a wrapping exchange forwards if it changes only the request.
#[cfg(feature = "compression")]
macro_rules! forward_the_response {
    () => {
        fn write(&mut self, data: &[u8]) -> std::io::Result<()> {
            self.below.write(data)
        }

        fn send_trailers(
            &mut self,
            fields: &[(http::HeaderName, http::HeaderValue)],
        ) -> std::io::Result<bool> {
            self.below.send_trailers(fields)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            self.below.flush()
        }

        fn pause(&mut self, timeout: std::time::Duration) -> std::io::Result<bool> {
            self.below.pause(timeout)
        }
    };
}
#[cfg(feature = "compression")]
pub(super) use forward_the_response;

/// An upgraded connection, shared by its two halves.
pub(crate) trait UpgradedIo: Send + Sync {
    /// Returns the address of the peer. Unix sockets have none.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Reads once, after a wait if necessary. 0 means that the peer has closed its side. The first read that would wait
    /// while the server stops fails, and sets `told`.
    fn read(&self, into: &mut [u8], timeout: Option<Duration>, stop_sent: &mut bool) -> io::Result<usize>;
    /// Writes at least one byte, after a wait if necessary.
    fn write(&self, data: &[u8], timeout: Option<Duration>) -> io::Result<usize>;
    /// Applies a changed write timeout to the kernel.
    fn limit_unread(&self, write_timeout: Option<Duration>);
    /// Closes the write side.
    fn shutdown_write(&self);
    /// Closes both sides.
    fn cut(&self);
    /// Returns whether the server has begun to stop.
    fn is_stopping(&self) -> bool;
    /// Returns whether the server's drain deadline has passed.
    fn is_closing(&self) -> bool;
    /// Returns the value of this setting.
    #[cfg(feature = "websocket")]
    fn heartbeat(&self) -> Duration;
    /// Returns the value of this setting.
    #[cfg(feature = "websocket")]
    fn linger_timeout(&self) -> Duration;

    /// Records that the end was waited for.
    #[cfg(feature = "websocket")]
    fn note_linger(&self) {}
}
