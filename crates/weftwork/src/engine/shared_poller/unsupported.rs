//! Replaces the [shared poller](super) on systems that cannot report each event to one thread. No connection is ever
//! added.

use std::io;
use std::time::Duration;

use super::thread_pool::{EventSource, Watched};
use crate::conn::Conn;
use crate::transport::Tick;

pub(super) struct SharedPoller;

pub(super) struct SlotGuard;

impl EventSource for SharedPoller {
    type Event = Box<Conn>;

    fn expects_events(&self) -> bool {
        false
    }

    fn watch(&self, _: Duration) -> Watched<Box<Conn>> {
        Watched::TimedOut
    }

    fn wake_one(&self) {}
}

impl SharedPoller {
    pub(super) fn open(_: bool) -> io::Result<SharedPoller> {
        Ok(SharedPoller)
    }

    pub(super) fn add(&self, _: &mut Conn) -> Option<bool> {
        None
    }

    pub(super) fn guard(&self, _: &Conn) -> Option<SlotGuard> {
        None
    }

    pub(super) fn put_back(&self, conn: Box<Conn>, _: Tick) -> Option<Box<Conn>> {
        Some(conn)
    }

    pub(super) fn remove(&self, _: &mut Conn) {}

    pub(super) fn close(&self, conn: Box<Conn>) {
        drop(conn);
    }

    pub(super) fn len(&self) -> usize {
        0
    }

    pub(super) fn has_events(&self) -> bool {
        false
    }

    pub(super) fn note_waiting(&self, _: Tick) -> usize {
        0
    }

    pub(super) fn evict_idle(&self, _: Duration, _: Tick, _: impl FnMut(Box<Conn>)) {}
}
