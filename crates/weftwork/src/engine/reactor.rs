//! Event loops that stay with their threads: the same loop, and nobody takes it away.
//!
//! A handler that blocks stops its loop and all connections of it; so does a streamed body whose client is
//! slow. For handlers that never do, this spares the two swaps and the watcher. Only connections that another
//! protocol takes over leave their loops: each has a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Poll;

use super::berth::Berth;
use super::doors::Listening;
use super::hub::Hub;
use super::patience::{OnAnyThread, OnThisThread};
use super::standby::{Given, Limits, Standby};
use super::threads::Threads;
use super::turn::{Loop, Next};
use super::{Room, contained};
use crate::conn::{Call, Conn};
use crate::message::Handler;
use crate::transport::DateCache;
use crate::transport::context::{Context, Stage};
use crate::transport::counters::Counters;
use crate::transport::listener::Listener;

/// A thread that hosted a connection waits this long for another one.
const PATIENCE: Duration = Duration::from_secs(10);

struct Reactor {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    hub: Hub,
    threads: Mutex<Vec<JoinHandle<()>>>,
    listeners: Listening,
    /// For connections that another protocol takes over.
    guests: Standby<Box<Conn>>,
    guest_threads: Threads,
}

pub(super) fn start(
    loops: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn Room>> {
    let polls = (0..loops).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
    let settings = &cx.settings;
    let limits = Limits {
        kept: 0,
        threads_max: settings.threads_max.saturating_sub(loops).max(1),
        queue_max: settings.queue_max,
    };
    let reactor = Arc::new(Reactor {
        hub: Hub::new(&polls)?,
        guests: Standby::new(limits),
        guest_threads: Threads::default(),
        threads: Mutex::default(),
        listeners: Listening::new(&listeners),
        cx,
        handler,
    });
    let now = reactor.cx.clock.now();
    // All of them before the first runs, which nobody would end if another could not be made.
    let loops = polls
        .into_iter()
        .enumerate()
        .map(|(index, poll)| Loop::new(index, poll, &reactor.hub, listeners.clone(), now))
        .collect::<io::Result<Vec<_>>>()?;
    for (index, lp) in loops.into_iter().enumerate() {
        let own = reactor.clone();
        match std::thread::Builder::new().name(format!("weft-{index}")).spawn(move || own.run(lp)) {
            Ok(thread) => reactor.lock().push(thread),
            Err(error) => {
                reactor.cx.enter(Stage::Closing);
                reactor.wake();
                return Err(error);
            }
        }
    }
    Ok(reactor)
}

impl Reactor {
    /// A panic outside of handlers is a bug of ours. It costs the connection that it came upon.
    fn run(self: &Arc<Reactor>, mut lp: Loop) {
        while catch_unwind(AssertUnwindSafe(|| self.lead(&mut lp))).is_err() {
            contained();
        }
    }

    fn lead(self: &Arc<Reactor>, lp: &mut Loop) {
        let (mut dates, post) = (DateCache::new(lp.now()), self.cx.watchdog.post());
        let wait = OnThisThread::new(&self.cx);
        // The loop's time is that of its last look at the poller; calls since then have taken theirs.
        let mut now = lp.now();
        loop {
            let mut called = match lp.next(&self.hub, &self.cx) {
                Next::Stop => return,
                Next::Call(errand) => Some(errand),
            };
            while let Some(mut errand) = called {
                if errand.conn.is_taken_over() {
                    self.let_go(lp.detach(errand));
                    break;
                }
                let (cx, handler) = (&self.cx, &*self.handler);
                let call =
                    Call { cx, now: now.max(lp.now()), handler, wait: &wait, dates: &mut dates, post: &post };
                now = errand.with_conn(&self.hub, |conn| conn.run(call));
                called = lp.settle(errand, &self.cx);
            }
        }
    }

    /// Gives a connection that was taken over to a thread of its own. Where there is none it waits for one, and ends
    /// when too many wait, or the system gives no thread at all.
    fn let_go(self: &Arc<Reactor>, conn: Box<Conn>) {
        let given = self.guests.give(conn).or_start(|conn| self.start_host(conn));
        // The queue is looked at by hosts that are done, and by nobody else.
        let has_hosts = || self.guests.count().0 > 0;
        let given = given.or_else(|conn| if has_hosts() { self.guests.queue(conn) } else { Err(conn) });
        if given.is_err() {
            Counters::count(&self.cx.counters.shed);
        }
    }

    fn start_host(self: &Arc<Reactor>, conn: Box<Conn>) -> Result<(), Box<Conn>> {
        let shared = self.clone();
        self.guest_threads.start(&self.guests, conn, move |berth| shared.host(berth))
    }

    /// The life of such a thread.
    fn host(self: &Arc<Reactor>, berth: &Arc<Berth<Box<Conn>>>) {
        let _leave = Leave(self);
        let mut job = berth.first();
        while let Some(conn) = job {
            conn.take_over(&self.cx, Arc::new(OnAnyThread(self.cx.clone())));
            job = self.guests.wait(berth, PATIENCE);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Leave<'a>(&'a Arc<Reactor>);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.guest_threads.sweep();
        self.0.guests.leave();
        // One that died has not looked whether somebody waits for it.
        if let Some(Given::Spawn(conn)) = self.0.guests.call_for_queue()
            && let Err(conn) = self.0.start_host(conn)
        {
            self.0.guests.queue_first(conn);
        }
    }
}

impl Room for Reactor {
    fn has_visitors(&self) -> bool {
        self.listeners.have_visitors()
    }

    fn wake(&self) {
        self.listeners.shut();
        self.hub.wake_all();
        if self.cx.stage() == Stage::Closing {
            self.guests.close();
        }
    }

    fn join(&self, patience: Duration) -> usize {
        let mut threads = std::mem::take(&mut *self.lock());
        threads.extend(self.guest_threads.take());
        super::join_within(threads, patience)
    }

    fn threads(&self) -> usize {
        self.lock().len() + self.guests.count().0
    }
}
