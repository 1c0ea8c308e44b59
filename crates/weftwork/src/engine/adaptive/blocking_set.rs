//! Connections whose calls block, shared by the threads that answer them.
//!
//! A member that asks for nothing goes home to its loop: it costs no thread here, but its deadlines are kept there.

use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;

use crate::conn::Conn;
use crate::engine::pending_queue::PendingQueue;
use crate::engine::shared_poller::{PollEvent, SharedPoller};

/// How long a thread waits here before it stands by for other work: an idle moment of many clients is shorter.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

pub(super) struct BlockingSet {
    poller: SharedPoller,
    /// Calls of members, ever.
    pub(super) calls: AtomicU32,
    /// The watcher has found that another thread would be of no use: see [`CpuPressure`](crate::engine::cpu_pressure::CpuPressure).
    pub(super) is_served_soon: AtomicBool,
    /// On full cores: how many may ask here, as they are served soon. Elsewhere none.
    asking_max: AtomicUsize,
    /// Connections whose request waits for whoever comes back from a call next; threads sleep there until an event comes.
    asking: PendingQueue<Box<Conn>>,
}

/// A member that has something to say, or who is asking.
pub(super) struct NextConn {
    pub(super) conn: Box<Conn>,
    /// The thread has slept until it came.
    pub(super) was_waited_for: bool,
}

/// Who is a member, and when.
impl Deref for BlockingSet {
    type Target = SharedPoller;

    fn deref(&self) -> &SharedPoller {
        &self.poller
    }
}

impl BlockingSet {
    pub(super) fn open() -> io::Result<BlockingSet> {
        Ok(BlockingSet {
            poller: SharedPoller::open()?,
            calls: AtomicU32::new(0),
            is_served_soon: AtomicBool::new(false),
            asking_max: AtomicUsize::new(0),
            asking: PendingQueue::new(),
        })
    }

    /// What the watcher has found out; `asking_max`: see [`CpuPressure::asking_max`](crate::engine::cpu_pressure::CpuPressure::asking_max).
    pub(super) fn note(&self, is_served_soon: bool, asking_max: usize) {
        self.is_served_soon.store(is_served_soon, Ordering::Relaxed);
        self.asking_max.store(asking_max, Ordering::Relaxed);
    }

    /// The request of this connection waits for the next thread that comes here. It comes back where that is not soon, or as
    /// many as `most` wait.
    pub(super) fn ask(&self, conn: Box<Conn>, most: usize) -> Result<(), Box<Conn>> {
        let most = most.min(self.asking_max.load(Ordering::Relaxed));
        if most == 0 {
            return Err(conn);
        }
        self.asking.put(conn, most)?;
        self.call_one();
        Ok(())
    }

    /// All of them: who asks from now on is not among them.
    pub(super) fn take_asking(&self) -> VecDeque<Box<Conn>> {
        self.asking.take_all()
    }

    pub(super) fn asking(&self) -> usize {
        self.asking.len()
    }

    #[inline]
    pub(super) fn has_asking(&self) -> bool {
        self.asking() > 0
    }

    /// Somebody is asking, or may at any moment.
    pub(super) fn has_anybody(&self) -> bool {
        self.poller.has_anybody() || self.has_asking()
    }

    /// The next member to which something happens. The last of those who wait does so for as long as it `may_wait` and somebody
    /// may ask; others give up after a while.
    #[inline(always)]
    pub(super) fn next(&self, may_wait: impl Fn() -> bool) -> Option<NextConn> {
        if may_wait()
            && let Some(conn) = self.asking.first()
        {
            return Some(NextConn { conn, was_waited_for: false });
        }
        // Elsewhere it would be in vain: with 10 connections it is a system call more for each request.
        if self.is_served_soon.load(Ordering::Relaxed)
            && may_wait()
            && let PollEvent::Conn(conn) = self.wait(Some(&Timespec::default()))
        {
            return Some(NextConn { conn, was_waited_for: false });
        }
        let sleep = || self.asking.first().map_or_else(|| self.wait(Some(&PATIENCE)), PollEvent::Conn);
        loop {
            let (told, others) = self.asking.sleep(|| (self.has_anybody() && may_wait()).then(sleep));
            match told {
                Some(PollEvent::Conn(conn)) => return Some(NextConn { conn, was_waited_for: true }),
                // This thread may have been called for it.
                _ if self.has_asking() && may_wait() => {}
                None => return None,
                Some(PollEvent::Timeout) if others > 0 => return None,
                Some(_) => {}
            }
        }
    }

    /// One of those who wait has other work to do.
    pub(super) fn call_one(&self) {
        self.asking.call(|| self.ring());
    }

    pub(super) fn is_waited_at(&self) -> bool {
        self.asking.has_sleepers()
    }

    /// Somebody has asked, and no thread waits for that.
    pub(super) fn is_short(&self) -> bool {
        !self.is_waited_at() && (self.has_asking() || self.has_anybody() && self.has_news())
    }
}
