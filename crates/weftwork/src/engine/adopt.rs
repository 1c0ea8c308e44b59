//! Takes a connection that other code has accepted, within the limits of accepted ones.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::EngineHandle;
use super::acceptor::{self, AcceptGuard};
use crate::conn::Conn;
use crate::transport::context::{Context, Stage};
use crate::transport::events::Counters;
use crate::transport::{Stream, system};

/// Attempts to get a slot while other threads may take the last ones, which each keep for a moment.
const SLOT_TRIES: u32 = 1000;

/// Why a connection was not adopted.
#[derive(Debug)]
pub(crate) enum NotAdopted {
    /// `connections_max` is reached, or the engine has no room.
    Full,
    Stopping,
    /// The socket is not connected, or the system refuses an option.
    Socket(io::Error),
}

/// Serves a connection as if a listener had accepted it. `bytes_read` were read from it before. Otherwise the socket comes
/// back.
pub(crate) fn adopt(
    engine: &Arc<dyn EngineHandle>,
    cx: &Context,
    socket: OwnedFd,
    bytes_read: &[u8],
    is_plain: bool,
) -> Result<(), (NotAdopted, OwnedFd)> {
    let guard = guard(&cx.counters, cx.settings.connections_max).filter(|_| engine.has_room());
    // A server that stops waits for what the guard counts, so the stage is read behind it.
    if cx.stage() != Stage::Running {
        return Err((NotAdopted::Stopping, socket));
    }
    let Some(_guard) = guard else {
        engine.close_idle();
        return Err((NotAdopted::Full, socket));
    };
    let peer = match system::prepare_accepted(&socket, cx.settings.write_timeout) {
        Ok(peer) => peer,
        Err(error) => return Err((NotAdopted::Socket(error.into()), socket)),
    };
    let now = cx.clock.now();
    let mut conn = Conn::new(stream(socket, is_plain, cx), peer, now, cx);
    conn.give_bytes_read(bytes_read);
    acceptor::begin(&mut conn, cx.settings.proxy_protocol, now, cx);
    engine.clone().adopt(conn);
    Ok(())
}

/// Returns a guard that keeps a slot. None: all slots are taken.
fn guard(counters: &Counters, connections_max: usize) -> Option<AcceptGuard<'_>> {
    for _ in 0..SLOT_TRIES {
        let (guard, others) = AcceptGuard::new(counters);
        let connections = counters.connections.load(Ordering::Acquire);
        if connections + others < connections_max {
            return Some(guard);
        }
        if connections >= connections_max {
            break;
        }
        drop(guard);
        std::thread::yield_now();
    }
    None
}

#[cfg(feature = "_tls")]
fn stream(socket: OwnedFd, is_plain: bool, cx: &Context) -> Stream {
    match cx.tls.as_ref().filter(|_| !is_plain) {
        None => Stream::new(socket),
        Some(acceptor) => Stream::new(socket).with_tls(acceptor.clone()),
    }
}

#[cfg(not(feature = "_tls"))]
fn stream(socket: OwnedFd, _: bool, _: &Context) -> Stream {
    Stream::new(socket)
}
