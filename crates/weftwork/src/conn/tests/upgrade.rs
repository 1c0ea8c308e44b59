//! Tests of how long the server waits for a tunnel that its client does not read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::waits::until_call;
use super::*;
use crate::message::Upgraded;

const WRITE: u64 = 30_000;

/// A wait that ends at its time, which is recorded. The peer has read a little by then, this many times.
struct InTime {
    now: AtomicU64,
    untils: Mutex<Vec<u64>>,
    peer: UnixStream,
    takes: AtomicU64,
}

impl InTime {
    fn of(bed: &Bed, takes: u64) -> Arc<InTime> {
        let (peer, takes) = (bed.peer.try_clone().unwrap(), takes.into());
        Arc::new(InTime { now: AtomicU64::new(0), untils: Mutex::default(), peer, takes })
    }
}

impl IoWait for InTime {
    fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, ready: Readiness, until: Tick, _: Stage) -> std::io::Result<()> {
        if ready == Readiness::Read {
            return Err(ErrorKind::TimedOut.into());
        }
        self.now.store(until.0, Ordering::Relaxed);
        self.untils.lock().unwrap().push(until.0);
        if self.takes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            assert!((&self.peer).read(&mut [0; 8 << 10]).is_ok());
        }
        Err(ErrorKind::TimedOut.into())
    }
}

/// Runs the upgraded connection of `bed` with `take`, to its end.
fn tunnel(
    mut bed: Bed,
    take: impl FnOnce(Upgraded) -> std::io::Result<()> + Send + 'static,
    wait: Arc<dyn IoWait + Send + Sync>,
) {
    let take = Mutex::new(Some(take));
    let handler = move |_: &mut Request| Response::tunnel(take.lock().unwrap().take().unwrap());
    bed.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    until_call(&mut bed);
    let now = bed.now;
    bed.call_with(&handler, &InVain { now });
    assert_eq!(bed.go_on(), Step::Upgrade);
    bed.conn.run_upgraded(&Arc::new(bed.cx), wait, || false);
}

/// Neither the time before its first byte counts, nor the time between two bytes.
#[test]
fn the_time_of_an_upgrade_handler_does_not_count_against_the_peer() {
    const LATER: [u64; 2] = [1_000_000, 2_000_000];
    let bed = Bed::new();
    let wait = InTime::of(&bed, 0);
    let clock = wait.clone();
    let flood = move |mut line: Upgraded| {
        for now in LATER {
            clock.now.store(now, Ordering::Relaxed);
            while line.write(&[b'x'; 1 << 10]).is_ok() {}
        }
        Ok(())
    };
    tunnel(bed, flood, wait.clone());
    assert_eq!(*wait.untils.lock().unwrap(), LATER.map(|now| now + WRITE));
}

/// A wait for space ends only when there is much, and a slow peer may need long for that.
#[test]
fn a_peer_that_reads_slowly_keeps_its_connection() {
    const TIMES: u64 = 3;
    let bed = Bed::narrow();
    let wait = InTime::of(&bed, TIMES);
    let flood = |mut line: Upgraded| {
        while line.write(&[b'x'; 1 << 10]).is_ok() {}
        Ok(())
    };
    tunnel(bed, flood, wait.clone());
    assert_eq!(wait.now().0, (TIMES + 1) * WRITE);
}
