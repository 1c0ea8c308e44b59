//! Connections whose calls block, shared by the threads that answer them.
//!
//! A member that asks for nothing goes home to its loop: it costs no thread here, but its deadlines are kept there.

use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;

use crate::conn::Conn;
use crate::engine::shared_poller::{SharedPoller, Told};
use crate::engine::sync::{Mutex, lock};

/// How long a thread waits here before it stands by for other work: an idle moment of many clients is shorter.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

pub(super) struct Commons {
    poller: SharedPoller,
    /// Threads that sleep until an event comes.
    waiting: AtomicUsize,
    /// Calls of members, ever.
    pub(super) calls: AtomicU32,
    /// The watcher has found that another thread would be of no use: see [`Gauge`](crate::engine::gauge::Gauge).
    pub(super) is_served_soon: AtomicBool,
    /// On full cores: how many may ask here, as they are served soon. Elsewhere none.
    asking_max: AtomicUsize,
    /// Connections whose request waits for whoever comes back from a call next, in the order of their coming.
    asking: Mutex<VecDeque<Box<Conn>>>,
    /// How many.
    asked: AtomicUsize,
}

/// A member that has something to say, or who is asking.
pub(super) struct News {
    pub(super) conn: Box<Conn>,
    /// The thread has slept until it came.
    pub(super) was_waited_for: bool,
}

/// Who is a member, and when.
impl Deref for Commons {
    type Target = SharedPoller;

    fn deref(&self) -> &SharedPoller {
        &self.poller
    }
}

impl Commons {
    pub(super) fn open() -> io::Result<Commons> {
        Ok(Commons {
            poller: SharedPoller::open()?,
            waiting: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            is_served_soon: AtomicBool::new(false),
            asking_max: AtomicUsize::new(0),
            asking: Mutex::new(VecDeque::new()),
            asked: AtomicUsize::new(0),
        })
    }

    /// What the watcher has found out; `asking_max`: see [`Gauge::asking_max`](crate::engine::gauge::Gauge::asking_max).
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
        let mut asking = lock(&self.asking);
        if asking.len() >= most {
            return Err(conn);
        }
        asking.push_back(conn);
        self.asked.store(asking.len(), Ordering::SeqCst);
        drop(asking);
        self.call_one();
        Ok(())
    }

    /// Who has asked first.
    pub(super) fn next_asking(&self) -> Option<Box<Conn>> {
        if !self.has_asking() {
            return None;
        }
        let mut asking = lock(&self.asking);
        let conn = asking.pop_front();
        self.asked.store(asking.len(), Ordering::SeqCst);
        conn
    }

    /// All of them: who asks from now on is not among them.
    pub(super) fn take_asking(&self) -> VecDeque<Box<Conn>> {
        let mut asking = lock(&self.asking);
        self.asked.store(0, Ordering::SeqCst);
        std::mem::take(&mut *asking)
    }

    #[inline]
    pub(super) fn has_asking(&self) -> bool {
        self.asked.load(Ordering::SeqCst) > 0
    }

    /// Somebody is asking, or may at any moment.
    pub(super) fn has_anybody(&self) -> bool {
        self.poller.has_anybody() || self.has_asking()
    }

    /// The next member to which something happens. The last of those who wait does so for as long as it `may_wait` and somebody
    /// may ask; others give up after a while.
    #[inline(always)]
    pub(super) fn next(&self, may_wait: impl Fn() -> bool) -> Option<News> {
        if may_wait()
            && let Some(conn) = self.next_asking()
        {
            return Some(News { conn, was_waited_for: false });
        }
        // Elsewhere it would be in vain: with 10 connections it is a system call more for each request.
        if self.is_served_soon.load(Ordering::Relaxed)
            && may_wait()
            && let Told::Member(conn) = self.wait(Some(&Timespec::default()))
        {
            return Some(News { conn, was_waited_for: false });
        }
        loop {
            // Counted before it looks at what else there is to do: from then on it is called for that.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let told = (self.has_anybody() && may_wait())
                .then(|| self.next_asking().map_or_else(|| self.wait(Some(&PATIENCE)), Told::Member));
            let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            match told? {
                Told::Member(conn) => return Some(News { conn, was_waited_for: true }),
                Told::Nothing if others > 0 && !self.has_asking() => return None,
                _ => {}
            }
        }
    }

    /// One of those who wait has other work to do.
    pub(super) fn call_one(&self) {
        if self.is_waited_at() {
            self.ring();
        }
    }

    pub(super) fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Somebody has asked, and no thread waits for that.
    pub(super) fn is_short(&self) -> bool {
        !self.is_waited_at() && (self.has_asking() || self.has_anybody() && self.has_news())
    }
}
