//! Connections of HTTP/2 to the upstream server, each shared by several requests.

mod conn;
mod driver;
mod frames;
mod state;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use weftwork_wire::Limits;

use self::conn::SharedConn;
pub(in crate::app::proxy) use self::stream::Http2Stream;
use super::conn::wait_readable;
use super::stream::UpstreamStream;
use crate::transport::wake_pipe::WakePipe;

/// Time after which a server that has chosen HTTP/1.1 may choose again.
const HTTP1_TIME: Duration = Duration::from_secs(60);

/// What a new connection is made of.
pub(super) struct NewConn {
    pub(super) stream: UpstreamStream,
    pub(super) address: SocketAddr,
    pub(super) limits: Limits,
    pub(super) is_kept: bool,
}

/// A new connection, in the protocol that the server has chosen.
pub(super) enum Connected {
    Http1(UpstreamStream, SocketAddr),
    Http2(NewConn),
}

/// What a request gets.
pub(super) enum Acquired {
    /// A place on a connection, and whether the connection was used before.
    Http2(Http2Stream, bool),
    /// A new connection, because the server has chosen HTTP/1.1.
    NewHttp1(UpstreamStream, SocketAddr),
    /// The server has chosen HTTP/1.1 before.
    Http1,
}

/// All connections. They end with the pool, or with their last request after that.
#[derive(Default)]
pub(super) struct Http2Pool(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    conns: Vec<Arc<SharedConn>>,
    /// A request is connecting. The others wait, because a connection has a place for many of them.
    is_connecting: bool,
    waiters: Vec<Arc<Waiter>>,
    http1_until: Option<Instant>,
}

/// A request that waits for the connection that another one makes.
struct Waiter {
    signal: WakePipe,
    failed: OnceLock<(io::ErrorKind, String)>,
}

/// What a request does first.
enum Turn {
    Done(Acquired),
    Wait(Arc<Waiter>),
    Connect,
}

impl Http2Pool {
    /// Returns a place on a connection. `connect` makes a new one. `is_known` tells whether the server still has an
    /// address. At most `idle_max` connections without requests are kept.
    pub(super) fn acquire(
        &self,
        until: Instant,
        idle_max: usize,
        is_known: impl Fn(SocketAddr) -> bool,
        connect: impl FnOnce() -> io::Result<Connected>,
    ) -> io::Result<Acquired> {
        loop {
            match self.turn(idle_max, &is_known)? {
                Turn::Done(acquired) => return Ok(acquired),
                Turn::Connect => break,
                Turn::Wait(waiter) => {
                    wait_readable(&waiter.signal, until)?;
                    if let Some((kind, why)) = waiter.failed.get() {
                        return Err(io::Error::new(*kind, why.clone()));
                    }
                }
            }
        }
        let mut connecting = Connecting { pool: self, conn: None, failed: None };
        let connected = connect().and_then(|connected| match connected {
            Connected::Http1(stream, address) => {
                self.lock().http1_until = Some(Instant::now() + HTTP1_TIME);
                Ok(Acquired::NewHttp1(stream, address))
            }
            Connected::Http2(new) => {
                let conn = SharedConn::establish(new, until)?;
                conn.reserve();
                connecting.conn = Some(conn.clone());
                Ok(Acquired::Http2(Http2Stream::new(conn)?, false))
            }
        });
        if let Err(error) = &connected {
            connecting.failed = Some((error.kind(), error.to_string()));
        }
        connected
    }

    fn turn(&self, idle_max: usize, is_known: &impl Fn(SocketAddr) -> bool) -> io::Result<Turn> {
        let mut pool = self.lock();
        pool.prune(idle_max, is_known);
        if pool.http1_until.is_some_and(|until| Instant::now() < until) {
            return Ok(Turn::Done(Acquired::Http1));
        }
        if let Some(conn) = pool.conns.iter().find(|conn| conn.reserve()) {
            let conn = conn.clone();
            drop(pool);
            return Ok(Turn::Done(Acquired::Http2(Http2Stream::new(conn)?, true)));
        }
        if !std::mem::replace(&mut pool.is_connecting, true) {
            return Ok(Turn::Connect);
        }
        let waiter = Arc::new(Waiter { signal: WakePipe::open()?, failed: OnceLock::new() });
        pool.waiters.push(waiter.clone());
        Ok(Turn::Wait(waiter))
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Lets connections go that take no more requests, that are to addresses which the server no longer has, or that
    /// are too many without requests.
    fn prune(&mut self, idle_max: usize, is_known: &impl Fn(SocketAddr) -> bool) {
        let mut idle = 0;
        self.conns.retain(|conn| {
            idle += usize::from(conn.is_idle());
            let stays = conn.is_open() && is_known(conn.address) && idle <= idle_max.max(1);
            if !stays {
                conn.retire();
            }
            stays
        });
    }
}

impl Drop for Http2Pool {
    fn drop(&mut self) {
        self.lock().conns.drain(..).for_each(|conn| conn.retire());
    }
}

/// A request that is connecting. The others go on when it is dropped.
struct Connecting<'p> {
    pool: &'p Http2Pool,
    conn: Option<Arc<SharedConn>>,
    failed: Option<(io::ErrorKind, String)>,
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        pool.is_connecting = false;
        if let Some(conn) = self.conn.take() {
            pool.http1_until = None;
            pool.conns.push(conn);
        }
        let waiters = std::mem::take(&mut pool.waiters);
        drop(pool);
        for waiter in waiters {
            if let Some(failed) = &self.failed {
                // Set once, here.
                let _ = waiter.failed.set(failed.clone());
            }
            waiter.signal.wake();
        }
    }
}
