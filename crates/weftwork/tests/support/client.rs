//! A client that sends any bytes and reads strictly. Each of its waits has a timeout, and its panic says what
//! it waited for.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use weftwork::{Address, Running};

use super::TIMEOUT;
use super::answer::{Answer, Framing, read_fields};
use super::over_http2::{self, Http2Session};
use super::socket::{Socket, Wire};
use super::tls::{self, TlsSession};

pub(crate) struct Client {
    socket: Socket,
    tls: Option<TlsSession>,
    http2: Option<Http2Session>,
    /// Bytes that were read and are not yet part of an answer.
    got: Vec<u8>,
}

impl Client {
    /// Connects to the first address of a server.
    pub(crate) fn connect(server: &Running) -> Client {
        Client::connect_to(&server.addresses()[0])
    }

    pub(crate) fn connect_to(address: &Address) -> Client {
        Client::try_connect_to(address).expect("the server takes connections")
    }

    /// Connects to a server that never speaks TLS.
    pub(crate) fn connect_in_clear(address: &Address) -> Client {
        let socket = Client::socket_to(address).expect("the server takes connections");
        Client { socket, tls: None, http2: None, got: Vec::new() }
    }

    /// If descriptors are scarce, there may be no descriptor for a client either.
    pub(crate) fn try_connect_to(address: &Address) -> std::io::Result<Client> {
        let socket = Client::socket_to(address)?;
        let http2 = over_http2::is_on().then(Http2Session::default);
        Ok(Client { socket, tls: tls::is_on().then(TlsSession::new), http2, got: Vec::new() })
    }

    fn socket_to(address: &Address) -> std::io::Result<Socket> {
        Ok(match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.set_write_timeout(Some(TIMEOUT)).unwrap();
                Socket::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.set_write_timeout(Some(TIMEOUT)).unwrap();
                Socket::Unix(stream)
            }
            other => panic!("no client for {other:?}"),
        })
    }

    /// From now on the kernel buffers hardly more for this client than it reads.
    pub(crate) fn read_hand_to_mouth(&self) {
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, 64 << 10).unwrap();
    }

    /// Returns the name of this client in the server's log.
    pub(crate) fn name(&self) -> String {
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        stream.local_addr().unwrap().to_string()
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes bytes");
    }

    /// Like [`send`](Client::send), if the server may already have closed.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.try_send_by(usize::MAX, bytes.as_ref())
    }

    fn try_send_by(&mut self, size: usize, bytes: &[u8]) -> std::io::Result<()> {
        let mut wire = Wire { socket: &mut self.socket, tls: &self.tls };
        match &self.http2 {
            Some(http2) => http2.write(bytes, size, &mut wire),
            None => bytes.chunks(size).try_for_each(|piece| wire.write_all(piece)),
        }
    }

    /// Sends bytes that are in clear over TLS too, because they come before the handshake.
    pub(crate) fn send_in_clear(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("the server takes bytes");
    }

    /// Sends a PROXY header and what is behind it at once. Over TLS, the handshake is behind it.
    #[track_caller]
    pub(crate) fn send_behind(&mut self, header: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) {
        let (header, bytes) = (header.as_ref(), bytes.as_ref());
        match &self.tls {
            None if let Some(http2) = &self.http2 => {
                http2.begin_behind(header);
                self.send(bytes);
            }
            None => self.send([header, bytes].concat()),
            Some(tls) => {
                tls.begin_behind(header);
                self.send_ahead(bytes);
            }
        }
    }

    /// Sends the first bytes of a client that the server may accept late. Over TLS, this does not wait for the
    /// handshake.
    #[track_caller]
    pub(crate) fn send_ahead(&mut self, bytes: impl AsRef<[u8]>) {
        match &self.tls {
            None => self.send(bytes),
            Some(_) if self.http2.is_some() => self.send(bytes),
            Some(tls) => tls.write_ahead(bytes.as_ref(), || self.socket.try_clone()),
        }
    }

    /// Sends `bytes` in pieces of `size`, each a segment of its own.
    #[track_caller]
    pub(crate) fn send_by(&mut self, size: usize, bytes: impl AsRef<[u8]>) {
        self.try_send_by(size, bytes.as_ref()).expect("the server takes bytes");
    }

    /// Sends on another thread, while this one reads.
    pub(crate) fn send_aside(&self, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
        let (socket, tls, http2) = (self.socket.try_clone(), self.tls.clone(), self.http2.clone());
        let mut aside = Client { socket, tls, http2, got: Vec::new() };
        std::thread::spawn(move || aside.try_send(&bytes))
    }

    /// Sends until the server and both kernels take no more. Returns false if the connection ends instead.
    pub(crate) fn fills_up(&mut self) -> bool {
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let sent = (0..1000).try_for_each(|_| self.try_send([b'x'; 100_000]));
        sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Ends this side and continues to read.
    pub(crate) fn half_close(&self) {
        if let Some(http2) = &self.http2 {
            let _ = http2.end_sending(&mut Wire { socket: &mut self.socket.try_clone(), tls: &self.tls });
            return;
        }
        if let Some(tls) = &self.tls {
            tls.close(|| self.socket.try_clone(), &mut self.socket.try_clone());
        }
        self.socket.shutdown(Shutdown::Write);
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Sends a GET without fields but Host, and reads its answer.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.answer()
    }

    /// Reads one response to a request that was not HEAD.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to(false)
    }

    #[track_caller]
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        self.answer_to(true)
    }

    #[track_caller]
    fn answer_to(&mut self, is_head: bool) -> Answer {
        let head = self.head();
        let mut answer = Answer::head(&head);
        match answer.framing(is_head) {
            Framing::None => {}
            Framing::Length(length) => {
                self.fill_to(length);
                answer.body = self.got.drain(..length).collect();
            }
            Framing::Chunked => self.read_chunks(&mut answer),
            Framing::Close => {
                while self.read_more() {}
                answer.body = std::mem::take(&mut self.got);
            }
        }
        let mut wire = Wire { socket: &mut self.socket, tls: &self.tls };
        answer.is_last = self.http2.as_ref().is_some_and(|http2| http2.says_end(&mut wire));
        answer
    }

    #[track_caller]
    fn head(&mut self) -> String {
        let bytes = self.through(b"\r\n\r\n");
        String::from_utf8(bytes).expect("a head of text").trim_end_matches("\r\n").to_owned()
    }

    #[track_caller]
    fn read_chunks(&mut self, answer: &mut Answer) {
        loop {
            let line = String::from_utf8(self.through(b"\r\n")).expect("a chunk size");
            let size =
                usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
            if size == 0 {
                break;
            }
            self.fill_to(size + 2);
            answer.body.extend(self.got.drain(..size));
            let end: Vec<u8> = self.got.drain(..2).collect();
            assert_eq!(end, b"\r\n", "a chunk ends in CRLF");
        }
        loop {
            let line = String::from_utf8(self.through(b"\r\n")).expect("a trailer");
            if line == "\r\n" {
                return;
            }
            answer.trailers.extend(read_fields(&line));
        }
    }

    /// Reads up to and including `end`.
    #[track_caller]
    fn through(&mut self, end: &[u8]) -> Vec<u8> {
        let mut from = 0;
        loop {
            if let Some(at) = self.got[from..].windows(end.len()).position(|part| part == end) {
                return self.got.drain(..from + at + end.len()).collect();
            }
            from = self.got.len().saturating_sub(end.len() - 1);
            assert!(self.read_more(), "the connection ended within a response: {}", self.shown());
        }
    }

    #[track_caller]
    fn fill_to(&mut self, length: usize) {
        while self.got.len() < length {
            let (got, shown) = (self.got.len(), self.shown());
            assert!(self.read_more(), "the connection ended after {got} of {length} bytes: {shown}");
        }
    }

    /// Reads `count` bytes and discards them. Returns false if the server has ended the connection before, for
    /// whatever reason.
    pub(crate) fn takes(&mut self, count: usize) -> bool {
        while self.got.len() < count {
            if !matches!(self.read(), Ok(1..)) {
                return false;
            }
        }
        self.got.drain(..count);
        true
    }

    pub(super) fn read_into(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.read_within(TIMEOUT, into)
    }

    fn read_within(&mut self, timeout: Duration, into: &mut [u8]) -> std::io::Result<usize> {
        let mut wire = Wire { socket: &mut self.socket, tls: &self.tls };
        match &self.http2 {
            Some(http2) => http2.read(into, timeout, &mut wire),
            None => wire.read(into),
        }
    }

    /// Reads once. Returns false if the server has ended its side.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        match self.read() {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("nothing came for {TIMEOUT:?}, behind {}", self.shown())
            }
            Err(error) => panic!("{error}, behind {}", self.shown()),
        }
    }

    fn read(&mut self) -> std::io::Result<usize> {
        let mut bytes = [0; 64 << 10];
        let count = self.read_into(&mut bytes)?;
        self.got.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Expects that the server closes and sends nothing before. A reset is a failure.
    #[track_caller]
    pub(crate) fn ends(mut self) {
        self.sees_end();
    }

    /// Like [`ends`](Client::ends). Over HTTP/2 the connection goes on behind such a response.
    #[track_caller]
    pub(crate) fn ends_over_http1(self) {
        if !over_http2::is_on() {
            self.ends();
        }
    }

    /// Like [`ends`](Client::ends), but this side stays open.
    #[track_caller]
    pub(crate) fn sees_end(&mut self) {
        while self.read_more() {}
        assert!(self.got.is_empty(), "bytes behind the last response: {}", self.shown());
    }

    /// Expects that the server closes, and returns what it sent before. A reset is a failure.
    #[track_caller]
    pub(crate) fn until_close(mut self) -> Vec<u8> {
        while self.read_more() {}
        self.got
    }

    /// Expects that the server ends the connection, by a close or a reset. Returns what arrived before.
    #[track_caller]
    pub(crate) fn rest(mut self) -> Vec<u8> {
        loop {
            match self.read() {
                Ok(0) => return self.got,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the server has not ended the connection for {TIMEOUT:?}")
                }
                Err(_) => return self.got,
            }
        }
    }

    /// Expects that the server aborts the connection, so that no client can take the bytes for a whole answer.
    /// Returns the bytes.
    #[track_caller]
    pub(crate) fn breaks_off(mut self) -> Vec<u8> {
        loop {
            match self.read() {
                Ok(0) => panic!("an end in good order, behind {}", self.shown()),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "behind {}", self.shown());
                    return self.got;
                }
            }
        }
    }

    /// Reads at least one byte of any value.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&mut self) {
        assert!(self.read_more(), "the connection ended");
    }

    /// Returns true if the server is known to have ended its side. Does not wait.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.http2.as_ref().is_some_and(Http2Session::has_begun) {
            return matches!(self.read_within(Duration::from_millis(1), &mut [0; 1000]), Ok(0));
        }
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        stream.set_nonblocking(true).unwrap();
        let ended = match &self.tls {
            None => matches!(stream.peek(&mut [0]), Ok(0)),
            // Nothing has been sent to the server, nor read.
            Some(tls) if !tls.has_begun() => matches!(stream.peek(&mut [0]), Ok(0)),
            Some(_) => matches!(self.read(), Ok(0)),
        };
        let Socket::Tcp(stream) = &self.socket else { panic!("a TCP client") };
        stream.set_nonblocking(false).unwrap();
        ended
    }

    /// Reads once, at most `most` bytes, and discards them. Returns how many there were.
    pub(crate) fn take(&mut self, most: usize) -> usize {
        self.read_into(&mut vec![0; most]).unwrap_or(0)
    }

    /// Reads the response of a server that may take no request of this connection. Over TLS, there may be no session for
    /// a response yet: the client then gets an alert, and this returns None. So it does if the server has refused the stream.
    #[track_caller]
    pub(crate) fn refusal(&mut self) -> Option<Answer> {
        let error = match self.read() {
            Ok(0) if self.http2.is_some() => return None,
            Ok(_) => return Some(self.answer()),
            Err(error) => error.to_string(),
        };
        assert!(self.tls.is_some(), "{error}");
        assert!(error.contains("InternalError"), "{error}");
        // Without a session, the end is that of the socket.
        self.tls = None;
        None
    }

    /// Like [`sees_end`](Client::sees_end), of a client that has sent nothing over TLS.
    #[track_caller]
    pub(crate) fn sees_end_before_tls(&mut self) {
        self.tls = None;
        self.sees_end();
    }

    /// Reads a head, and nothing after it.
    #[track_caller]
    pub(crate) fn answer_head(&mut self) -> Answer {
        Answer::head(&self.head())
    }

    /// Reads `count` bytes of any value.
    #[track_caller]
    pub(crate) fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.fill_to(count);
        self.got.drain(..count).collect()
    }

    /// Reads one chunk of a body that continues. The last chunk is empty.
    #[track_caller]
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        let line = String::from_utf8(self.through(b"\r\n")).expect("a chunk size");
        let size =
            usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        let mut chunk = self.exactly(size + 2);
        assert_eq!(chunk.split_off(size), b"\r\n", "a chunk ends in CRLF");
        chunk
    }

    fn shown(&self) -> String {
        let shown = &self.got[..self.got.len().min(300)];
        format!("{:?}", String::from_utf8_lossy(shown))
    }
}
