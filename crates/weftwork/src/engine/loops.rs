//! The loops of one server: their loads, their inboxes, and how other threads wake them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use mio::unix::SourceFd;
use mio::{Poll, Registry, Token, Waker};

use super::conn_table::WAKER;
use super::inbox::Inbox;
use crate::conn::{Conn, Registered};
use crate::message::WakeConn;
use crate::transport::context::Context;

/// A message to a loop.
#[derive(Debug)]
pub(super) enum LoopMessage {
    /// The connection that was out for a call does not come back: its slot is free.
    Released(Token),
    /// A connection that the loop has to serve from now on.
    Adopt(Box<Conn>),
    /// Another thread has something for the connection to send.
    Wake(Token),
}

/// Reaches one loop, on whichever thread it is led.
pub(super) struct LoopHandle {
    pub(super) inbox: Inbox<LoopMessage>,
    waker: Waker,
    registry: Registry,
    load: AtomicUsize,
    /// Connections that other loops have sent it since it last reported its load.
    adopting: AtomicUsize,
    close_idle_wanted: AtomicBool,
}

/// Maximum number of connections that other loops send to a loop between two reports of its load. A loop whose
/// handler blocks looks like the emptiest one.
const ADOPTING_MAX: usize = 16;

/// The loops of a server.
pub(super) struct LoopGroup {
    handles: Arc<[CachePadded<LoopHandle>]>,
    pub(super) activity: LoopActivity,
}

/// The inbox of one loop, as the loop has it. When the loop ends, messages are dropped: a connection in the inbox
/// would stay open as long as the server exists.
pub(super) struct InboxReceiver {
    handles: Arc<[CachePadded<LoopHandle>]>,
    index: usize,
}

impl InboxReceiver {
    pub(super) fn take_all(&self, into: &mut Vec<LoopMessage>) {
        self.handles[self.index].inbox.take_all(into);
    }
}

impl Drop for InboxReceiver {
    fn drop(&mut self) {
        let handle = &self.handles[self.index];
        handle.inbox.close();
        // No loop sends it a new connection any more.
        handle.load.store(usize::MAX / 2, Ordering::Relaxed);
    }
}

/// Wakes connections of one loop, for threads that have something for them to send.
struct LoopWaker {
    handles: Arc<[CachePadded<LoopHandle>]>,
    index: usize,
}

impl WakeConn for LoopWaker {
    fn wake(&self, key: usize) {
        let handle = &self.handles[self.index];
        if handle.inbox.push(LoopMessage::Wake(Token(key))) {
            handle.wake();
        }
    }
}

impl LoopGroup {
    pub(super) fn new(polls: &[Poll]) -> io::Result<LoopGroup> {
        let handles = polls.iter().map(|poll| {
            Ok(CachePadded::new(LoopHandle {
                inbox: Inbox::new(),
                waker: Waker::new(poll.registry(), Token(WAKER))?,
                registry: poll.registry().try_clone()?,
                load: AtomicUsize::new(0),
                adopting: AtomicUsize::new(0),
                close_idle_wanted: AtomicBool::new(false),
            }))
        });
        Ok(LoopGroup {
            handles: handles.collect::<io::Result<_>>()?,
            activity: LoopActivity::new(polls.len()),
        })
    }

    pub(super) fn handle(&self, index: usize) -> &LoopHandle {
        &self.handles[index]
    }

    /// The receiving end of a loop's inbox, for [`EventLoop::new`](super::event_loop::EventLoop::new).
    pub(super) fn receiver(&self, index: usize) -> InboxReceiver {
        InboxReceiver { handles: self.handles.clone(), index }
    }

    /// What wakes connections of a loop, for [`EventLoop::new`](super::event_loop::EventLoop::new).
    pub(super) fn waker(&self, index: usize) -> Arc<dyn WakeConn> {
        Arc::new(LoopWaker { handles: self.handles.clone(), index })
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(super) fn send(&self, index: usize, message: LoopMessage) {
        let handle = self.handle(index);
        if handle.inbox.push(message) {
            handle.wake();
        }
    }

    /// Gives a connection that another thread has accepted to the loop with the fewest.
    pub(super) fn adopt(&self, conn: Box<Conn>) {
        let loads = self.handles.iter().map(|handle| handle.load.load(Ordering::Relaxed));
        let least = loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index);
        self.handles[least].load.fetch_add(1, Ordering::Relaxed);
        self.send(least, LoopMessage::Adopt(conn));
    }

    /// The server has stopped: the connections that no loop has adopted yet are told 503.
    pub(super) fn refuse_adopted(&self, cx: &Context) {
        for handle in self.handles.iter() {
            let mut messages = Vec::new();
            handle.inbox.take_all(&mut messages);
            for message in messages {
                if let LoopMessage::Adopt(conn) = message {
                    conn.refuse_stopping(cx);
                }
            }
        }
    }

    /// Asks a loop to close idle connections and to accept: the cap is reached, and a connection waits.
    pub(super) fn request_close_idle(&self, index: usize) {
        let handle = self.handle(index);
        handle.close_idle_wanted.store(true, Ordering::SeqCst);
        if handle.inbox.wake() {
            handle.wake();
        }
    }

    /// Wakes every loop: something has changed for all of them.
    pub(super) fn wake_all(&self) {
        for handle in self.handles.iter() {
            if handle.inbox.wake() {
                handle.wake();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn load(&self, index: usize) -> usize {
        self.handles[index].load.load(Ordering::Relaxed)
    }

    pub(super) fn note_load(&self, index: usize, connections: usize) {
        let handle = &self.handles[index];
        handle.load.store(connections, Ordering::Relaxed);
        handle.adopting.store(0, Ordering::Relaxed);
    }

    /// The loop with the fewest connections, if this loop has more than `most` beyond that: the kernel chooses which
    /// loop accepts. The caller's connection is counted there.
    pub(super) fn less_loaded(&self, index: usize, mine: usize, most: usize) -> Option<usize> {
        if self.len() == 1 || mine <= most {
            return None;
        }
        self.note_load(index, mine);
        let may_be_given = |handle: &LoopHandle| handle.adopting.load(Ordering::Relaxed) < ADOPTING_MAX;
        let others = self.handles.iter().enumerate().filter(|(_, handle)| may_be_given(handle));
        let loads = others.map(|(index, handle)| (index, handle.load.load(Ordering::Relaxed)));
        let (least, load) = loads.min_by_key(|(_, load)| *load)?;
        if mine <= load + most {
            return None;
        }
        let handle = &self.handles[least];
        handle.load.fetch_add(1, Ordering::Relaxed);
        handle.adopting.fetch_add(1, Ordering::Relaxed);
        Some(least)
    }

    /// Takes a connection off its loop's poller, from outside the loop, and tells the loop.
    pub(super) fn deregister(&self, conn: &mut Conn, token: Token) {
        let home = conn.owner.loop_index as usize;
        if std::mem::take(&mut conn.owner.registered) != Registered::Not {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.handles[home].registry.deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.send(home, LoopMessage::Released(token));
    }
}

impl LoopHandle {
    /// Whether another loop has asked for idle connections to be closed since the last call.
    pub(super) fn take_close_idle(&self) -> bool {
        self.close_idle_wanted() && self.close_idle_wanted.swap(false, Ordering::SeqCst)
    }

    /// To be called by a loop after it has announced that it sleeps: a loop that asks first sets the flag, and then
    /// wakes this one.
    pub(super) fn close_idle_wanted(&self) -> bool {
        self.close_idle_wanted.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("a loop could not be woken: {error}");
        }
    }
}

/// Which loops are busy, for the monitor: it sleeps when no loop is.
pub(super) struct LoopActivity {
    busy: Vec<CachePadded<AtomicBool>>,
    asleep: AtomicBool,
    monitor: OnceLock<Thread>,
}

impl LoopActivity {
    fn new(loops: usize) -> LoopActivity {
        LoopActivity {
            busy: (0..loops).map(|_| CachePadded::new(AtomicBool::new(true))).collect(),
            asleep: AtomicBool::new(false),
            monitor: OnceLock::new(),
        }
    }

    /// Makes the calling thread the monitor.
    pub(super) fn attach(&self) {
        let _ = self.monitor.set(std::thread::current());
    }

    pub(super) fn set_idle(&self, index: usize) {
        self.busy[index].store(false, Ordering::Release);
    }

    /// The store must be seen before the load: a monitor that goes to sleep does both in the other order.
    pub(super) fn set_busy(&self, index: usize) {
        self.busy[index].store(true, Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// Wakes the monitor if it sleeps. What it is needed for was stored before (SeqCst).
    pub(super) fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    pub(super) fn is_busy(&self, index: usize) -> bool {
        self.busy[index].load(Ordering::SeqCst)
    }

    pub(super) fn wake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        if let Some(monitor) = self.monitor.get() {
            monitor.unpark();
        }
    }

    /// The monitor sleeps until a loop is busy, or `is_wanted`. False: `timeout` has passed.
    pub(super) fn sleep_until_busy(&self, timeout: Option<Duration>, is_wanted: impl Fn() -> bool) -> bool {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        self.asleep.store(true, Ordering::SeqCst);
        let any_busy = || (0..self.busy.len()).any(|index| self.is_busy(index));
        let mut woken = true;
        while woken && self.asleep.load(Ordering::SeqCst) && !any_busy() && !is_wanted() {
            match until {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    std::thread::park_timeout(left);
                    woken = !left.is_zero();
                }
                None => std::thread::park(),
            }
        }
        self.asleep.store(false, Ordering::SeqCst);
        woken
    }
}
