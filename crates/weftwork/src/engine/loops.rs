//! The loops of one server: their loads, their inboxes, and how other threads wake them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use mio::unix::SourceFd;
use mio::{Poll, Registry, Token, Waker};

use super::conn_table::WAKER;
use super::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use crate::conn::{Conn, Registered};
use crate::message::WakeConn;
use crate::transport::context::Context;
use crate::transport::log_queue::log_line;

/// A message to a loop.
#[derive(Debug)]
pub(super) enum LoopMessage {
    /// The connection that was out for a call does not come back, so its slot is free.
    Released(Token),
    /// A connection that the loop must serve from now on.
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
    busy: AtomicBool,
    /// Whether the loop may accept a connection.
    accepts: AtomicBool,
}

/// Maximum number of connections that other loops send to a loop between two reports of its load. A loop whose
/// handler blocks looks like the emptiest one.
const ADOPTING_MAX: usize = 16;

/// The loops of a server.
pub(super) struct LoopGroup {
    handles: Box<[CachePadded<LoopHandle>]>,
    /// Counts the requests to close idle connections: each one goes to the next loop.
    close_idle_requests: AtomicUsize,
    /// The thread that sleeps when no loop is busy.
    monitor: OnceLock<Thread>,
    monitor_asleep: AtomicBool,
}

/// Wakes connections of one loop, for threads that have something for them to send.
struct LoopWaker {
    loops: Arc<LoopGroup>,
    index: usize,
}

impl WakeConn for LoopWaker {
    fn wake(&self, key: usize) {
        self.loops.send(self.index, LoopMessage::Wake(Token(key)));
    }
}

impl LoopGroup {
    pub(super) fn new(polls: &[Poll]) -> io::Result<Arc<LoopGroup>> {
        let handles = polls.iter().map(|poll| {
            Ok(CachePadded::new(LoopHandle {
                inbox: Inbox::new(),
                waker: Waker::new(poll.registry(), Token(WAKER))?,
                registry: poll.registry().try_clone()?,
                load: AtomicUsize::new(0),
                adopting: AtomicUsize::new(0),
                close_idle_wanted: AtomicBool::new(false),
                busy: AtomicBool::new(true),
                accepts: AtomicBool::new(true),
            }))
        });
        Ok(Arc::new(LoopGroup {
            handles: handles.collect::<io::Result<_>>()?,
            close_idle_requests: AtomicUsize::new(0),
            monitor: OnceLock::new(),
            monitor_asleep: AtomicBool::new(false),
        }))
    }

    pub(super) fn handle(&self, index: usize) -> &LoopHandle {
        &self.handles[index]
    }

    pub(super) fn are_accepting(&self) -> bool {
        self.handles.iter().any(|handle| handle.accepts.load(Ordering::SeqCst))
    }

    /// Returns the waker of a loop's connections.
    pub(super) fn waker(self: &Arc<LoopGroup>, index: usize) -> Arc<dyn WakeConn> {
        Arc::new(LoopWaker { loops: self.clone(), index })
    }

    pub(super) fn send(&self, index: usize, message: LoopMessage) {
        let handle = self.handle(index);
        if handle.inbox.push(message) {
            handle.end_poll();
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

    /// The loop has ended. Messages are dropped: a connection in the inbox would stay open as long as the server exists.
    pub(super) fn close(&self, index: usize) {
        self.handle(index).stop_accepting();
        self.handle(index).inbox.close();
        // No loop sends it a new connection any more.
        self.handle(index).load.store(usize::MAX / 2, Ordering::Relaxed);
    }

    /// Asks another loop to close idle connections and to accept, the next one each time: the cap is reached, and a connection
    /// waits.
    pub(super) fn request_close_idle(&self, from: usize) {
        let others = self.handles.len() - 1;
        if others > 0 {
            let request = self.close_idle_requests.fetch_add(1, Ordering::Relaxed);
            let handle = self.handle((from + 1 + request % others) % self.handles.len());
            handle.close_idle_wanted.store(true, Ordering::SeqCst);
            handle.wake();
        }
    }

    /// Asks all loops to close idle connections, because a connection waits elsewhere.
    pub(super) fn close_idle(&self) {
        for handle in self.handles.iter() {
            handle.close_idle_wanted.store(true, Ordering::SeqCst);
            handle.wake();
        }
    }

    /// Wakes every loop: something has changed for all of them.
    pub(super) fn wake_all(&self) {
        self.handles.iter().for_each(|handle| handle.wake());
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
        if self.handles.len() == 1 || mine <= most {
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
    pub(super) fn deregister(&self, conn: &mut Conn) {
        let home = conn.owner.loop_index as usize;
        if std::mem::take(&mut conn.owner.registered) != Registered::Not && !conn.is_stream() {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.handles[home].registry.deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.send(home, LoopMessage::Released(Token(conn.owner.token)));
    }

    /// Makes the calling thread the monitor.
    pub(super) fn attach_monitor(&self) {
        let _ = self.monitor.set(std::thread::current());
    }

    pub(super) fn set_idle(&self, index: usize) {
        self.handle(index).busy.store(false, Ordering::Release);
    }

    /// The store must be seen before the load: a monitor that goes to sleep does both in the other order.
    pub(super) fn set_busy(&self, index: usize) {
        self.handle(index).busy.store(true, Ordering::SeqCst);
        self.wake_monitor_if_asleep();
    }

    /// Wakes the monitor if it sleeps. What it is needed for was stored before (SeqCst).
    pub(super) fn wake_monitor_if_asleep(&self) {
        if self.monitor_asleep.load(Ordering::SeqCst) {
            self.wake_monitor();
        }
    }

    pub(super) fn is_busy(&self, index: usize) -> bool {
        self.handle(index).busy.load(Ordering::SeqCst)
    }

    pub(super) fn wake_monitor(&self) {
        self.monitor_asleep.store(false, Ordering::SeqCst);
        if let Some(monitor) = self.monitor.get() {
            monitor.unpark();
        }
    }

    /// The monitor sleeps until a loop is busy, or `is_wanted`. False: `timeout` has passed.
    pub(super) fn sleep_until_busy(&self, timeout: Option<Duration>, is_wanted: impl Fn() -> bool) -> bool {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        self.monitor_asleep.store(true, Ordering::SeqCst);
        let any_busy = || (0..self.handles.len()).any(|index| self.is_busy(index));
        let mut woken = true;
        while woken && self.monitor_asleep.load(Ordering::SeqCst) && !any_busy() && !is_wanted() {
            match until {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    std::thread::park_timeout(left);
                    woken = !left.is_zero();
                }
                None => std::thread::park(),
            }
        }
        self.monitor_asleep.store(false, Ordering::SeqCst);
        woken
    }
}

impl LoopHandle {
    /// The loop has seen that the server drains. What it has accepted is counted.
    pub(super) fn stop_accepting(&self) {
        self.accepts.store(false, Ordering::SeqCst);
    }

    /// Whether another loop has asked for idle connections to be closed since the last call.
    pub(super) fn take_close_idle(&self) -> bool {
        self.close_idle_wanted() && self.close_idle_wanted.swap(false, Ordering::SeqCst)
    }

    /// To be called by a loop after it has announced that it sleeps: a loop that asks first sets the flag, and then
    /// wakes this one.
    pub(super) fn close_idle_wanted(&self) -> bool {
        self.close_idle_wanted.load(Ordering::SeqCst)
    }

    /// Wakes the loop if it sleeps.
    fn wake(&self) {
        if self.inbox.wake() {
            self.end_poll();
        }
    }

    fn end_poll(&self) {
        if let Err(error) = self.waker.wake() {
            log_line!(Error, "a loop could not be woken: {error}");
        }
    }
}

/// Messages that were sent to a loop and not yet read.
pub(super) struct Inbox<T> {
    /// `None`: the loop has ended, and reads no more messages.
    messages: Mutex<Option<Vec<T>>>,
    /// The loop waits for the poller, or is about to: a thread that sends a message has to wake it.
    asleep: AtomicBool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox { messages: Mutex::new(Some(Vec::new())), asleep: AtomicBool::new(false) }
    }

    /// Sends a message. True: the caller must wake the loop. If the loop has ended, the message is dropped.
    #[must_use]
    pub(super) fn push(&self, message: T) -> bool {
        let mut messages = lock(&self.messages);
        let Some(open) = messages.as_mut() else { return false };
        open.push(message);
        drop(messages);
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// The loop ends: messages that were sent are dropped, and so are all later ones.
    pub(super) fn close(&self) {
        let messages = lock(&self.messages).take();
        drop(messages);
    }

    /// True: there is no message, and from now on `push` says when to wake. False: there is a message, do not sleep.
    pub(super) fn prepare_park(&self) -> bool {
        // A swap, which costs as much as a store on x86, so that loom can check `wake`: loom has no single order of
        // all SeqCst accesses.
        self.asleep.swap(true, Ordering::SeqCst);
        if lock(&self.messages).as_ref().is_none_or(Vec::is_empty) {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The loop is awake again, for whatever reason.
    pub(super) fn unpark(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// True: the loop slept, and the caller must wake it. False: a change made before (SeqCst) is seen by a loop that
    /// checks after [`Inbox::prepare_park`].
    #[must_use]
    pub(super) fn wake(&self) -> bool {
        self.asleep.swap(false, Ordering::SeqCst)
    }

    /// Takes all messages, in the order of arrival. `into` must be empty.
    pub(super) fn take_all(&self, into: &mut Vec<T>) {
        if let Some(messages) = lock(&self.messages).as_mut() {
            std::mem::swap(messages, into);
        }
    }
}
