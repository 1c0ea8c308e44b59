//! A tunnel that its client does not read: until when is it waited for?

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::message::Upgraded;

const WRITE: u64 = 30_000;

/// A wait that ends at once, and notes until when it might have lasted.
#[derive(Default)]
struct Noted {
    now: AtomicU64,
    untils: Mutex<Vec<u64>>,
}

impl Wait for Noted {
    fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    fn readable_in(&self, _: BorrowedFd<'_>, _: Tick, _: Stage) -> std_io::Result<()> {
        Err(ErrorKind::TimedOut.into())
    }

    fn writable(&self, _: BorrowedFd<'_>, until: Tick) -> std_io::Result<()> {
        self.untils.lock().unwrap().push(until.0);
        Err(ErrorKind::TimedOut.into())
    }
}

/// Neither that before its first byte, nor that between two.
#[test]
fn the_time_of_what_took_it_over_is_not_on_the_clock_of_the_peer() {
    const LATER: [u64; 2] = [1_000_000, 2_000_000];
    let (mut bed, wait) = (Bed::new(), Arc::new(Noted::default()));
    let clock = wait.clone();
    let flood = move |mut line: Upgraded| {
        for now in LATER {
            clock.now.store(now, Ordering::Relaxed);
            while line.write(&[b'x'; 1 << 10]).is_ok() {}
        }
        Ok(())
    };
    let flood = Mutex::new(Some(flood));
    let handler = move |_: &mut Request| Response::tunnel(flood.lock().unwrap().take().unwrap());
    bed.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let now = bed.now;
    bed.call_with(&handler, &InVain { now });
    assert_eq!(bed.go_on(), Step::Takeover);
    bed.conn.take_over(&Arc::new(bed.cx), wait.clone());
    assert_eq!(*wait.untils.lock().unwrap(), LATER.map(|now| now + WRITE));
}
