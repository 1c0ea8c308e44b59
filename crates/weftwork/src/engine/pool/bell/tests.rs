//! What every bell promises: each kind of them includes these tests.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;
use crate::engine::testing::burst::PATIENCE;

const MOMENT: Duration = Duration::from_millis(50);

struct Site {
    bell: Bell,
    listener: TcpListener,
    /// Everybody is woken when it is closed.
    end: UnixStream,
    _stop: UnixStream,
}

fn site() -> Site {
    let (stop, end) = UnixStream::pair().unwrap();
    let bell = Bell::new(stop.as_fd()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    bell.hang_at(0, &listener).unwrap();
    Site { bell, listener, end, _stop: stop }
}

impl Site {
    fn knock(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_addr().unwrap()).unwrap()
    }
}

/// Waits until there is something, as a thread does that looks around in between.
fn wait_long(bell: &Bell) -> Option<usize> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let PollEvent::Listener(door) = bell.wait(PATIENCE) {
            return Some(door);
        }
    }
    None
}

#[track_caller]
fn nothing_is_heard(bell: &Bell) {
    let begun = Instant::now();
    assert!(matches!(bell.wait(MOMENT), PollEvent::Timeout));
    let took = begun.elapsed();
    // The kernel counts in ticks.
    assert!(took > MOMENT / 2, "{took:?}");
}

#[test]
fn a_listener_is_told_of_once_before_somebody_listens_again() {
    let site = site();
    nothing_is_heard(&site.bell);
    let _client = site.knock();
    assert_eq!(wait_long(&site.bell), Some(0));
    nothing_is_heard(&site.bell);
    nothing_is_heard(&site.bell);
    site.bell.listen_again(0, &site.listener);
    assert_eq!(wait_long(&site.bell), Some(0));
}

#[test]
fn of_two_listeners_the_other_one_is_heard() {
    let (first, second) = (site(), site());
    first.bell.hang_at(1, &second.listener).unwrap();
    let _clients = (first.knock(), second.knock());
    let mut told = [wait_long(&first.bell), wait_long(&first.bell)];
    told.sort();
    assert_eq!(told, [Some(0), Some(1)]);
    nothing_is_heard(&first.bell);
    first.bell.listen_again(1, &second.listener);
    assert_eq!(wait_long(&first.bell), Some(1));
}

#[test]
fn who_waits_already_hears_of_a_listener_that_may_be_told_again() {
    const TIMES: u32 = 40;
    let site = site();
    let _client = site.knock();
    let begun = Instant::now();
    for _ in 0..TIMES {
        assert_eq!(wait_long(&site.bell), Some(0));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| wait_long(&site.bell));
            // Nothing shows that it waits.
            std::thread::sleep(Duration::from_millis(2));
            site.bell.listen_again(0, &site.listener);
            assert_eq!(other.join().unwrap(), Some(0));
        });
        site.bell.listen_again(0, &site.listener);
    }
    assert!(begun.elapsed() < TIMES * MOMENT, "{:?}", begun.elapsed());
}

#[test]
fn a_ring_wakes_who_waits_and_the_stop_wakes_everybody() {
    const TIMES: u32 = 100;
    let site = site();
    let begun = Instant::now();
    for _ in 0..TIMES {
        site.bell.ring();
        assert!(!matches!(site.bell.wait(MOMENT), PollEvent::Listener(_)));
    }
    drop(site.end);
    for _ in 0..TIMES {
        assert!(!matches!(site.bell.wait(MOMENT), PollEvent::Listener(_)));
    }
    assert!(begun.elapsed() < TIMES * MOMENT / 2, "{:?}", begun.elapsed());
}

#[test]
fn nothing_is_heard_of_listeners_that_are_closed() {
    let site = site();
    let _client = site.knock();
    drop(site.listener);
    site.bell.take_down();
    nothing_is_heard(&site.bell);
}
