//! Event loops that stay with their threads: the same loop, and nobody takes it away.
//!
//! A handler that blocks stops its loop and all connections of it; so does a streamed body whose client is
//! slow. For handlers that never do, this spares the two swaps and the watcher.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Poll;

use super::Room;
use super::patience::OnThisThread;
use super::shared::Hub;
use super::turn::{Loop, Next};
use crate::conn::Call;
use crate::message::Handler;
use crate::transport::DateCache;
use crate::transport::context::{Context, Stage};
use crate::transport::listener::Listener;

struct Reactor {
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    hub: Hub,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) fn start(
    loops: usize,
    cx: Arc<Context>,
    handler: Arc<dyn Handler>,
    listeners: Arc<Vec<Listener>>,
) -> io::Result<Arc<dyn Room>> {
    let polls = (0..loops).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
    let reactor = Arc::new(Reactor { hub: Hub::new(&polls)?, cx, handler, threads: Mutex::default() });
    let now = reactor.cx.clock.now();
    for (index, poll) in polls.into_iter().enumerate() {
        let lp = Loop::new(index, poll, listeners.clone(), now)?;
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
    fn run(&self, mut lp: Loop) {
        let mut dates = DateCache::new(lp.now());
        let wait = OnThisThread { cx: &self.cx };
        loop {
            let mut called = match lp.next(&self.hub, &self.cx) {
                Next::Stop => return,
                Next::Call(errand) => Some(errand),
            };
            while let Some(mut errand) = called {
                errand.conn.run(Call {
                    cx: &self.cx,
                    handler: &*self.handler,
                    wait: &wait,
                    dates: &mut dates,
                });
                called = lp.settle(errand, &self.cx);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room for Reactor {
    fn wake(&self) {
        self.hub.wake_all();
    }

    fn join(&self, patience: Duration) -> usize {
        let threads = std::mem::take(&mut *self.lock());
        super::join_within(threads, patience)
    }

    fn threads(&self) -> usize {
        self.lock().len()
    }
}
