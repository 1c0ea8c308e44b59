//! The least that a blocking handler costs: threads that read, sleep and write, each with its own connection. The threads are kept between
//! connections.

use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::FloorArgs;
use crate::failure::Result;

const READ_BYTES: usize = 4096;
/// The smallest size that holds the read buffer with some reserve. The C library reuses small stacks.
const STACK_BYTES: usize = 64 * 1024;
/// Pause after an accept that failed: there are no descriptors, or no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Connections that are served at once. weft has as many threads at most.
const THREADS: usize = 512;

/// Every thread accepts for itself, again and again: no thread is started during the load. That doubles the rate of short connections
/// beside a thread that is started for each, and costs the long ones nothing.
pub(super) fn serve(listener: &OwnedFd, options: &FloorArgs, answer: &[u8]) -> Result<()> {
    let sleep = Duration::from_micros(options.sleep_us);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let serve_on = || {
                loop {
                    match net::accept_with(listener, SocketFlags::CLOEXEC) {
                        Ok(socket) => answer_all(&socket, answer, options.close, sleep),
                        Err(_) => thread::sleep(ACCEPT_PAUSE),
                    }
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve_on)?;
        }
        Ok(())
    })
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
