//! The least that a blocking handler costs: threads that read, sleep and write, each with its own connection. The threads are kept between
//! connections, or started for each.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::FloorArgs;
use crate::failure::Result;

const READ_BYTES: usize = 4096;
/// The least that holds the read buffer with room to spare; small stacks are reused by the C library.
const STACK_BYTES: usize = 64 * 1024;
/// Pause after an accept that failed: there are no descriptors, or no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// As many connections as are served at once without `--spawn`; the most threads that weft keeps, too.
const THREADS: usize = 512;

pub(super) fn serve(listener: &OwnedFd, options: &FloorArgs, answer: &[u8]) -> Result<()> {
    if options.spawn {
        spawn_for_each(listener, options, answer)
    } else {
        accept_in_each(listener, options, answer)
    }
}

/// Every thread accepts for itself, again and again: no thread is started while it counts. That doubles the
/// rate of short connections beside [`spawn_for_each`], and costs the long ones nothing.
fn accept_in_each(listener: &OwnedFd, options: &FloorArgs, answer: &[u8]) -> Result<()> {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let serve_on = || {
                loop {
                    match net::accept_with(listener, SocketFlags::CLOEXEC) {
                        Ok(socket) => answer_all(
                            &socket,
                            answer,
                            options.close,
                            Duration::from_micros(options.sleep_us),
                        ),
                        Err(_) => thread::sleep(ACCEPT_PAUSE),
                    }
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve_on)?;
        }
        Ok(())
    })
}

fn spawn_for_each(listener: &OwnedFd, options: &FloorArgs, answer: &[u8]) -> Result<()> {
    let answer: Arc<[u8]> = answer.into();
    let (close, sleep) = (options.close, Duration::from_micros(options.sleep_us));
    loop {
        let Ok(socket) = net::accept_with(listener, SocketFlags::CLOEXEC) else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let answer = Arc::clone(&answer);
        let spawned = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || answer_all(&socket, &answer, close, sleep));
        // The socket went down with the closure: its client sees an error, and counts it.
        if spawned.is_err() {
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}

fn answer_all(socket: &OwnedFd, answer: &[u8], close: bool, sleep: Duration) {
    let mut input = [0; READ_BYTES];
    // The end leaves with the last answer.
    let flags = if close { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    while let Some(head) = read_head(socket, &mut input) {
        if head.starts_with(b"GET /slow") || head.starts_with(b"GET /wait") {
            thread::sleep(sleep);
        }
        if net::send(socket, answer, flags) != Ok(answer.len()) || close {
            return;
        }
    }
}

fn read_head<'a>(socket: &OwnedFd, input: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut filled = 0;
    loop {
        match net::recv(socket, &mut input[filled..], RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((received, _)) => filled += received,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        if input[..filled].ends_with(b"\r\n\r\n") {
            return Some(&input[..filled]);
        }
    }
}
