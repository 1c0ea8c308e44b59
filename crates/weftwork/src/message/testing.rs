//! A request without a connection, for tests.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::{Head, HeadEvent, Http1, Limits};

use super::body::Quota;
use super::client::Source;
use super::exchange::{ConnValue, Exchange};
use super::observer::{Arrival, ResponseObserver};
use super::{BodyError, BodyPart, BodyWriter, Handler, Payload, Request, Response};
use crate::settings::Settings;
use crate::transport::log_queue::log_line;

/// Returns the response of `handler` to a GET.
pub(crate) fn get(path: &str, handler: &impl Handler) -> Response {
    Canned::asking("GET", path, &[]).call(handler)
}

/// A request with a parsed head, and a body that arrives in the given parts.
pub(crate) struct Canned {
    head: Head,
    bytes: Vec<u8>,
    pub(crate) parts: Vec<Result<Vec<u8>, BodyError>>,
    /// Rest of the current part.
    part: Vec<u8>,
    length: Option<u64>,
    quota: Quota,
    pub(crate) sent: Vec<u8>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) settings: Settings,
    conn_value: ConnValue,
}

impl Canned {
    pub(crate) fn new(head: impl AsRef<[u8]>) -> Canned {
        let bytes = head.as_ref().to_vec();
        let mut head = Head::default();
        let read = Http1::new().read_head(&bytes, &Limits::default(), &mut head);
        assert_eq!(read, Ok(HeadEvent::Head(bytes.len())));
        Canned {
            head,
            bytes,
            parts: Vec::new(),
            part: Vec::new(),
            length: None,
            quota: Quota::new(2 << 20),
            sent: Vec::new(),
            peer: None,
            deadline: None,
            settings: Settings::default(),
            conn_value: None,
        }
    }

    /// Returns a request for `path` with these field lines.
    pub(crate) fn asking(method: &str, path: &str, fields: &[(&str, &str)]) -> Canned {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Canned::new(format!("{method} {path} HTTP/1.1\r\nHost: here.example\r\n{fields}\r\n"))
    }

    /// Sets the parts of the body.
    #[cfg(any(feature = "compression", feature = "multipart"))]
    pub(crate) fn carrying(mut self, parts: &[&[u8]]) -> Canned {
        self.parts = parts.iter().rev().map(|part| Ok(part.to_vec())).collect();
        self
    }

    /// Declares the length of the body in the head.
    pub(crate) fn promising(self, length: u64) -> Canned {
        Canned { length: Some(length), ..self }
    }

    pub(crate) fn call(&mut self, handler: &impl Handler) -> Response {
        handler.call(&mut self.request(2 << 20))
    }

    /// Returns the request with a limit for its body.
    pub(crate) fn request(&mut self, body_bytes_max: u64) -> Request<'_> {
        self.quota = Quota::new(body_bytes_max);
        Request::new(self)
    }

    /// Returns the bytes of any response body.
    pub(crate) fn body_of(&mut self, response: Response) -> Vec<u8> {
        match response.payload {
            Payload::Empty => Vec::new(),
            Payload::Bytes(bytes) => bytes.into(),
            Payload::HandlerError(failed) => failed.body.clone().into(),
            Payload::File { file, offset, count, .. } => read_file(&file, offset, count),
            Payload::Parts(parts) => parts.into_iter().flat_map(bytes_of).collect(),
            Payload::Stream(write) => {
                write(&mut BodyWriter::new(self)).unwrap();
                std::mem::take(&mut self.sent)
            }
            Payload::LongLived(_) => panic!("it needs a connection"),
        }
    }

    #[cfg(feature = "compression")]
    /// Returns what a streamed response sends, even if its writer fails.
    pub(crate) fn sent_by(&mut self, response: Response) -> Vec<u8> {
        if let Payload::Stream(write) = response.payload {
            let _ = write(&mut BodyWriter::new(self));
        }
        std::mem::take(&mut self.sent)
    }

    /// Returns a POST with this body, in these parts.
    pub(crate) fn with_body(parts: &[&str]) -> Canned {
        let parts = parts.iter().rev().map(|part| Ok(part.as_bytes().to_vec())).collect();
        Canned { parts, ..Canned::new("POST / HTTP/1.1\r\nHost: a\r\n\r\n") }
    }

    /// Returns a body that ends in an error.
    pub(crate) fn failing(error: BodyError) -> Canned {
        Canned { parts: vec![Err(error)], ..Canned::with_body(&[]) }
    }
}

fn bytes_of(part: BodyPart) -> Vec<u8> {
    match part {
        BodyPart::Bytes(bytes) => bytes.into(),
        BodyPart::File { file, offset, count } => read_file(&file, offset, count),
    }
}

fn read_file(file: &File, offset: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

impl Exchange for Canned {
    fn head(&self) -> (&Head, &[u8]) {
        (&self.head, &self.bytes)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn source(&self) -> Source<'_> {
        Source {
            ip: self.peer.map(|peer| peer.ip()),
            is_unnamed: false,
            is_secured: false,
            settings: &self.settings,
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn client_gone(&self) -> bool {
        false
    }

    fn wait_for(
        &self,
        _: std::pin::Pin<&mut dyn Future<Output = ()>>,
        _: Option<Instant>,
    ) -> Result<(), crate::WaitError> {
        Err(crate::WaitError::ClientGone)
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
        self.length = self.length.map(|length| length.saturating_sub(count as u64));
    }

    fn body_left(&self) -> Option<u64> {
        self.length
    }

    fn body_is_here(&self) -> bool {
        true
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn quota_mut(&mut self) -> &mut Quota {
        &mut self.quota
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

    fn send_trailers(&mut self, _: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        Ok(false)
    }

    fn status_of_panic(&self, _: &(dyn std::any::Any + Send)) -> Option<StatusCode> {
        Some(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn has_begun(&self) -> bool {
        !self.sent.is_empty()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn pause(&mut self, _: Duration) -> io::Result<bool> {
        Ok(true)
    }

    fn arrival(&self) -> Arrival {
        Arrival { at: Instant::now(), queued: Duration::ZERO }
    }

    fn observe(&mut self, _: Box<dyn ResponseObserver>) {}

    fn heartbeat(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn is_stopping(&self) -> bool {
        false
    }

    fn identify(&mut self, _: &str) {}

    fn conn_value(&mut self) -> &mut ConnValue {
        &mut self.conn_value
    }

    fn log_client(&self, line: std::fmt::Arguments<'_>) {
        log_line!(Info, "{line}");
    }
}
