//! The request's end of a stream, which the request uses as its socket.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::{Flow, MutexGuard, RESPONSE_BYTES_MAX, StreamPipe, WRITER_BYTES_MAX, lock, update};
use crate::message::observer::UnsentResponse;
use crate::message::{BodyPart, WakeConn};
use crate::transport::stream::Duplex;
use crate::transport::wake_pipe::WakePipe;

impl StreamPipe {
    /// Wakes the owner of the request at the next change. Returns false if the request can go on already, in a direction
    /// that it waits for.
    pub(crate) fn watch(&self, reads: bool, writes: bool, wakes: &Arc<dyn WakeConn>, key: usize) -> bool {
        let mut flow = lock(&self.flow);
        let nothing = !flow.is_ready(reads, writes);
        if nothing {
            flow.waiter = Some((wakes.clone(), key));
        }
        nothing
    }

    /// Leaves the rest of the response to the connection, without a copy.
    pub(crate) fn leave(&self, parts: impl ExactSizeIterator<Item = BodyPart>) {
        let mut flow = lock(&self.flow);
        match flow.is_reset {
            true => {
                drop(flow);
                self.drop_parts(parts);
            }
            false => {
                // Streams that wait for their clients hold no more than they need.
                flow.tail.reserve_exact(parts.len());
                flow.tail.extend(parts);
                self.note(flow);
            }
        }
    }

    /// Leaves it to the connection to tell the observers of a complete response how it ends. `unsent` bytes are not in the pipe
    /// yet. Called before [`close`](StreamPipe::close).
    #[cold]
    pub(crate) fn observe(&self, response: UnsentResponse, unsent: u64) {
        let mut response = Box::new(response);
        let mut flow = lock(&self.flow);
        if let Some(why) = flow.error {
            response.note_error(why);
        }
        if flow.is_reset {
            // The observers are told without the lock.
            drop(flow);
            return response.note_unsent(unsent);
        }
        flow.observed = Some(response);
    }

    /// Returns why the response breaks off that the request still makes, if its connection knows.
    #[cold]
    pub(crate) fn error(&self) -> Option<&'static str> {
        lock(&self.flow).error
    }

    /// Tells the connection that the request is gone, with all of its response or without.
    pub(crate) fn close(&self) {
        let mut flow = lock(&self.flow);
        flow.is_closed = true;
        flow.waiter = None;
        self.note(flow);
    }

    fn note(&self, mut flow: MutexGuard<'_, Flow>) {
        let is_new = !std::mem::replace(&mut flow.is_noted, true);
        drop(flow);
        if is_new {
            self.hub.note(self.id);
        }
    }
}

impl Duplex for StreamPipe {
    /// 0 is returned to another protocol only: the framing of a body says where the body ends.
    fn recv(&self, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let mut flow = lock(&self.flow);
        if flow.is_reset {
            return Err(Errno::CONNRESET);
        }
        let before = into.len();
        while let Some(part) = flow.to_request.front() {
            let unread = &part[flow.read as usize..];
            let count = unread.len().min(into.capacity() - into.len());
            into.extend_from_slice(&unread[..count]);
            if count < unread.len() {
                flow.read += count as u32;
                break;
            }
            flow.to_request.pop_front();
            flow.read = 0;
        }
        let count = into.len() - before;
        if count == 0 {
            let has_ended = flow.to_request.is_empty() && flow.has_client_ended;
            return if has_ended { Ok(0) } else { Err(Errno::AGAIN) };
        }
        flow.taken += count as u64;
        if flow.to_request.is_empty() {
            // A request that waits holds no buffer.
            flow.to_request = VecDeque::new();
        }
        // The window may grow.
        self.note(flow);
        Ok(count)
    }

    fn send(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<usize> {
        let mut flow = lock(&self.flow);
        if flow.is_reset || flow.is_shut {
            return Err(Errno::PIPE);
        }
        let waiting = flow.to_client.len() - flow.sent;
        // Only what a handler writes while it runs comes second.
        flow.has_writer |= !second.is_empty();
        let most = if flow.has_writer { WRITER_BYTES_MAX } else { RESPONSE_BYTES_MAX };
        let space = most.saturating_sub(waiting).max(first.len().min(flow.missing as usize));
        let count = space.min(first.len() + second.len());
        if count == 0 {
            flow.is_blocked = true;
            return Err(Errno::AGAIN);
        }
        flow.missing = (flow.missing as usize).saturating_sub(count) as u32;
        if flow.sent > 0 {
            let sent = std::mem::take(&mut flow.sent);
            flow.to_client.drain(..sent);
        }
        let of_first = count.min(first.len());
        flow.to_client.extend_from_slice(&first[..of_first]);
        flow.to_client.extend_from_slice(&second[..count - of_first]);
        self.note(flow);
        Ok(count)
    }

    /// Ends another protocol. A response ends with its last segment.
    fn shutdown_write(&self) {
        let mut flow = lock(&self.flow);
        flow.is_shut = true;
        self.note(flow);
    }

    /// Resets the stream behind the bytes that can be sent at once.
    fn shutdown_both(&self) {
        let mut flow = lock(&self.flow);
        if flow.is_reset {
            return;
        }
        flow.is_cut = true;
        let (tail, _observed) = flow.cut();
        let is_new = !std::mem::replace(&mut flow.is_noted, true);
        self.wake(flow);
        self.drop_parts(tail);
        if is_new {
            self.hub.note(self.id);
        }
    }

    fn is_pollable(&self) -> bool {
        true
    }

    fn peer_has_gone(&self) -> bool {
        lock(&self.flow).is_reset
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.hub.local_addr
    }

    #[cfg(feature = "_tls")]
    fn tls_info(&self) -> Option<&crate::TlsInfo> {
        self.hub.memory.as_ref()?.tls_info()
    }

    /// A change after the last attempt counts, also before the first call.
    fn fd(&self, reads: bool, writes: bool) -> io::Result<BorrowedFd<'_>> {
        let index = usize::from(reads) + 2 * usize::from(writes);
        let signal = &self.signals.get_or_init(Box::default)[index];
        if signal.get().is_none() {
            // Another thread may have been first.
            let _ = signal.set(WakePipe::open()?);
        }
        let signal = signal.get().ok_or(io::ErrorKind::Other)?;
        update(signal, index, &mut lock(&self.flow));
        Ok(signal.as_fd())
    }
}
