//! A test client for WebSocket hubs. It encodes frames and never waits.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Error, Message as Whole};

use super::connection::TestConnection;
use super::response::TestResponse;
use crate::app::Message;

/// The client side of a WebSocket of a [`TestClient`](super::TestClient).
/// [`TestRequest::websocket`](super::TestRequest::websocket) creates it.
///
/// Pings are answered during reads. A client that is not read does not answer them. Dropping this client
/// disconnects it without a close frame.
pub struct TestWebSocket {
    socket: WebSocket<ClientStream>,
    answer: TestResponse,
    closed: Option<(u16, String)>,
}

impl TestWebSocket {
    pub(super) fn over(connection: TestConnection, answer: TestResponse) -> TestWebSocket {
        let stream = ClientStream { connection, received: VecDeque::new() };
        TestWebSocket { socket: WebSocket::from_raw_socket(stream, Role::Client, None), answer, closed: None }
    }

    /// Returns the 101 response with its headers.
    pub fn answer(&self) -> &TestResponse {
        &self.answer
    }

    /// Sends a message. It is lost if the socket is closed.
    pub fn send(&mut self, message: impl Into<Message>) {
        let _ = self.socket.send(match message.into() {
            Message::Text(text) => Whole::text(text),
            Message::Binary(bytes) => Whole::Binary(bytes),
        });
    }

    /// Returns the next message from the server, or `None` if there is no message now.
    ///
    /// # Panics
    /// Panics if the server sent invalid frames.
    #[track_caller]
    pub fn read(&mut self) -> Option<Message> {
        loop {
            match self.socket.read() {
                Ok(Whole::Text(text)) => return Some(Message::Text(text.as_str().to_owned())),
                Ok(Whole::Binary(bytes)) => return Some(Message::Binary(bytes)),
                // 1005 stands for no code (RFC 6455 section 7.1.5).
                Ok(Whole::Close(close)) => {
                    let close = close.map(|close| (close.code.into(), close.reason.as_str().to_owned()));
                    self.closed = Some(close.unwrap_or((1005, String::new())));
                }
                Ok(_) => {}
                Err(Error::Io(_) | Error::ConnectionClosed | Error::AlreadyClosed) => return None,
                Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                    return None;
                }
                Err(error) => panic!("the server sent invalid WebSocket frames: {error}"),
            }
        }
    }

    /// Closes the socket, or answers the server's close frame.
    pub fn close(&mut self, code: u16, reason: &str) {
        // The socket may be closed already.
        let _ = self.socket.close(Some(CloseFrame { code: code.into(), reason: reason.into() }));
    }

    /// Returns the code and reason of the server's close frame, if it was [read](TestWebSocket::read).
    pub fn closed(&self) -> Option<(u16, &str)> {
        self.closed.as_ref().map(|(code, reason)| (*code, reason.as_str()))
    }

    /// Returns whether the server has closed the connection.
    pub fn is_over(&mut self) -> bool {
        self.socket.get_mut().connection.is_closed()
    }

    /// Advances the clock. See [`TestConnection::advance`].
    pub fn advance(&mut self, time: Duration) {
        self.socket.get_mut().connection.advance(time);
    }
}

struct ClientStream {
    connection: TestConnection,
    received: VecDeque<u8>,
}

impl Read for ClientStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.received.extend(self.connection.received());
        if self.received.is_empty() && !self.connection.is_closed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.received.read(into)
    }
}

impl Write for ClientStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.connection.send(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TestWebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestWebSocket").field("closed", &self.closed).finish_non_exhaustive()
    }
}
