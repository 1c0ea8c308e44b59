//! The PROXY protocol: what a proxy says about a connection before its first request.

use std::net::SocketAddr;

use weftwork_wire::{Proxied, ProxyEvent, read_proxy_header};

use super::{Conn, Phase, Step};
use crate::message::client::Source;
use crate::settings::Settings;
use crate::transport::Tick;
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;

impl Conn {
    /// Called for a new connection of a listener that expects a PROXY header. The header is read first, and only from
    /// trusted proxies.
    pub(crate) fn expect_proxy_header(&mut self, now: Tick, cx: &Context) {
        if cx.settings.trusted_proxies.contains(self.peer.map(|peer| peer.ip())) {
            self.timer = self.timer.then(TimeoutKind::ProxyHeader, now);
            self.phase = Phase::Proxy;
        } else {
            self.refuse_stranger(cx);
        }
    }

    #[inline(never)]
    pub(super) fn read_proxy_header(&mut self, now: Tick, cx: &Context) -> Option<Step> {
        let bytes_max = u32::try_from(cx.settings.proxy_header_bytes_max).unwrap_or(u32::MAX);
        let is_over = self.is_drained(now, cx) && !self.read_ready;
        let buffers = self.buffers.get_or_insert_default();
        match read_proxy_header(buffers.unread(), bytes_max) {
            Ok(ProxyEvent::NeedMore) if is_over => self.phase = Phase::Done,
            Ok(ProxyEvent::NeedMore) => return Some(Step::Read),
            Ok(ProxyEvent::Header(bytes, proxied)) => {
                buffers.start += bytes;
                buffers.raw = buffers.start;
                buffers.payload = buffers.start..buffers.start;
                self.proxied = (proxied != Proxied::Itself).then(|| Box::new(proxied));
                self.timer = self.timer.then(TimeoutKind::Head, now);
                self.phase = Phase::Head;
                self.begin_handshake(now);
            }
            Err(fault) => self.refuse_proxy_header(fault, cx),
        }
        None
    }

    /// Returns the client that a PROXY header names, or else the peer. None if it has no address.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        match self.proxied.as_deref() {
            Some(Proxied::Client { source, .. }) => Some(*source),
            Some(Proxied::Unnamed | Proxied::Itself) | None => self.peer,
        }
    }

    /// Returns the source of its requests, and whether it is trusted.
    pub(super) fn source_of_requests<'s>(&self, settings: &'s Settings) -> Source<'s> {
        let ip = self.source().map(|source| source.ip());
        let is_unnamed = self.proxied.as_deref() == Some(&Proxied::Unnamed);
        Source { ip, is_unnamed, is_secured: self.is_secured(), settings }
    }
}
