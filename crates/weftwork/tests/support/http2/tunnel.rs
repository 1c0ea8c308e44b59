//! CONNECT, plain and extended (RFC 8441), and the bytes of another protocol on a stream.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use weftwork::http::Method;
use weftwork_wire::{ErrorCode, RequestHead};

use super::{Http2Client, field};
use crate::support::Answer;

impl Http2Client {
    /// Sends an extended CONNECT.
    #[track_caller]
    pub(crate) fn connect_protocol(
        &mut self,
        protocol: &str,
        path: &str,
        fields: &[(&str, &str)],
        ends: bool,
    ) -> u32 {
        self.wait("the settings of the server", |client| client.http.peer().connect_protocol);
        self.send_connect(Some(protocol), Some(path), "a", fields, ends)
    }

    /// Sends a plain CONNECT.
    #[track_caller]
    pub(crate) fn connect_to(&mut self, authority: &str) -> u32 {
        self.send_connect(None, None, authority, &[], false)
    }

    #[track_caller]
    fn send_connect(
        &mut self,
        protocol: Option<&str>,
        path: Option<&str>,
        authority: &str,
        fields: &[(&str, &str)],
        ends: bool,
    ) -> u32 {
        let fields: Vec<_> = fields.iter().map(|(name, value)| field(name, value)).collect();
        let head = RequestHead {
            method: &Method::CONNECT,
            scheme: path.map(|_| "http"),
            path,
            authority: Some(authority),
            protocol,
            fields: &fields,
        };
        let mut out = Vec::new();
        let stream = self.write_head(&head, ends, &mut out);
        self.send(&out);
        stream
    }

    /// Waits for the head of a response whose body goes on, and returns it.
    #[track_caller]
    pub(crate) fn head(&mut self, stream: u32) -> Answer {
        self.wait_for_head(stream);
        let answer = self.streams[&stream].answer.as_ref().expect("it was waited for");
        Answer { body: Vec::new(), ..answer.clone() }
    }
}

/// A stream in another protocol. Several may share a connection.
pub(crate) struct Tunnel {
    pub(crate) client: Rc<RefCell<Http2Client>>,
    pub(crate) stream: u32,
    /// Bytes that were read.
    read: usize,
}

impl Tunnel {
    pub(crate) fn new(client: &Rc<RefCell<Http2Client>>, stream: u32) -> Tunnel {
        Tunnel { client: client.clone(), stream, read: 0 }
    }

    /// Ends the client's side.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        self.client.borrow_mut().send_data(self.stream, b"", true);
    }

    #[track_caller]
    pub(crate) fn reset(&mut self) {
        self.client.borrow_mut().reset(self.stream);
    }

    /// Expects that the server ends its side, and sends nothing before.
    #[track_caller]
    pub(crate) fn ends(&mut self) {
        assert_eq!(self.read(&mut [0; 1]).unwrap(), 0);
    }

    #[track_caller]
    pub(crate) fn reset_code(&mut self) -> ErrorCode {
        self.client.borrow_mut().wait_for_reset(self.stream)
    }
}

impl Read for Tunnel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Tunnel { client, stream, read } = self;
        let mut client = client.borrow_mut();
        client.wait("bytes of a tunnel", |client| {
            client.received(*stream) > *read
                || client.has_answer(*stream)
                || client.reset_of(*stream).is_some()
        });
        let exchange = &client.streams[stream];
        let body = exchange.answer.as_ref().map_or(&[][..], |answer| &answer.body);
        let count = into.len().min(body.len() - *read);
        if count == 0 && !exchange.has_ended {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        into[..count].copy_from_slice(&body[*read..][..count]);
        *read += count;
        Ok(count)
    }
}

impl Write for Tunnel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut client, stream) = (self.client.borrow_mut(), self.stream);
        client.wait("space in a tunnel", |client| {
            client.space(stream) > 0 || client.reset_of(stream).is_some()
        });
        if client.reset_of(stream).is_some() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let count = client.space(stream).min(bytes.len());
        client.send_data(stream, &bytes[..count], false);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
