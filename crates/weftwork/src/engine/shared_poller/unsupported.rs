//! What stands in for the [shared poller](super) where the system has none that tells one thread of each event.

use std::io;
use std::time::Duration;

use rustix::event::Timespec;

use crate::conn::Conn;
use crate::transport::Tick;

pub(super) struct SharedPoller;

pub(super) enum AddResult {
    #[allow(dead_code)]
    Member {
        is_first: bool,
    },
    #[allow(dead_code)]
    Refused,
    Nowhere,
}

pub(super) enum PollEvent {
    #[allow(dead_code)]
    Member(Box<Conn>),
    Other(usize),
    Vain,
    Nothing,
}

pub(super) struct SlotGuard;

impl SharedPoller {
    pub(super) fn open() -> io::Result<SharedPoller> {
        Ok(SharedPoller)
    }

    pub(super) fn ring(&self) {}

    pub(super) fn join(&self, _: &mut Conn) -> AddResult {
        AddResult::Unsupported
    }

    pub(super) fn absent(&self, _: &Conn) -> Option<SlotGuard> {
        None
    }

    pub(super) fn put(&self, conn: Box<Conn>, _: Tick) -> Option<Box<Conn>> {
        Some(conn)
    }

    pub(super) fn wait(&self, _: Option<&Timespec>) -> PollEvent {
        PollEvent::Timeout
    }

    pub(super) fn leave(&self, _: &mut Conn) {}

    pub(super) fn close(&self, conn: Box<Conn>) {
        drop(conn);
    }

    pub(super) fn members(&self) -> usize {
        0
    }

    pub(super) fn has_anybody(&self) -> bool {
        false
    }

    pub(super) fn has_news(&self) -> bool {
        false
    }

    pub(super) fn send_away(&self, _: Duration, _: Tick, _: impl FnMut(Box<Conn>)) {}
}
