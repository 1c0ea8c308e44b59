//! The loop of the connections of HTTP/2. Each of their requests goes to a thread of the pool for its handler.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Job, Workers};
use crate::conn::Conn;
use crate::engine::event_loop::EventLoop;
use crate::engine::log_caught_panic;
use crate::engine::loops::{LoopGroup, LoopMessage};
use crate::transport::Tick;
use crate::transport::context::{Context, Stage};
use crate::transport::events::Event;
use crate::transport::listener::Listener;

/// Opens the loop, unless no connection can be one of HTTP/2.
pub(super) fn open(listeners: &[Listener], cx: &Context) -> io::Result<Option<(Arc<LoopGroup>, EventLoop)>> {
    let may_begin =
        cx.settings.http2_cleartext || cx.settings.http2 && (listeners.iter().any(has_tls) || cx.has_tls());
    if !may_begin {
        return Ok(None);
    }
    // It accepts no connection itself.
    let (loops, opened) = EventLoop::open_all(1, &Arc::default(), cx.clock.now())?;
    Ok(opened.into_iter().next().map(|lp| (loops, lp)))
}

#[cfg(feature = "_tls")]
fn has_tls(listener: &Listener) -> bool {
    listener.tls().is_some()
}

#[cfg(not(feature = "_tls"))]
fn has_tls(_: &Listener) -> bool {
    false
}

impl Workers {
    /// Runs the thread of the loop. A panic outside of handlers is a bug of Weftwork. It costs the connection that was being
    /// served.
    pub(super) fn run_loop(self: &Arc<Workers>, mut lp: EventLoop) {
        while catch_unwind(AssertUnwindSafe(|| self.lead(&mut lp))).is_err() {
            log_caught_panic();
        }
    }

    fn lead(self: &Arc<Workers>, lp: &mut EventLoop) {
        while let Some(active) = lp.run_until_call(&self.cx) {
            let now = lp.now();
            if let Err(conn) = self.post(lp.remove(active), now) {
                let active = lp.insert(conn);
                lp.refuse(active, Conn::refuse_overload, &self.cx);
            }
        }
    }

    /// Posts a request to the pool. Gives it back if the queue is full.
    fn post(self: &Arc<Workers>, mut conn: Box<Conn>, now: Tick) -> Result<(), Box<Conn>> {
        let is_late = !self.pool.has_thread();
        if is_late {
            conn.owner.queued_since = Some(now);
        }
        // Its thread accepts from these listeners next.
        let job = Job { conn, acceptor: 0 };
        self.pool.submit(job, || self.spawn()).map_err(|job| job.conn)?;
        if is_late {
            self.cx.record(Event::Queued);
        }
        Ok(())
    }

    /// Lets the loop serve a connection of HTTP/2, or one of its requests that waits.
    pub(super) fn give_to_loop(&self, mut conn: Box<Conn>) {
        if let Some(streams) = &self.streams {
            conn.owner.is_balanced = true;
            streams.send(0, LoopMessage::Adopt(conn));
        }
    }

    pub(super) fn wake_loop(&self) {
        let Some(streams) = &self.streams else { return };
        streams.wake_all();
        if self.cx.stage() == Stage::Closing {
            streams.refuse_adopted(&self.cx);
        }
    }
}
