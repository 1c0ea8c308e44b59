//! Idle connections to the upstream server. Most serve any client. A connection that the server may have
//! authenticated serves one client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, header};

use super::conn::Http1Conn;
use super::either::UpstreamConn;
use super::stream::UpstreamStream;
use crate::message::Request;
use crate::message::exchange::ConnValue;

/// Maximum age of an idle connection. Many servers close theirs after five seconds.
pub(super) const IDLE_AGE_MAX: Duration = Duration::from_secs(4);

/// One idle connection.
pub(super) struct IdleConn {
    stream: UpstreamStream,
    address: SocketAddr,
    pub(super) since: Instant,
}

impl IdleConn {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.stream.has_input(), Ok(false))
    }

    pub(super) fn into_conn(self, is_authenticated: bool) -> Http1Conn {
        let mut conn = Http1Conn::new(self.stream, self.address);
        conn.is_authenticated = is_authenticated;
        conn
    }
}

/// Connections for all clients. Last in, first out, so that connections that are not needed expire.
#[derive(Clone, Default)]
pub(super) struct IdleConns(Arc<Mutex<Vec<IdleConn>>>);

/// Connections for one client, with the pools that they are from. The client's connection owns them, so they
/// end with it.
struct OwnConns(Vec<(IdleConns, IdleConn)>);

impl IdleConns {
    pub(super) fn take(&self) -> Option<IdleConn> {
        let (taken, _old) = {
            let mut idle = self.lock();
            let old = remove_expired(&mut idle);
            (idle.pop(), old)
        };
        taken
    }

    /// Takes the connection that belongs to this client.
    pub(super) fn take_own(&self, value: &mut ConnValue) -> Option<IdleConn> {
        let OwnConns(own) = value.as_mut()?.downcast_mut()?;
        let at = own.iter().position(|(pool, _)| Arc::ptr_eq(&pool.0, &self.0))?;
        Some(own.swap_remove(at).1)
    }

    /// Returns whether this client has connections that no other one may use.
    pub(super) fn has_own(&self, value: &ConnValue) -> bool {
        let own = value.as_ref().and_then(|value| value.downcast_ref());
        own.is_some_and(|OwnConns(own)| own.iter().any(|(pool, _)| Arc::ptr_eq(&pool.0, &self.0)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<IdleConn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes connections that are too old. They are below newer ones, so they would never be taken, and their
/// server may have closed them. The caller drops them after it has released the lock, because closing takes
/// time.
fn remove_expired(idle: &mut Vec<IdleConn>) -> Vec<IdleConn> {
    let old = idle.partition_point(|kept| kept.since.elapsed() >= IDLE_AGE_MAX);
    idle.drain(..old).collect()
}

/// Pool that takes a connection back.
pub(in crate::app::proxy) struct IdlePool {
    idle: IdleConns,
    idle_max: usize,
}

impl IdlePool {
    pub(super) fn new(idle: IdleConns, idle_max: usize) -> IdlePool {
        IdlePool { idle, idle_max }
    }

    /// Keeps a connection whose last response was read to its end. `client` is the value of the connection of
    /// the client whose request it was. `None` means that other clients may use that connection too.
    pub(in crate::app::proxy) fn put_back(self, conn: Http1Conn, client: Option<&mut ConnValue>) {
        if conn.at != conn.input.len() || !conn.is_sent() {
            return;
        }
        let is_authenticated = conn.is_authenticated;
        let kept = conn.into_idle();
        match (is_authenticated, client) {
            (false, _) => {
                let _old = {
                    let mut idle = self.idle.lock();
                    let old = remove_expired(&mut idle);
                    if idle.len() < self.idle_max {
                        idle.push(kept);
                    }
                    old
                };
            }
            (true, Some(client)) => {
                let own = client.get_or_insert_with(|| Box::new(OwnConns(Vec::new())));
                if let Some(OwnConns(own)) = own.downcast_mut() {
                    own.push((self.idle, kept));
                }
            }
            (true, None) => {}
        }
    }
}

impl Http1Conn {
    fn into_idle(self) -> IdleConn {
        let address = self.address;
        let (stream, _) = self.into_parts();
        stream.release_buffers();
        IdleConn { stream, address, since: Instant::now() }
    }
}

impl UpstreamConn {
    /// Keeps what later requests may use, see [`IdlePool::put_back`]. A shared connection is in its pool already.
    pub(in crate::app::proxy) fn keep(self, pool: IdlePool, client: Option<&mut ConnValue>) {
        if let UpstreamConn::Http1(conn) = self {
            pool.put_back(*conn, client);
        }
    }

    /// Notes a request that authenticates its connection and not itself, if it does.
    pub(in crate::app::proxy) fn note_request(&mut self, authenticates: bool) {
        match self {
            UpstreamConn::Http1(conn) => conn.is_authenticated |= authenticates,
            UpstreamConn::Http2(stream) if authenticates => stream.retire_conn(),
            UpstreamConn::Http2(_) => {}
        }
    }

    /// Notes the fields of a response.
    pub(in crate::app::proxy) fn note_response(&mut self, fields: &[(HeaderName, HeaderValue)]) {
        self.note_request(fields.iter().any(|(name, value)| match *name {
            header::WWW_AUTHENTICATE | header::PROXY_AUTHENTICATE => {
                names_connection_scheme(value.as_bytes())
            }
            _ => name == "persistent-auth",
        }));
    }
}

/// Returns whether a field of a request authenticates the connection.
pub(in crate::app::proxy) fn authenticates_connection(name: &str, value: &[u8]) -> bool {
    let mut names = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].into_iter();
    names.any(|known| name.eq_ignore_ascii_case(known.as_str())) && names_connection_scheme(value)
}

/// Returns whether an element begins with a scheme that authenticates the connection and not the request (RFC
/// 4559, MS-NTHT). IIS has variants of these names, such as `Nego2` and `Negotiate:Kerberos`.
fn names_connection_scheme(value: &[u8]) -> bool {
    let is_scheme = |element: &[u8]| {
        let element = element.trim_ascii_start();
        let mut schemes = [&b"ntlm"[..], b"nego", b"kerberos"].into_iter();
        schemes.any(|scheme| element.get(..scheme.len()).is_some_and(|is| is.eq_ignore_ascii_case(scheme)))
    };
    value.split(|&byte| byte == b',').any(is_scheme)
}

/// Returns whether a proxy in front may send requests of several clients on the connection of this request.
pub(in crate::app::proxy) fn may_be_shared(req: &Request<'_>) -> bool {
    let names = ["via", "forwarded", "x-forwarded-for"];
    req.is_source_trusted() || names.iter().any(|name| req.header_values(name).next().is_some())
}
