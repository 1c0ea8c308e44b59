//! What a request in progress needs from the connection beneath it.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::Head;

use super::body::{BodyError, Quota};
use super::client::Source;
use super::handler::Asked;

/// One request and its response, as the connection serves them. A trait, so that this floor does not know
/// the one above. The connection implements it; what decodes a body, or filters a stream, stands in front of that.
pub(crate) trait Exchange {
    /// The parsed head, and the bytes that its spans point into.
    fn head(&self) -> (&Head, &[u8]);
    /// The other end of the socket; none for Unix sockets.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Who hands the request on, and the settings that say whether that one is believed about the client.
    fn source(&self) -> Source<'_>;
    /// What time it is, by the clock of the deadlines.
    fn now(&self) -> Instant;
    /// Until when an answer makes sense, as far as the settings say.
    fn deadline(&self) -> Option<Instant>;
    /// The client has ended its side, or the connection is broken. Found without waiting.
    fn client_gone(&self) -> bool;
    /// Our end of it.
    fn local_addr(&self) -> Option<SocketAddr>;
    /// Payload that has come and was not consumed, after a wait if need be. Empty: the body is over.
    fn fill(&mut self) -> Result<&[u8], BodyError>;
    /// Whether `fill` would give something, or the end, now or within `patience`. Who cannot tell leaves the wait to `fill`.
    fn fills_within(&mut self, patience: Duration) -> Result<bool, BodyError> {
        let _ = patience;
        Ok(true)
    }
    /// Takes the first `count` bytes of what `fill` gave.
    fn consume(&mut self, count: usize);
    /// Takes payload that has come, after a wait if need be, into the room that `into` has, and there must be some.
    /// 0: the body is over.
    fn take_into(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        let part = self.fill()?;
        let count = part.len().min(into.capacity() - into.len());
        into.extend_from_slice(&part[..count]);
        self.consume(count);
        Ok(count)
    }
    /// Bytes of the body that were not given out yet, when its head said how many there are.
    fn body_left(&self) -> Option<u64>;
    /// How much of the body may be read, by the handler and by the writer of its response together.
    fn quota(&self) -> &Quota;
    /// The same, to count and to change.
    fn quota_mut(&mut self) -> &mut Quota;
    /// Fields behind a chunked body that was read to its end.
    fn trailers(&self) -> &[(HeaderName, HeaderValue)];
    /// Sends a 1xx response at once.
    fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()>;
    /// Takes a part of a streamed response body; waits when the peer is slow.
    fn write(&mut self, data: &[u8]) -> io::Result<()>;
    /// Takes fields to be sent behind a streamed body. False: they cannot be sent to this client.
    fn send_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool>;
    /// What a request is answered with whose handler has panicked so. None: it will not be answered.
    fn status_of_panic(&self, panic: &(dyn Any + Send)) -> Option<StatusCode>;
    /// Something of the response is written, or it will not be: it is too late for another one.
    fn has_begun(&self) -> bool;
    /// Sends all that was written, and waits until the kernel has it.
    fn flush(&mut self) -> io::Result<()>;
    /// Lets time pass, after a flush. False: the server has begun to stop. An error: the client has gone.
    fn pause(&mut self, patience: Duration) -> io::Result<bool>;
    /// The setting of that name.
    fn heartbeat(&self) -> Duration;
    /// The server has been told to stop.
    fn is_stopping(&self) -> bool;
    /// From now on lines of the log about this request end with `id`, also when its handler has panicked.
    fn identify(&mut self, id: &str);
    /// A line of the log about what the client has done: clients can do that at any rate, and the log has few of them.
    fn tell(&self, line: fmt::Arguments<'_>);

    /// What was asked for, for such lines.
    fn asked(&self) -> Asked<'_> {
        let (head, bytes) = self.head();
        Asked::new(&head.method, head.path_in(bytes))
    }
}

/// What an exchange that stands in front of another one, its `below`, never changes.
macro_rules! forward_the_rest {
    () => {
        fn peer_addr(&self) -> Option<std::net::SocketAddr> {
            self.below.peer_addr()
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

        fn heartbeat(&self) -> std::time::Duration {
            self.below.heartbeat()
        }

        fn is_stopping(&self) -> bool {
            self.below.is_stopping()
        }

        fn identify(&mut self, id: &str) {
            self.below.identify(id);
        }

        fn tell(&self, line: std::fmt::Arguments<'_>) {
            self.below.tell(line);
        }
    };
}
pub(super) use forward_the_rest;

/// A connection that was taken over, as both halves of it see it.
pub(crate) trait Line: Send + Sync {
    /// The other end of the socket; none for Unix sockets.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Reads once, after a wait if need be. 0: the peer has ended its side. The first read that would wait while
    /// the server stops fails, and sets `told`.
    fn read(&self, into: &mut [u8], timeout: Option<Duration>, told: &mut bool) -> io::Result<usize>;
    /// Writes at least one byte, after a wait if need be.
    fn write(&self, data: &[u8], timeout: Option<Duration>) -> io::Result<usize>;
    /// How long a write may wait for the peer has changed, and with it how long the kernel waits.
    fn limit_unread(&self, write_timeout: Option<Duration>);
    /// Ends our side.
    fn shutdown_write(&self);
    /// Ends both sides.
    fn cut(&self);
    /// The server has begun to stop.
    fn is_stopping(&self) -> bool;
    /// The server's drain deadline has passed.
    fn is_closing(&self) -> bool;
    /// The setting of that name.
    #[cfg(feature = "websocket")]
    fn heartbeat(&self) -> Duration;
    /// The setting of that name.
    #[cfg(feature = "websocket")]
    fn linger_timeout(&self) -> Duration;

    /// Its end was waited for.
    #[cfg(feature = "websocket")]
    fn note_linger(&self) {}
}
