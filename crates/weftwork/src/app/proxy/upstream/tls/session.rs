//! One TLS session with the upstream server. A mutex guards the session, and no thread waits while it holds the
//! mutex, so both directions of a tunnel can use it.

use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustls::ClientConnection;

use super::super::conn::{wait_readable, wait_writable};
use super::Verification;
use super::reason::reason;
use crate::message::large_stack::with_large_stack;

/// Size of one read of the socket. rustls alone reads 4 KiB at a time.
const CIPHERTEXT_BYTES: usize = 16 << 10;

pub(in crate::app::proxy) struct TlsStream {
    socket: TcpStream,
    session: Mutex<Session>,
}

struct Session {
    tls: ClientConnection,
    /// Received bytes that the session has not taken yet, from `taken` on.
    ciphertext: Vec<u8>,
    taken: usize,
    verification: Arc<Verification>,
}

impl TlsStream {
    /// Makes the handshake, until `until`.
    pub(super) fn connect(
        socket: TcpStream,
        verification: Arc<Verification>,
        offers_http2: bool,
        until: Instant,
    ) -> io::Result<TlsStream> {
        let config = if offers_http2 { &verification.config_of_both } else { &verification.config };
        let (config, name) = (config.clone(), verification.name.clone());
        let tls = with_large_stack(|| ClientConnection::new(config, name))
            .map_err(|error| reason(&error, &verification))?;
        let mut session = Session { tls, ciphertext: Vec::new(), taken: 0, verification };
        while session.tls.is_handshaking() || session.tls.wants_write() {
            let step = if session.tls.wants_write() {
                session.tls.write_tls(&mut &socket).map(drop)
            } else {
                session.receive_handshake(&socket)
            };
            let step = match step {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if session.tls.wants_write() {
                        wait_writable(&socket, until)
                    } else {
                        wait_readable(&socket, until)
                    }
                }
                step => step,
            };
            step.map_err(handshake_failed)?;
        }
        Ok(TlsStream { socket, session: Mutex::new(session) })
    }

    pub(in crate::app::proxy) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(&self.socket, bytes)
    }

    pub(in crate::app::proxy) fn has_unsent(&self) -> bool {
        self.lock().tls.wants_write()
    }

    pub(in crate::app::proxy) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut session = self.lock();
        session.receive(&self.socket)?;
        session.tls.reader().read(into).map_err(truncated)
    }

    pub(in crate::app::proxy) fn has_input(&self) -> io::Result<bool> {
        match self.lock().receive(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            received => received.map(|()| true),
        }
    }

    pub(in crate::app::proxy) fn shutdown(&self, how: Shutdown, until: Instant) -> io::Result<()> {
        if how == Shutdown::Write {
            self.lock().tls.send_close_notify();
            while self.has_unsent() {
                match self.write(&[]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        wait_writable(&self.socket, until)?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    written => drop(written?),
                }
            }
        }
        self.socket.shutdown(how)
    }

    pub(in crate::app::proxy) fn release_buffers(&self) {
        self.lock().release_buffer();
    }

    pub(in crate::app::proxy) fn has_chosen_http2(&self) -> bool {
        self.lock().tls.alpn_protocol() == Some(b"h2")
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.wants_write() {
            self.tls.write_tls(&mut &*socket)?;
            if self.tls.wants_write() {
                return Ok(0);
            }
        }
        let accepted = self.tls.writer().write(bytes)?;
        // The next call reports an error, and sends what the kernel has not taken.
        let _ = self.tls.write_tls(&mut &*socket);
        Ok(accepted)
    }

    /// Receives until plaintext or the end is there. Session tickets and other messages of the protocol are
    /// not input.
    fn receive(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.needs_more() {
            if self.taken == self.ciphertext.len() {
                match self.read_socket(socket) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                }
            }
            self.take()?;
            if self.tls.wants_write() {
                // The next write sends it otherwise.
                let _ = self.tls.write_tls(&mut &*socket);
            }
        }
        Ok(())
    }

    fn needs_more(&mut self) -> bool {
        self.tls.reader().fill_buf().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Receives once during the handshake. Bytes after the handshake stay for [`receive`](Self::receive).
    fn receive_handshake(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.read_socket(socket)?;
        if self.ciphertext.is_empty() {
            return Err(closed());
        }
        while self.tls.is_handshaking() && self.taken < self.ciphertext.len() {
            // Signatures and key exchanges need more stack than a fiber has.
            let taken = with_large_stack(|| self.take());
            if taken.is_err() {
                // The alert that states the reason.
                let _ = self.tls.write_tls(&mut &*socket);
            }
            taken?;
        }
        Ok(())
    }

    /// Reads once, when all earlier bytes are taken. The end leaves no bytes.
    fn read_socket(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.taken = 0;
        self.ciphertext.resize(CIPHERTEXT_BYTES, 0);
        let read = (&*socket).read(&mut self.ciphertext);
        self.ciphertext.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    /// Gives the session a part of the received bytes, or the end if no bytes are left.
    fn take(&mut self) -> io::Result<()> {
        self.taken += self.tls.read_tls(&mut &self.ciphertext[self.taken..])?;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => Err(reason(&error, &self.verification)),
        }
    }

    fn release_buffer(&mut self) {
        if self.taken == self.ciphertext.len() {
            (self.ciphertext, self.taken) = (Vec::new(), 0);
        }
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for TlsStream {
    /// Sends `close_notify`, unless bytes of a record are unsent. A server that reads nothing does not get it.
    fn drop(&mut self) {
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !session.tls.wants_write() {
            session.tls.send_close_notify();
            let _ = session.tls.write_tls(&mut &self.socket);
        }
    }
}

/// States that the server accepted the connection, and that the handshake failed.
fn handshake_failed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData => error,
        io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "the TLS handshake took longer than connect_timeout: the port may not be one for https://",
        ),
        _ => io::Error::new(io::ErrorKind::InvalidData, format!("TLS: the handshake failed: {error}")),
    }
}

fn truncated(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return error;
    }
    let why = "the server ended the connection without a TLS close_notify, so its response may be truncated";
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

fn closed() -> io::Error {
    let why =
        "TLS: the server closed the connection during the handshake: the port may not be one for https://";
    io::Error::new(io::ErrorKind::InvalidData, why)
}
