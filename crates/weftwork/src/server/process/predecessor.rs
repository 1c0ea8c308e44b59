//! The side of a process that replaces another one: takes the sockets over, and says that it is ready.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::channel::{self, GO, Passed, READY, TicketKeys, VARIABLE};
use crate::error::{Error, Result};
use crate::transport::listener::Listener;
use crate::transport::log_queue::log_line;
use crate::transport::socket_share::{Bound, SocketShare};

/// Time for the process before to answer. It waits for this message.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The process before, and what it has passed.
struct Predecessor {
    channel: UnixStream,
    /// Keys of session tickets, by the addresses of their server.
    #[cfg_attr(not(feature = "_tls"), allow(dead_code, reason = "nothing seals tickets"))]
    ticket_keys: TicketKeys,
    /// Listeners that no address of this process has taken yet.
    left: Vec<Passed<OwnedFd>>,
    /// Listeners of this process, and whether the file of a Unix socket goes with them.
    taken: Vec<(Arc<SocketShare>, bool)>,
    is_ready: bool,
}

/// Returns the process before, if this process replaces one.
fn predecessor() -> Result<Option<MutexGuard<'static, Predecessor>>> {
    static PREDECESSOR: OnceLock<Result<Option<Mutex<Predecessor>>, String>> = OnceLock::new();
    match PREDECESSOR.get_or_init(|| find().map_err(|error| error.to_string())) {
        Ok(found) => Ok(found.as_ref().map(|found| found.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(error) => {
            Err(Error::usage(format!("cannot take over the sockets of the process before: {error}")))
        }
    }
}

fn find() -> io::Result<Option<Mutex<Predecessor>>> {
    let pid = std::env::var(VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    // A child of this process inherits the variable, and replaces nothing.
    if pid.is_none() || pid != parent {
        return Ok(None);
    }
    let channel = UnixStream::from(channel::stdin()?);
    channel.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let (stdin, ticket_keys, left) = channel::receive(&channel)?;
    rustix::stdio::dup2_stdin(stdin.as_fd())?;
    Ok(Some(Mutex::new(Predecessor { channel, ticket_keys, left, taken: Vec::new(), is_ready: false })))
}

/// Takes the listeners that the process before has made by the same address. An empty list means that the address must
/// be bound.
pub(crate) fn take(bound: &Bound, is_proxied: bool) -> Result<Vec<Listener>> {
    let Some(mut predecessor) = predecessor()? else { return Ok(Vec::new()) };
    let first = predecessor.left.iter().find(|passed| *passed.address == *bound.address);
    let Some(call) = first.map(|passed| passed.call) else { return Ok(Vec::new()) };
    let (taken, left) =
        std::mem::take(&mut predecessor.left).into_iter().partition(|passed| passed.call == call);
    predecessor.left = left;
    let mut listeners = Vec::new();
    for Passed { sockets, is_given, has_file, .. } in taken {
        let mut sockets = sockets.into_iter();
        let Some(first) = sockets.next() else { continue };
        let listener = Listener::inherited(first, sockets.collect(), is_proxied, is_given, bound)?;
        predecessor.taken.push((listener.share().clone(), has_file));
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Returns whether the process before has sockets of a supervisor that no address has taken yet.
pub(crate) fn has_passed_sockets() -> bool {
    matches!(predecessor(), Ok(Some(found)) if found.left.iter().any(|passed| {
        passed.is_given && super::descriptors::is_passed(&passed.address)
    }))
}

/// Returns the keys of session tickets of the server with the same addresses in the process before.
#[cfg(feature = "_tls")]
pub(crate) fn ticket_keys(addresses: &str) -> Option<String> {
    let predecessor = predecessor().ok()??;
    predecessor.ticket_keys.iter().find(|(of, _)| of == addresses).map(|(_, keys)| keys.clone())
}

/// Tells the process before that this one is ready, so that it stops. Returns whether there is such a process.
pub(crate) fn ready() -> bool {
    let Ok(Some(mut predecessor)) = predecessor() else { return false };
    if std::mem::replace(&mut predecessor.is_ready, true) {
        return true;
    }
    for unused in std::mem::take(&mut predecessor.left) {
        log_line!(Info, "the process before listened at {}, and this one does not", unused.address);
    }
    // If the process before has died, this one goes on alone.
    if (&predecessor.channel).write_all(READY).is_ok() {
        let _ = (&predecessor.channel).read_exact(&mut GO.clone());
    }
    for (share, has_file) in predecessor.taken.drain(..) {
        Listener::take_over(&share, has_file);
    }
    true
}
