//! Makes a connection of each request.

use std::sync::Arc;

use http::Method;
use weftwork_wire::{Field, Framing, Head, Http1, Http2Fault, Span, Version, Violation};

use super::Role;
use crate::conn::conn_count::CountGuard;
use crate::conn::observed::Observed;
use crate::conn::owner::Owner;
use crate::conn::pending_body::SafeDrop;
use crate::conn::{Conn, Phase, STREAM_COPIED_BYTES_MAX};
use crate::transport::context::Context;
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::stream::{Duplex, StreamPipe};
#[cfg(feature = "_tls")]
use crate::transport::tls::Established;
use crate::transport::{Buffers, Stream, Tick};

/// The request's end of a stream.
#[derive(Debug)]
pub(in crate::conn) struct StreamEnd {
    pub(in crate::conn) pipe: Arc<StreamPipe>,
    /// The request has become another protocol.
    pub(super) is_tunnel: bool,
    /// The TLS session of its connection.
    #[cfg(feature = "_tls")]
    pub(in crate::conn) session: Option<Arc<Established>>,
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        self.pipe.close();
    }
}

/// Prepares a CONNECT, whose DATA are bytes of another protocol, and no body.
///
/// An extended one (RFC 8441 section 4) becomes what it is in HTTP/1.1: a GET with an Upgrade field. So the handlers of
/// one are those of the other.
#[cold]
pub(super) fn prepare_connect(head: &mut Head, text: &mut Vec<u8>) -> Result<(), Violation> {
    if matches!(head.framing, Framing::Length(1..)) {
        return Err(Violation::ContentLengthDiffers);
    }
    (head.framing, head.expect_continue) = (Framing::None, false);
    if let Some(protocol) = head.protocol {
        let mut span = |name: &[u8]| {
            let start = text.len() as u32;
            text.extend_from_slice(name);
            Span { start, len: name.len() as u32 }
        };
        let (connection, upgrade) = (span(b"connection"), span(b"upgrade"));
        head.fields.push(Field { name: connection, value: upgrade });
        head.fields.push(Field { name: upgrade, value: protocol });
        (head.method, head.upgrade) = (Method::GET, true);
    }
    Ok(())
}

impl Conn {
    /// Returns the request whose head was read into `buffers`.
    pub(super) fn of_stream(
        &self,
        pipe: Arc<StreamPipe>,
        mut buffers: Box<Buffers>,
        now: Tick,
        cx: &Context,
    ) -> Box<Conn> {
        buffers.head.version = Version::Http2;
        // The body follows.
        buffers.raw = buffers.input.len();
        buffers.payload = buffers.raw..buffers.raw;
        buffers.head.bytes = buffers.raw as u32;
        let mut http = Http1::new();
        http.begin_stream(&buffers.head);
        let stream: Arc<dyn Duplex> = pipe.clone();
        let owner = Owner { is_balanced: true, ..Owner::default() };
        let end = StreamEnd {
            pipe,
            is_tunnel: false,
            #[cfg(feature = "_tls")]
            session: self.stream.tls().and_then(|tls| tls.established().cloned()),
        };
        Box::new(Conn {
            stream: Stream::Memory(stream),
            http,
            phase: Phase::Head,
            timer: PeerTimer::start(TimeoutKind::Head, now),
            expires: Tick(u64::MAX),
            peer: self.peer,
            proxied: self.proxied.clone(),
            buffers: Some(buffers),
            pending_body: SafeDrop::new(&cx.counters),
            owned_body: None,
            count: CountGuard::of_stream(&cx.counters),
            read_ready: true,
            read_closed: false,
            peer_ended: false,
            peer_keep_alive: false,
            handler_ran: false,
            has_sent_much: false,
            observed: Observed::of_server(cx),
            owner,
            value: None,
            role: Role::Stream(end),
            copied_bytes_max: STREAM_COPIED_BYTES_MAX,
        })
    }

    /// Begins the request. Its head is whole.
    pub(super) fn begin_stream(&mut self, cx: &Context) {
        if let Some(observed) = &mut self.observed {
            observed.note_read();
        }
        // After a refusal, the phase is that of the response.
        let _ = self.begin_request(self.is_secured(), cx);
    }

    /// Begins the response to a request that is not valid.
    pub(super) fn refuse_stream(&mut self, fault: &Http2Fault, cx: &Context) {
        match fault.violation {
            Violation::Message(fault) => self.refuse_fault(fault, cx),
            violation => self.refuse_malformed(&format!("{violation} ({})", violation.rule()), cx),
        }
    }
}
