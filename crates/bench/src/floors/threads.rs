//! What does a blocking handler cost at least? A thread per connection that reads, sleeps and writes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::FloorOptions;
use crate::failure::Result;

const READ_BYTES: usize = 4096;
/// The least that holds the read buffer with room to spare; small stacks are reused by the C library.
const STACK_BYTES: usize = 64 * 1024;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn serve(listener: &OwnedFd, options: &FloorOptions, answer: Vec<u8>) -> Result<()> {
    let answer: Arc<[u8]> = answer.into();
    let (close, sleep) = (options.close, options.sleep);
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
    while let Some(head) = read_head(socket, &mut input) {
        if head.starts_with(b"GET /slow") {
            thread::sleep(sleep);
        }
        if net::send(socket, answer, SendFlags::NOSIGNAL) != Ok(answer.len()) || close {
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
