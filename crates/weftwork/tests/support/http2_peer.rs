//! A server of HTTP/2 whose frames a test writes, right or wrong.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use weftwork_wire::{ErrorCode, Frame, Head, Http2, Http2Settings, Limits, hpack};

use super::TIMEOUT;

pub(crate) struct Http2Peer {
    socket: TcpStream,
    http: Http2,
    head: Head,
    text: Vec<u8>,
    input: Vec<u8>,
}

impl Http2Peer {
    /// Takes the next connection, and sends SETTINGS.
    pub(crate) fn accept(listener: &TcpListener) -> Http2Peer {
        Http2Peer::accept_with(listener, &Http2Settings::default())
    }

    pub(crate) fn accept_with(listener: &TcpListener, settings: &Http2Settings) -> Http2Peer {
        let (socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let http = Http2::server(settings);
        let (head, text, input) = (Head::default(), Vec::new(), Vec::new());
        let mut peer = Http2Peer { socket, http, head, text, input };
        let mut out = Vec::new();
        peer.http.write_preface(&mut out);
        peer.send(&out);
        peer
    }

    /// Returns the next frame that a test may care about. None: the client has ended the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            let limits = Limits::default();
            let read = self.http.read(&self.input, &limits, &mut self.head, &mut self.text);
            let (used, frame) = read.expect("the client keeps to the rules");
            self.input.drain(..used);
            match frame {
                Frame::NeedMore => {
                    let mut bytes = [0; 16 << 10];
                    match self.socket.read(&mut bytes) {
                        Ok(0) => return None,
                        Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                        Err(error) => panic!("the client sends nothing: {error}"),
                    }
                }
                Frame::Settings { .. } => {
                    let mut out = Vec::new();
                    Http2::write_settings_ack(&mut out);
                    self.send(&out);
                }
                Frame::Part | Frame::SettingsAcked | Frame::Window { .. } => {}
                frame => return Some(frame),
            }
        }
    }

    /// Waits for a request and its body. Returns the stream. None: the client has ended the connection.
    pub(crate) fn request(&mut self) -> Option<u32> {
        loop {
            match self.frame()? {
                Frame::Head { stream, ends: true, .. }
                | Frame::Data { stream, ends: true, .. }
                | Frame::Trailers { stream } => return Some(stream),
                _ => {}
            }
        }
    }

    /// Waits until the client resets a stream.
    pub(crate) fn reset(&mut self) -> (u32, ErrorCode) {
        loop {
            if let Frame::Reset { stream, code } = self.frame().expect("a reset") {
                return (stream, code);
            }
        }
    }

    /// Sends bytes as they are. The client may have ended the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Sends the head of a response.
    pub(crate) fn head(&mut self, stream: u32, fields: &[(&str, &[u8])], ends: bool) {
        self.send(&headers(stream, fields, ends));
    }

    pub(crate) fn data(&mut self, stream: u32, data: &[u8], ends: bool) {
        let mut out = Vec::new();
        Http2::write_data(stream, data, ends, &mut out);
        self.send(&out);
    }
}

/// Returns a HEADERS frame with these fields, whatever they are.
pub(crate) fn headers(stream: u32, fields: &[(&str, &[u8])], ends: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::encode_field(name, value, &mut block);
    }
    let mut out = (block.len() as u32).to_be_bytes()[1..].to_vec();
    // END_HEADERS, and END_STREAM.
    out.extend_from_slice(&[1, 4 | u8::from(ends)]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&block);
    out
}
