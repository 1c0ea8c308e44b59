//! Measures the cost of a switch, of a spawn with its join, of a timer, and of a fiber's memory.
//!
//! `cargo bench -p weftwork-fiber --bench switch`

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use weftwork_fiber::sync::channel;
use weftwork_fiber::{Interest, Runtime, net, run, sleep, spawn, timeout, wait_readable, yield_now};

const FIBERS: usize = 10_000;

fn report(what: &str, rounds: usize, took: Duration) {
    println!("{what:<58} {:>8.1} ns", took.as_nanos() as f64 / rounds as f64);
}

/// Resident memory of the process in bytes (Linux).
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4_096
}

fn yields() {
    const ROUNDS: usize = 2_000_000;
    let started = Instant::now();
    let spin = || (0..ROUNDS / 2).for_each(|_| yield_now());
    let other = spawn(spin);
    spin();
    other.join().unwrap();
    report("yield, 2 fibers: a switch", ROUNDS, started.elapsed());
}

fn ping_pong() {
    const ROUNDS: usize = 500_000;
    let (ping, pinged) = channel(1);
    let (pong, ponged) = channel(1);
    spawn(move || pinged.iter().for_each(|value| pong.send(value).unwrap()));
    let started = Instant::now();
    for round in 0..ROUNDS {
        ping.send(round).unwrap();
        black_box(ponged.recv().unwrap());
    }
    report("ping over channels, 2 fibers: one way, with its switch", 2 * ROUNDS, started.elapsed());
}

/// Ten thousand fibers pass a token around a ring, so that each switch finds a cold stack.
fn ring() {
    const LAPS: usize = 30;
    let before = resident_bytes();
    let (first, mut previous) = channel(1);
    for _ in 1..FIBERS {
        let (next, receiver) = channel(1);
        let from = std::mem::replace(&mut previous, receiver);
        spawn(move || from.iter().for_each(|token: usize| next.send(token).unwrap()));
    }
    first.send(0).unwrap();
    previous.recv().unwrap();
    let bytes = resident_bytes().saturating_sub(before) / FIBERS;
    let started = Instant::now();
    for lap in 0..LAPS {
        first.send(lap).unwrap();
        black_box(previous.recv().unwrap());
    }
    report("ping over channels, ring of 10,000: one way, one switch", LAPS * FIBERS, started.elapsed());
    println!("{:<58} {bytes:>8} bytes", "memory of a suspended fiber and its channel");
}

fn spawn_and_join() {
    const ROUNDS: usize = 500_000;
    let started = Instant::now();
    for round in 0..ROUNDS {
        black_box(spawn(move || round).join().unwrap());
    }
    report("spawn and join, one at a time", ROUNDS, started.elapsed());
    let started = Instant::now();
    for _ in 0..50 {
        let fibers: Vec<_> = (0..FIBERS).map(|value| spawn(move || value)).collect();
        fibers.into_iter().for_each(|fiber| drop(black_box(fiber.join().map(Box::new))));
    }
    report("spawn and join, 10,000 at a time", 50 * FIBERS, started.elapsed());
}

fn timers() {
    const ROUNDS: usize = 500_000;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        let _ = black_box(timeout(Duration::from_secs(30), yield_now));
    }
    report("timeout that does not elapse, around a yield", ROUNDS, started.elapsed());
    let started = Instant::now();
    let sleepers: Vec<_> = (0..FIBERS).map(|_| spawn(|| sleep(Duration::from_millis(100)))).collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    println!("{:<58} {:>8.1} ms", "10,000 sleeps of 100 ms at once", started.elapsed().as_secs_f64() * 1e3);
}

/// A byte goes back and forth over a socket pair. Each end waits for the other in one of three ways.
fn socket_waits() {
    const ROUNDS: usize = 100_000;
    let (one, two) = net::UnixStream::pair().unwrap();
    report("byte over a socket pair, net::UnixStream", 2 * ROUNDS, bounce(one, two, ROUNDS));

    let (one, two) = std_pair();
    let took = bounce(Foreign(one), Foreign(two), ROUNDS);
    report("the same, wait_readable, registered for each wait", 2 * ROUNDS, took);
}

fn watched_waits() {
    const ROUNDS: usize = 100_000;
    let runtime = Runtime::new().unwrap();
    let (one, two) = std_pair();
    runtime.watch(&one, Interest::Readable, 1).unwrap();
    runtime.watch(&two, Interest::Readable, 2).unwrap();
    let took = runtime.block_on(move || bounce(Foreign(one), Foreign(two), ROUNDS)).unwrap();
    report("the same, wait_readable, watched", 2 * ROUNDS, took);
}

fn std_pair() -> (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream) {
    let pair = std::os::unix::net::UnixStream::pair().unwrap();
    pair.0.set_nonblocking(true).unwrap();
    pair.1.set_nonblocking(true).unwrap();
    pair
}

/// A socket that another crate owns, as the sockets of an HTTP engine are.
struct Foreign(std::os::unix::net::UnixStream);

impl Read for Foreign {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_readable(self.0.as_fd(), None)?
                }
                result => return result,
            }
        }
    }
}

impl Write for Foreign {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn bounce<S: Read + Write + 'static>(mut one: S, mut two: S, rounds: usize) -> Duration {
    let started = Instant::now();
    let other = spawn(move || {
        let mut byte = [0];
        for _ in 0..rounds {
            two.read_exact(&mut byte).unwrap();
            two.write_all(&byte).unwrap();
        }
        two
    });
    for _ in 0..rounds {
        one.write_all(b"x").unwrap();
        one.read_exact(&mut [0]).unwrap();
    }
    other.join().unwrap();
    started.elapsed()
}

fn main() {
    for bench in [yields, ping_pong, ring, spawn_and_join, timers, socket_waits] {
        run(bench).unwrap();
    }
    watched_waits();
}
