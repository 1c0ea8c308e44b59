//! Connections to the upstream server: connect, keep, reuse.

mod addresses;
mod conn;
mod either;
mod http2;
mod idle;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(feature = "_tls")]
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftwork_wire::Limits;

pub(super) use self::addresses::Addresses;
use self::conn::connect;
pub(super) use self::conn::{Http1Conn, wait_readable, wait_writable};
pub(super) use self::either::{Part, UpstreamConn};
use self::http2::{Acquired, Connected, Http2Pool, NewConn};
use self::idle::{IdleConn, IdleConns};
pub(super) use self::idle::{IdlePool, authenticates_connection, may_be_shared};
pub(super) use self::stream::UpstreamStream;
#[cfg(feature = "_tls")]
pub(super) use self::tls::UpstreamTls;
use super::Failure;
use crate::error::{Error, Result};
use crate::message::exchange::ConnValue;

/// Maximum of every timeout, so that neither the clock nor the milliseconds of poll(2) overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(20 * 24 * 3600);

/// The upstream server and its idle connections.
pub(super) struct Upstream {
    authority: Arc<str>,
    base: String,
    pub(super) addresses: Addresses,
    pub(super) connect_timeout: Duration,
    pub(super) idle_max: usize,
    idle: IdleConns,
    pub(super) protocol: Protocol,
    http2: Http2Pool,
    #[cfg(feature = "_tls")]
    pub(super) tls: Option<UpstreamTls>,
}

/// The protocol that the upstream server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    /// The server chooses (ALPN).
    Either,
    /// HTTP/2 by prior knowledge.
    Http2,
}

impl Upstream {
    pub(super) fn new(url: &str) -> Result<Upstream> {
        let wanted = || {
            Error::usage(format!(
                "invalid server {url:?}: expected http://host:port, https://host:port or h2c://host:port"
            ))
        };
        let (protocol, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Protocol::Http1, rest),
            Some(("https", rest)) => (Protocol::Either, rest),
            Some(("h2c", rest)) => (Protocol::Http2, rest),
            _ => return Err(wanted()),
        };
        let is_tls = protocol == Protocol::Either;
        if is_tls && cfg!(not(feature = "_tls")) {
            return Err(Error::usage(format!(
                "invalid server {url:?}: TLS needs the feature `tls` or `tls-ring` of the crate weftwork"
            )));
        }
        let (host, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        let base_is_plain = base.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
        if !plain || !base_is_plain {
            return Err(wanted());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if is_tls { 443 } else { 80 };
        let named = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        #[cfg(feature = "_tls")]
        let tls = is_tls.then(|| UpstreamTls::new(without_port(&named))).transpose()?;
        Ok(Upstream {
            authority: host.into(),
            base: base.trim_end_matches('/').to_owned(),
            addresses: Addresses::of(named)?,
            connect_timeout: Duration::from_secs(5),
            idle_max: 32,
            idle: IdleConns::default(),
            protocol,
            http2: Http2Pool::default(),
            #[cfg(feature = "_tls")]
            tls,
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        #[cfg(feature = "_tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "_tls"))]
        false
    }

    pub(super) fn authority(&self) -> &Arc<str> {
        &self.authority
    }

    /// Path of the URL without a final slash.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns a connection of HTTP/1.1, and whether it was used before. A new connection must be established within
    /// `timeout`. `client` is the value of the client's connection, unless several clients may share it.
    pub(super) fn acquire(
        &self,
        client: Option<&mut ConnValue>,
        timeout: Duration,
    ) -> Result<(Http1Conn, bool), Failure> {
        self.addresses.refresh(self.connect_timeout.min(timeout));
        let usable = |kept: &IdleConn| kept.is_silent() && self.addresses.contains(kept.address());
        if let Some(own) = client.and_then(|client| self.idle.take_own(client)).filter(usable) {
            return Ok((own.into_conn(true), true));
        }
        while let Some(kept) = self.idle.take() {
            // A connection with unexpected input, or one that ended, cannot be used.
            if usable(&kept) {
                return Ok((kept.into_conn(false), true));
            }
        }
        Ok((self.connect_new(timeout)?, false))
    }

    /// Returns a new connection of HTTP/1.1.
    pub(super) fn connect_new(&self, timeout: Duration) -> Result<Http1Conn, Failure> {
        let until = from_now(self.connect_timeout.min(timeout));
        let (stream, address) = self.connect(false, until).map_err(Failure::Unreachable)?;
        Ok(Http1Conn::new(stream, address))
    }

    /// Returns a place on a connection of HTTP/2, and whether the connection was used before. If the server chooses
    /// HTTP/1.1, that is a new connection, or `None` if the server has chosen so before.
    pub(super) fn acquire_http2(
        &self,
        limits: &Limits,
        timeout: Duration,
    ) -> Result<Option<(UpstreamConn, bool)>, Failure> {
        self.addresses.refresh(self.connect_timeout.min(timeout));
        let until = from_now(self.connect_timeout.min(timeout));
        let connect = || {
            let (stream, address) = self.connect(true, until)?;
            if self.protocol != Protocol::Http2 && !stream.has_chosen_http2() {
                return Ok(Connected::Http1(stream, address));
            }
            let (limits, is_kept) = (*limits, self.idle_max > 0);
            Ok(Connected::Http2(NewConn { stream, address, limits, is_kept }))
        };
        let is_known = |address| self.addresses.contains(address);
        let acquired = self.http2.acquire(until, self.idle_max, is_known, connect);
        Ok(match acquired.map_err(Failure::Unreachable)? {
            Acquired::Http2(stream, is_reused) => Some((UpstreamConn::Http2(Box::new(stream)), is_reused)),
            Acquired::NewHttp1(stream, address) => {
                Some((UpstreamConn::Http1(Box::new(Http1Conn::new(stream, address))), false))
            }
            Acquired::Http1 => None,
        })
    }

    /// Returns whether the client has connections of its own.
    pub(super) fn is_authenticated(&self, client: &ConnValue) -> bool {
        self.idle.has_own(client)
    }

    fn connect(&self, offers_http2: bool, until: Instant) -> io::Result<(UpstreamStream, SocketAddr)> {
        let known = self.addresses.known();
        let failed = match self.connect_to(&known, offers_http2, until) {
            Err(error) => error,
            connected => return connected,
        };
        // The server may have moved. The usual sign is that its old address does not answer.
        let Some(found) = self.addresses.look_up_after_failure() else { return Err(failed) };
        let new: Vec<SocketAddr> = found.into_iter().filter(|found| !known.contains(found)).collect();
        if new.is_empty() {
            return Err(failed);
        }
        // If no time is left, the next request uses the new addresses.
        if Instant::now() < until { self.connect_to(&new, offers_http2, until) } else { Err(failed) }
    }

    /// Tries one address after another. Each one gets an equal share of the remaining time.
    fn connect_to(
        &self,
        addresses: &[SocketAddr],
        offers_http2: bool,
        until: Instant,
    ) -> io::Result<(UpstreamStream, SocketAddr)> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the server has no address");
        for (at, address) in addresses.iter().enumerate() {
            let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
            let now = Instant::now();
            let until = now + until.saturating_duration_since(now) / others;
            match self.connect_one(*address, offers_http2, until) {
                Ok(stream) => {
                    self.addresses.prefer(*address);
                    return Ok((stream, *address));
                }
                // An address that does not answer says less than one whose TLS failed.
                Err(error) if failed.kind() != io::ErrorKind::InvalidData => failed = error,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    fn connect_one(
        &self,
        address: SocketAddr,
        offers_http2: bool,
        until: Instant,
    ) -> io::Result<UpstreamStream> {
        let stream = connect(address, until)?;
        #[cfg(feature = "_tls")]
        if let Some(tls) = &self.tls {
            return Ok(UpstreamStream::Tls(Box::new(tls.connect(stream, offers_http2, until)?)));
        }
        let _ = offers_http2;
        Ok(UpstreamStream::Plain(stream))
    }

    /// Returns the pool for connections that can be reused.
    pub(super) fn idle_pool(&self) -> IdlePool {
        IdlePool::new(self.idle.clone(), self.idle_max)
    }
}

#[cfg(feature = "_tls")]
fn without_port(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

/// Returns the end of a timeout that the user chose.
pub(super) fn from_now(time: Duration) -> Instant {
    Instant::now() + time.min(TIMEOUT_MAX)
}
