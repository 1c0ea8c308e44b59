//! What stands in for the [commons](super::commons) where the system has no poller that tells one thread of each event.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use crate::conn::Conn;
use crate::transport::Tick;

#[derive(Default)]
pub(super) struct Commons {
    pub(super) calls: AtomicU32,
    pub(super) is_served_soon: AtomicBool,
}

pub(super) enum Joined {
    #[allow(dead_code)]
    Member {
        is_first: bool,
    },
    #[allow(dead_code)]
    Refused,
    Nowhere,
}

pub(super) struct Absent;

pub(super) struct News {
    pub(super) conn: Box<Conn>,
    pub(super) was_waited_for: bool,
}

impl Commons {
    pub(super) fn open() -> io::Result<Commons> {
        Ok(Commons::default())
    }

    pub(super) fn join(&self, _: &mut Conn) -> Joined {
        Joined::Nowhere
    }

    pub(super) fn absent(&self, _: &Conn) -> Option<Absent> {
        None
    }

    pub(super) fn put(&self, conn: Box<Conn>, _: Tick) -> Option<Box<Conn>> {
        Some(conn)
    }

    pub(super) fn next(&self, _: impl Fn() -> bool) -> Option<News> {
        None
    }

    pub(super) fn call_one(&self) {}

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

    pub(super) fn is_waited_at(&self) -> bool {
        false
    }

    pub(super) fn is_short(&self) -> bool {
        false
    }

    pub(super) fn send_away(&self, _: Duration, _: Tick, _: impl FnMut(Box<Conn>)) {}
}
