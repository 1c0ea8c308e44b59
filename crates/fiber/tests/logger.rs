//! May a logger wait, as one that writes to a socket does? In a process of its own, since the logger is the process's.

use std::cell::Cell;
use std::io::{Read, Write};
use std::time::Duration;

use weftwork_fiber::{net, run, sleep, spawn};

struct Waits;

thread_local! {
    static IS_LOGGING: Cell<bool> = const { Cell::new(false) };
}

impl log::Log for Waits {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        if !IS_LOGGING.replace(true) {
            sleep(Duration::from_millis(1));
            IS_LOGGING.set(false);
        }
    }

    fn flush(&self) {}
}

/// Whatever is logged on the way is logged while nothing of the scheduler's is borrowed.
#[test]
fn a_logger_may_wait() {
    log::set_logger(&Waits).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    run(|| {
        let (mut ours, mut theirs) = net::UnixStream::pair().unwrap();
        spawn(move || theirs.write_all(b"x").unwrap());
        ours.read_exact(&mut [0]).unwrap();
    })
    .unwrap();
}
