//! What the loops of one server know of each other, and how other threads reach them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use mio::unix::SourceFd;
use mio::{Poll, Registry, Token, Waker};

use super::inbox::Inbox;
use super::table::WAKER;
use crate::conn::{Conn, Registered};
use crate::message::Wakes;

/// What is brought to a loop.
#[derive(Debug)]
pub(super) enum Letter {
    /// The connection that was out for a call stays out: its place is free.
    Left(Token),
    /// A connection to take care of.
    Home(Box<Conn>),
    /// Somebody has brought the connection something to send.
    Fed(Token),
    /// Somebody waits at the doors, where no loop does.
    Visitors,
    /// Whoever leads the loop has something to look after from now on.
    LookAround,
}

/// Where one loop can be reached, whoever leads it.
pub(super) struct Mailbox {
    pub(super) inbox: Inbox<Letter>,
    waker: Waker,
    registry: Registry,
    load: AtomicUsize,
    /// Connections that other loops have given it since it last said how many it has.
    given: AtomicUsize,
    wants_room: AtomicBool,
}

/// A loop that does not get on looks like the emptiest one: its handler may block. It is given so many, and no more before it
/// has said again how many it has.
const GIVEN_MAX: usize = 16;

/// The loops of a server.
pub(super) struct Hub {
    mailboxes: Arc<[CachePadded<Mailbox>]>,
    pub(super) watch: Watch,
    /// No loop waits at the doors: others look there.
    doors_are_left: AtomicBool,
}

/// The inbox of one loop, as the loop has it. Once that is gone, what is brought is dropped: a connection that lay there
/// would be open for as long as anybody looks at the server.
pub(super) struct Letterbox {
    mailboxes: Arc<[CachePadded<Mailbox>]>,
    index: usize,
}

impl Letterbox {
    pub(super) fn take_all(&self, into: &mut Vec<Letter>) {
        self.mailboxes[self.index].inbox.take_all(into);
    }
}

impl Drop for Letterbox {
    fn drop(&mut self) {
        let mailbox = &self.mailboxes[self.index];
        mailbox.inbox.close();
        // No loop sends it a new connection any more.
        mailbox.load.store(usize::MAX / 2, Ordering::Relaxed);
    }
}

/// How the connections of one loop are reached by those who bring them something to send.
struct Bell {
    mailboxes: Arc<[CachePadded<Mailbox>]>,
    index: usize,
}

impl Wakes for Bell {
    fn wake(&self, key: usize) {
        let mailbox = &self.mailboxes[self.index];
        if mailbox.inbox.put(Letter::Fed(Token(key))) {
            mailbox.wake();
        }
    }
}

impl Hub {
    pub(super) fn new(polls: &[Poll]) -> io::Result<Hub> {
        let mailboxes = polls.iter().map(|poll| {
            Ok(CachePadded::new(Mailbox {
                inbox: Inbox::new(),
                waker: Waker::new(poll.registry(), Token(WAKER))?,
                registry: poll.registry().try_clone()?,
                load: AtomicUsize::new(0),
                given: AtomicUsize::new(0),
                wants_room: AtomicBool::new(false),
            }))
        });
        Ok(Hub {
            mailboxes: mailboxes.collect::<io::Result<_>>()?,
            watch: Watch::new(polls.len()),
            doors_are_left: AtomicBool::new(false),
        })
    }

    pub(super) fn mailbox(&self, index: usize) -> &Mailbox {
        &self.mailboxes[index]
    }

    /// A loop's own end of its inbox, for [`Loop::new`](super::turn::Loop::new).
    pub(super) fn letterbox(&self, index: usize) -> Letterbox {
        Letterbox { mailboxes: self.mailboxes.clone(), index }
    }

    /// The bell of a loop, for [`Loop::new`](super::turn::Loop::new).
    pub(super) fn bell(&self, index: usize) -> Arc<dyn Wakes> {
        Arc::new(Bell { mailboxes: self.mailboxes.clone(), index })
    }

    pub(super) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(super) fn post(&self, index: usize, letter: Letter) {
        let mailbox = self.mailbox(index);
        if mailbox.inbox.put(letter) {
            mailbox.wake();
        }
    }

    /// Somebody waits outside, and all places are taken: a loop looks for who might go, and whether there is room.
    pub(super) fn ask_for_room(&self, index: usize) {
        let mailbox = self.mailbox(index);
        mailbox.wants_room.store(true, Ordering::SeqCst);
        if mailbox.inbox.nudge() {
            mailbox.wake();
        }
    }

    /// Whether loops wait at the doors. Where they are not to, each of them leaves when it wakes next; when they are to again, all
    /// are woken for it.
    pub(super) fn attend_doors(&self, attend: bool) {
        let were_left = self.doors_are_left.swap(!attend, Ordering::SeqCst);
        if attend && were_left {
            self.wake_all();
        }
    }

    pub(super) fn attends_doors(&self) -> bool {
        !self.doors_are_left.load(Ordering::SeqCst)
    }

    /// Every loop looks around: something has changed for all of them.
    pub(super) fn wake_all(&self) {
        for mailbox in self.mailboxes.iter() {
            if mailbox.inbox.nudge() {
                mailbox.wake();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn load(&self, index: usize) -> usize {
        self.mailboxes[index].load.load(Ordering::Relaxed)
    }

    pub(super) fn note_load(&self, index: usize, connections: usize) {
        let mailbox = &self.mailboxes[index];
        mailbox.load.store(connections, Ordering::Relaxed);
        mailbox.given.store(0, Ordering::Relaxed);
    }

    /// The loop with the fewest connections, where this one has more than `most` beyond that: which loop an accept wakes is the
    /// kernel's whim. One more is counted there.
    pub(super) fn with_fewer(&self, index: usize, mine: usize, most: usize) -> Option<usize> {
        if self.len() == 1 || mine <= most {
            return None;
        }
        self.note_load(index, mine);
        let may_be_given = |mailbox: &Mailbox| mailbox.given.load(Ordering::Relaxed) < GIVEN_MAX;
        let others = self.mailboxes.iter().enumerate().filter(|(_, mailbox)| may_be_given(mailbox));
        let loads = others.map(|(index, mailbox)| (index, mailbox.load.load(Ordering::Relaxed)));
        let (least, load) = loads.min_by_key(|(_, load)| *load)?;
        if mine <= load + most {
            return None;
        }
        let mailbox = &self.mailboxes[least];
        mailbox.load.fetch_add(1, Ordering::Relaxed);
        mailbox.given.fetch_add(1, Ordering::Relaxed);
        Some(least)
    }

    /// Takes a connection off its loop's poller, from outside the loop, and tells the loop.
    pub(super) fn part(&self, conn: &mut Conn, token: Token) {
        let home = conn.home as usize;
        if std::mem::take(&mut conn.registered) != Registered::Not {
            // Cannot fail for a socket that is registered and open; if it did, events would find no slot.
            let _ = self.mailboxes[home].registry.deregister(&mut SourceFd(&conn.as_fd().as_raw_fd()));
        }
        self.post(home, Letter::Left(token));
    }
}

impl Mailbox {
    /// Whether room was asked for since the last time.
    pub(super) fn is_asked_for_room(&self) -> bool {
        self.wants_room() && self.wants_room.swap(false, Ordering::SeqCst)
    }

    /// To be asked by a loop that is known to sleep: whoever asks for room does so first, and wakes it then.
    pub(super) fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("a loop could not be woken: {error}");
        }
    }
}

/// Which loops are at work, for the watcher: it sleeps when none is.
pub(super) struct Watch {
    busy: Vec<CachePadded<AtomicBool>>,
    asleep: AtomicBool,
    watcher: OnceLock<Thread>,
}

impl Watch {
    fn new(loops: usize) -> Watch {
        Watch {
            busy: (0..loops).map(|_| CachePadded::new(AtomicBool::new(true))).collect(),
            asleep: AtomicBool::new(false),
            watcher: OnceLock::new(),
        }
    }

    /// The calling thread is the watcher.
    pub(super) fn take_up(&self) {
        let _ = self.watcher.set(std::thread::current());
    }

    pub(super) fn note_waiting(&self, index: usize) {
        self.busy[index].store(false, Ordering::Release);
    }

    /// The store must be seen before the load: a watcher that goes to sleep looks the other way round.
    pub(super) fn note_busy(&self, index: usize) {
        self.busy[index].store(true, Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// There is something to watch, which was stored before (SeqCst).
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
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    /// The watcher sleeps until a loop is busy, or it `is_wanted` for something else. False: `patience` has passed.
    pub(super) fn sleep_until_busy(&self, patience: Option<Duration>, is_wanted: impl Fn() -> bool) -> bool {
        let until = patience.map(|patience| Instant::now() + patience);
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
