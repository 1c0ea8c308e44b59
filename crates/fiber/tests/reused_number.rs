//! Tests that a socket is safe from events of an earlier socket with the same descriptor number. It runs in a
//! process of its own, so that no other test takes the number.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use weftwork_fiber::net::UnixStream;
use weftwork_fiber::{Interest, Runtime, spawn, yield_now};

#[test]
fn a_socket_that_inherits_the_number_of_a_watched_one_is_not_lost() {
    let runtime = Runtime::new().unwrap();
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let number = ours.as_raw_fd();
    runtime.watch(&ours, Interest::Readable, 1).unwrap();
    // Against the rules: closed without `unwatch`.
    drop(ours);
    let (one, two) = UnixStream::pair().unwrap();
    let numbers = [&one, &two].map(|stream| stream.as_fd().as_raw_fd());
    assert!(numbers.contains(&number), "the test must reuse the number");
    let bounced = runtime.block_on(move || {
        let other = spawn(move || (&two).read_exact(&mut [0]).and_then(|()| (&two).write_all(b"x")));
        yield_now();
        (&one).write_all(b"x")?;
        (&one).read_exact(&mut [0])?;
        other.join().unwrap()
    });
    bounced.unwrap().unwrap();
}
