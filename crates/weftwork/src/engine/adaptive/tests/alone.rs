//! What becomes of requests where the system gives a thread for the loop and no other?

use super::*;
use crate::engine::testing::client::while_asking_without_end;

/// Nobody would take it from the queue.
#[test]
fn where_the_system_gives_a_thread_for_the_loop_alone_its_leader_makes_the_calls() {
    for handler in [Blocking::Never, Blocking::Always, Blocking::Learn { route: 7 }] {
        let house = House::open(Says(handler), |shared| shared.threads.give_at_most(1));
        for _ in 0..3 {
            is_answered(house.ask("/"));
        }
        // Its loop may have waited there for it.
        eventually("nobody is in the queue", || house.shared.standby.stats().queued == 0);
        house.close();
    }
}

#[test]
fn a_client_that_asks_without_end_there_does_not_keep_the_loop_from_others() {
    let handler = |_: &mut Request<'_>| "hello";
    let house = House::open(handler, |shared| shared.threads.give_at_most(1));
    while_asking_without_end(&house.connect(), || {
        eventually("it is answered", || house.stats().requests > 1000);
        for _ in 0..3 {
            is_answered(house.ask("/"));
        }
    });
    house.close();
}

/// None would come for it.
#[test]
fn a_connection_that_is_taken_over_ends_there() {
    let handler = |_: &mut Request<'_>| Response::upgrade(HeaderValue::from_static("echo"), |_| Ok(()));
    let house = House::open(handler, |shared| shared.threads.give_at_most(1));
    let mut stream = house.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&answer));
    assert_eq!((house.shared.standby.stats().queued, house.stats().shed), (0, 1));
    house.close();
}

/// Does what blocks by itself and as the library wants it, whatever it says.
struct Says(Blocking);

impl Handler for Says {
    fn call(&self, _: &mut Request<'_>) -> Response {
        std::thread::sleep(Duration::from_millis(3));
        crate::sleep(Duration::from_millis(3));
        Response::text("hello")
    }

    fn blocking(&self, _: &RequestLine<'_>) -> Blocking {
        self.0
    }
}
