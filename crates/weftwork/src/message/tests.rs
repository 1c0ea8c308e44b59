//! Do requests and responses hold what they promise, with no connection beneath?

mod bodies;
mod errors;
#[cfg(feature = "json")]
mod json;
mod requests;
mod responses;

use std::io;
use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::{Head, HeadEvent, Http1, Limits};

use super::body::BodyError;
use super::exchange::Exchange;

/// A request whose head is parsed and whose body comes in the given parts.
struct Canned {
    head: Head,
    bytes: Vec<u8>,
    parts: Vec<Result<Vec<u8>, BodyError>>,
    /// The rest of the part that is being read.
    part: Vec<u8>,
    length: Option<u64>,
    sent: Vec<u8>,
}

impl Canned {
    fn new(head: &str) -> Canned {
        let bytes = head.as_bytes().to_vec();
        let mut head = Head::default();
        let read = Http1::new().read_head(&bytes, &Limits::default(), &mut head);
        assert_eq!(read, Ok(HeadEvent::Head(bytes.len())));
        Canned { head, bytes, parts: Vec::new(), part: Vec::new(), length: None, sent: Vec::new() }
    }

    /// A POST with this body, in these parts.
    fn with_body(parts: &[&str]) -> Canned {
        let parts = parts.iter().rev().map(|part| Ok(part.as_bytes().to_vec())).collect();
        Canned { parts, ..Canned::new("POST / HTTP/1.1\r\nHost: a\r\n\r\n") }
    }

    /// A body that ends in an error.
    fn failing(error: BodyError) -> Canned {
        Canned { parts: vec![Err(error)], ..Canned::with_body(&[]) }
    }
}

impl Exchange for Canned {
    fn head(&self) -> (&Head, &[u8]) {
        (&self.head, &self.bytes)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        if self.part.is_empty() {
            self.part = self.parts.pop().transpose()?.unwrap_or_default();
        }
        Ok(&self.part)
    }

    fn consume(&mut self, count: usize) {
        self.part.drain(..count);
    }

    fn body_left(&self) -> Option<u64> {
        self.length
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        &[]
    }

    fn interim(&mut self, _: StatusCode, _: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.sent.extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
