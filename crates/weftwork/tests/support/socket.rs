//! The socket of a client, with or without TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::over_http2::Transport;
use super::tls::TlsSession;

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn try_clone(&self) -> Socket {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
        }
        .expect("a descriptor")
    }

    pub(super) fn shutdown(&self, how: Shutdown) {
        match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        }
        .unwrap();
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(into),
            Socket::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A socket, and the session over it.
pub(super) struct Wire<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) tls: &'a Option<TlsSession>,
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(tls) = self.tls else { return self.socket.read(into) };
        let original = self.socket.try_clone();
        tls.read(into, move || original.try_clone(), self.socket)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(tls) = self.tls else { return self.socket.write_all(bytes) };
        let original = self.socket.try_clone();
        tls.write(bytes, move || original.try_clone(), self.socket)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Transport for Wire<'_> {
    fn is_readable(&mut self, timeout: Duration) -> bool {
        let mut fds = [match &*self.socket {
            Socket::Tcp(stream) => PollFd::new(stream, PollFlags::IN),
            Socket::Unix(stream) => PollFd::new(stream, PollFlags::IN),
        }];
        poll(&mut fds, Some(&Timespec::try_from(timeout).expect("a short time"))).is_ok_and(|count| count > 0)
    }
}
