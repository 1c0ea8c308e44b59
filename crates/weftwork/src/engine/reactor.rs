//! The engine `reactor`: event loops that stay with their threads.
//!
//! A handler that blocks stops its loop and all its connections. So does a streamed body whose client is slow. If
//! handlers never block, this engine saves the two swaps and the monitor of `adaptive`. Only upgraded connections
//! leave their loops: each has its own thread.
//!
//! The frames of HTTP/2 arrive at the loop. So while a request of HTTP/2 waits for its client, its thread goes on with the
//! loop, except for handlers ([`StreamWait`]). After a flush, it does so once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::Listeners;
use super::conn_table::ActiveConn;
use super::event_loop::EventLoop;
use super::loops::LoopGroup;
use super::thread_pool::{Limits, NoEvents, ThreadPool, Work};
use super::thread_wait::{self, OwnedThreadWait, ThreadWait};
use super::threads::{Threads, shed_upgrade};
use super::{EngineHandle, log_caught_panic};
use crate::conn::{Call, Conn, IoWait, Readiness};
use crate::message::{Handler, WakeConn};
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;
use crate::transport::{DateCache, Tick};

/// A thread without an upgraded connection exits after this.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

struct Reactor {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    loops: Arc<LoopGroup>,
    threads: Threads,
    listeners: Listeners,
    /// For upgraded connections.
    upgrade_pool: ThreadPool<Box<Conn>, NoEvents>,
}

pub(super) fn start(
    loops: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn EngineHandle>> {
    // All loops are created before the first thread starts: if one fails, no thread has to be ended.
    let (reactor, loops) = Reactor::new(loops, cx, handler, &listeners)?;
    let mut loops = loops.into_iter();
    let opened = loops.try_for_each(|lp| {
        let own = reactor.clone();
        reactor.threads.spawn(&format!("weft-{}", lp.index), move || own.run(lp))
    });
    super::started(reactor.clone(), &reactor.cx, opened)
}

impl Reactor {
    /// The engine before its first thread.
    fn new(
        loops: usize,
        cx: Arc<Context>,
        handler: Arc<dyn Handler>,
        listeners: &Arc<Vec<Listener>>,
    ) -> io::Result<(Arc<Reactor>, Vec<EventLoop>)> {
        let settings = &cx.settings;
        let limits = Limits {
            spare: 0,
            idle_kept: 0,
            threads_max: settings.threads_max.saturating_sub(loops).max(1),
            queue_max: settings.queue_max,
            starts_ahead: false,
            keep_alive: KEEP_ALIVE,
        };
        let (loops, opened) = EventLoop::open_all(loops, listeners, cx.clock.now())?;
        let reactor = Arc::new(Reactor {
            loops,
            upgrade_pool: ThreadPool::new(limits, NoEvents),
            threads: Threads::default(),
            listeners: Listeners::new(listeners),
            cx,
            handler,
        });
        Ok((reactor, opened))
    }

    /// A panic outside of handlers is a bug of Weftwork. It costs the connection that was being served.
    fn run(self: &Arc<Reactor>, mut lp: EventLoop) {
        while catch_unwind(AssertUnwindSafe(|| self.lead(&mut lp))).is_err() {
            log_caught_panic();
        }
    }

    fn lead(self: &Arc<Reactor>, lp: &mut EventLoop) {
        let (mut dates, slot) = (DateCache::new(lp.now()), self.cx.watchdog.call_slot());
        // The loop's time is from its last wait. Calls since then have taken time.
        let mut now = lp.now();
        let mut waiting = VecDeque::new();
        loop {
            let mut called = waiting.pop_front().or_else(|| lp.run_until_call(&self.cx));
            if called.is_none() {
                return;
            }
            while let Some(mut active) = called {
                if active.conn.is_upgraded() {
                    self.run_upgraded(lp.remove(active));
                    break;
                }
                let (cx, handler, begun) = (&*self.cx, &*self.handler, now.max(lp.now()));
                let thread = ThreadWait::new(cx);
                let of_stream = StreamWait { cx, lp: RefCell::new(lp), waiting: RefCell::new(&mut waiting) };
                let wait: &dyn IoWait = if active.conn.is_stream() { &of_stream } else { &thread };
                let call = Call { cx, now: begun, handler, wait, dates: &mut dates, slot: &slot };
                now = active.guarded(&self.loops, |conn| conn.run(call));
                if active.conn.is_stream() {
                    // What the handler took is no time of its client, for the connection either.
                    lp.refresh(&self.cx);
                }
                called = lp.resume(active, &self.cx);
            }
        }
    }

    /// Gives an upgraded connection to a thread of its own. If no thread is free, the connection waits for one, and ends if too many
    /// wait, or if the system gives no thread at all.
    fn run_upgraded(self: &Arc<Reactor>, conn: Box<Conn>) {
        if self.upgrade_pool.submit(conn, || self.start_upgrade_thread()).is_err() {
            shed_upgrade(&self.cx);
        }
        if self.upgrade_pool.stats().threads == 0 {
            self.upgrade_pool.drain_queue().iter().for_each(|_| shed_upgrade(&self.cx));
        }
    }

    /// Starts a thread that is counted already.
    fn start_upgrade_thread(self: &Arc<Reactor>) {
        let shared = self.clone();
        let _ = self.threads.start(&self.upgrade_pool, false, move || shared.serve_upgraded());
    }

    /// The life of such a thread.
    fn serve_upgraded(self: &Arc<Reactor>) {
        let is_wanted = || self.upgrade_pool.is_short();
        let run = |Work::Job(conn): Work<Box<Conn>, _>| {
            conn.run_upgraded(&self.cx, Arc::new(OwnedThreadWait(self.cx.clone())), is_wanted);
        };
        self.threads.work(&self.upgrade_pool, &|| self.start_upgrade_thread(), run, |()| ());
    }
}

/// The wait of a request of HTTP/2 for its client. Meanwhile, the loop reads frames and sends responses.
struct StreamWait<'a> {
    cx: &'a Context,
    lp: RefCell<&'a mut EventLoop>,
    /// Requests that have arrived meanwhile. Their handlers run after this one.
    waiting: RefCell<&'a mut VecDeque<ActiveConn>>,
}

impl IoWait for StreamWait<'_> {
    fn now(&self) -> Tick {
        self.cx.clock.now()
    }

    fn wait_ready(&self, fd: BorrowedFd<'_>, ready: Readiness, until: Tick, stage: Stage) -> io::Result<()> {
        let mut lp = self.lp.borrow_mut();
        lp.refresh(self.cx);
        loop {
            while let Some(active) = lp.poll_ready(self.cx) {
                self.waiting.borrow_mut().push_back(active);
            }
            match thread_wait::wait_in(self.cx, fd, ready, Tick(0), stage) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && self.now() < until => {}
                looked => return looked,
            }
            // The loop follows the server into its next stage.
            let _ = lp.is_over(self.cx);
            lp.wait(self.cx, Some(self.now().until(until)));
        }
    }

    fn event_loop(&self) -> Option<Arc<dyn WakeConn>> {
        Some(self.lp.borrow().waker())
    }

    fn exchange_frames(&self) {
        let called = self.lp.borrow_mut().turn(self.cx);
        self.waiting.borrow_mut().extend(called);
    }
}

impl EngineHandle for Reactor {
    fn has_pending(&self) -> bool {
        self.listeners.have_pending()
    }

    fn is_accepting(&self) -> bool {
        self.loops.are_accepting()
    }

    fn accept_pending(self: Arc<Self>) {
        self.listeners.accept_pending(&self.cx, |conn| self.loops.adopt(conn));
    }

    fn adopt(self: Arc<Self>, conn: Box<Conn>) {
        self.loops.adopt(conn);
    }

    fn close_idle(&self) {
        self.loops.close_idle();
    }

    fn wake(&self) {
        self.listeners.shut();
        self.loops.wake_all();
        if self.cx.stage() == Stage::Closing {
            self.loops.refuse_adopted(&self.cx);
            drop(self.upgrade_pool.close());
        }
    }

    fn join(&self, timeout: Duration) -> usize {
        super::join_within(self.threads.take(), timeout)
    }

    fn threads(&self) -> usize {
        self.threads.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::engine::testing::burst::{self, Burst, eventually};
    use crate::engine::testing::client::connect;
    use crate::transport::address::Address;

    /// A reactor without threads.
    fn empty() -> (Arc<Reactor>, SocketAddr) {
        let (_burst, site) = Burst::pending(0);
        let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
        let listeners = Arc::new(vec![site.listener]);
        (Reactor::new(1, site.cx, site.handler, &listeners).unwrap().0, address)
    }

    fn accept(engine: &Reactor) -> Box<Conn> {
        let mut conn = None;
        eventually("somebody is at the door", || {
            conn = engine.listeners.accept(engine.cx.clock.now(), &engine.cx);
            conn.is_some()
        });
        conn.unwrap()
    }

    #[test]
    fn an_upgraded_connection_gets_a_thread_beside_those_that_last() {
        let (engine, address) = empty();
        let _client = connect(address);
        assert!(engine.upgrade_pool.count_busy(), "this thread is busy, and stays so");
        engine.run_upgraded(accept(&engine));
        eventually("it has had its thread", || engine.cx.stats().connections == 0);
        assert_eq!((engine.upgrade_pool.stats().queued, engine.cx.stats().shed), (0, 0));
        drop(engine.upgrade_pool.close());
        assert_eq!(engine.threads.join(burst::TIMEOUT), 0);
    }

    #[test]
    fn an_upgraded_connection_waits_for_a_thread_that_is_there_if_the_system_refuses_another() {
        let (engine, address) = empty();
        let _client = connect(address);
        assert!(engine.upgrade_pool.count_busy());
        engine.threads.give_at_most(1);
        engine.run_upgraded(accept(&engine));
        assert_eq!((engine.upgrade_pool.stats().threads, engine.upgrade_pool.stats().queued), (1, 1));
        engine.upgrade_pool.note_done();
        assert!(engine.upgrade_pool.next(false, &|| ()).is_some(), "the thread comes back, and takes it");
        assert_eq!(engine.cx.stats().shed, 0);
    }

    #[test]
    fn upgraded_connections_end_if_the_system_gives_no_thread() {
        let (engine, address) = empty();
        let _clients = [(); 2].map(|()| connect(address));
        engine.threads.give_at_most(0);
        for shed in 1..=2 {
            engine.run_upgraded(accept(&engine));
            assert_eq!((engine.upgrade_pool.stats().queued, engine.cx.stats().shed), (0, shed));
        }
        assert_eq!((engine.cx.stats().connections, engine.threads()), (0, 0));
    }
}
