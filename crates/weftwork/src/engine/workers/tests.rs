//! Does the door go from thread to thread, and is each thread counted once?

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;

use super::*;
use crate::engine::testing::burst::{self, Burst};
use crate::engine::testing::client::{
    ask_on, connect, is_answered_on, is_next_answer, panics_when_sent, while_asking_without_end,
};
use crate::message::{Feed, FeedLimits, Request, Response};
use crate::transport::address::Address;

/// Who has accepted a few gives the door away and serves a connection. Those at the door are not counted.
#[test]
fn the_door_goes_from_thread_to_thread() {
    let size = 3 * SPAWNS_PER_TURN;
    let (burst, site) = Burst::at_the_door(size);
    let room = Workers::new(1, site.cx, site.handler, vec![site.listener]).unwrap();
    let (leaves, has_left) = mpsc::channel();
    let worker = {
        let room = room.clone();
        std::thread::spawn(move || {
            let job = room.keep_door(0);
            leaves.send(matches!(job, Some(Job::Serve { worker: 0, .. }))).unwrap();
            job.into_iter().for_each(|job| room.work(&Parker::new(), job));
        })
    };
    assert_eq!(has_left.recv_timeout(burst::PATIENCE), Ok(true));
    burst.wait_until_all_are_in();
    assert_eq!(room.threads(), size);
    burst::eventually("nobody is held back", || room.gate.is_open());
    burst.goes_on_and_is_answered();
    room.cx.enter(Stage::Closing);
    room.wake();
    assert_eq!(room.join(burst::PATIENCE), 0);
    worker.join().unwrap();
    assert_eq!(room.threads(), 0);
}

/// Nobody else would take a connection from the queue: who is at the door does, and then comes back to it.
#[test]
fn where_the_system_gives_threads_for_the_doors_alone_those_serve() {
    let (_burst, site) = Burst::at_the_door(0);
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let room = Workers::new(2, site.cx, site.handler, vec![site.listener]).unwrap();
    room.threads.give_at_most(0);
    (0..2).for_each(|worker| room.start_worker(worker).unwrap());
    // More than there are threads: the first of them are idle before the last is served.
    let mut kept: Vec<_> = (0..3).map(|_| connect(address)).collect();
    kept.iter_mut().for_each(|stream| ask_on(stream, "/"));
    kept.iter_mut().for_each(|stream| is_next_answer(stream, "together"));
    drop(kept);
    burst::eventually("both are at their doors", || room.threads() == 0);
    let mut another = connect(address);
    ask_on(&mut another, "/");
    is_next_answer(&mut another, "together");
    drop(another);
    room.cx.enter(Stage::Draining);
    room.wake();
    room.cx.enter(Stage::Closing);
    room.wake();
    assert_eq!(room.join(burst::PATIENCE), 0);
    assert_eq!(room.threads(), 0);
}

/// So many workers, in a system that gives no other thread, whose doors nobody is at yet.
fn alone(workers: usize, handler: impl Handler) -> (Arc<Workers>, SocketAddr) {
    let (_burst, site) = Burst::at_the_door(0);
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let room = Workers::new(workers, site.cx, Arc::new(handler), vec![site.listener]).unwrap();
    room.threads.give_at_most(0);
    (room, address)
}

fn is_over(room: &Workers) {
    room.cx.enter(Stage::Closing);
    room.wake();
    assert_eq!(room.join(burst::PATIENCE), 0);
    assert_eq!(room.threads(), 0);
}

#[test]
fn who_waits_there_is_served_while_the_server_drains() {
    let (room, address) = alone(1, |_: &mut Request<'_>| "hello");
    let mut kept: Vec<_> = (0..3).map(|_| connect(address)).collect();
    kept.iter_mut().for_each(|stream| ask_on(stream, "/"));
    room.start_worker(0).unwrap();
    is_next_answer(&mut kept[0], "hello");
    burst::eventually("the others are taken in", || room.cx.stats().connections == 3);
    room.cx.enter(Stage::Draining);
    room.wake();
    kept[1..].iter_mut().for_each(|stream| is_next_answer(stream, "hello"));
    burst::eventually("all of them are over", || room.cx.stats().connections == 0);
    is_over(&room);
}

#[test]
fn a_panic_there_costs_one_connection_and_no_door() {
    let handler = |req: &mut Request<'_>| match req.path() {
        "/panics" => panics_when_sent(),
        _ => Response::text("hello"),
    };
    let (room, address) = alone(1, handler);
    room.start_worker(0).unwrap();
    for _ in 0..3 {
        let mut stream = connect(address);
        ask_on(&mut stream, "/panics");
        // Its end, in whatever way.
        let _ = stream.read_to_end(&mut Vec::new());
        let mut other = connect(address);
        ask_on(&mut other, "/");
        is_next_answer(&mut other, "hello");
    }
    is_over(&room);
}

#[test]
fn whoever_is_at_a_door_there_serves() {
    let (enters, has_entered) = mpsc::channel();
    let (leave, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let handler = move |req: &mut Request<'_>| {
        if req.path() == "/hold" {
            enters.send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
        }
        "hello"
    };
    let (room, address) = alone(2, handler);
    (0..2).for_each(|worker| room.start_worker(worker).unwrap());
    let mut held = connect(address);
    ask_on(&mut held, "/hold");
    has_entered.recv_timeout(burst::PATIENCE).unwrap();
    // The kernel spreads them over both doors.
    let others: Vec<_> = (0..32)
        .map(|_| {
            let mut stream = connect(address);
            ask_on(&mut stream, "/");
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    burst::eventually("one of them is answered", || others.iter().any(|one| one.peek(&mut [0]).is_ok()));
    drop(leave);
    is_next_answer(&mut held, "hello");
    is_over(&room);
}

/// Others are to be had by then, and nobody else would look. `more`: what the client goes on to send.
#[track_caller]
fn does_not_keep_the_door_for_good(request: &str, more: &str) {
    let (sender, feed) = Feed::new(FeedLimits::default());
    let feed = std::sync::Mutex::new(Some(feed));
    let handler = move |req: &mut Request<'_>| match req.path() {
        "/fed" => feed.lock().unwrap().take().map_or(Response::text("it is taken"), Response::feed),
        "/streamed" => Response::stream(|out| {
            while out.pause(burst::PATIENCE)? {}
            Ok(())
        }),
        _ => Response::text("hello"),
    };
    let (room, address) = alone(1, handler);
    let mut lasts = connect(address);
    lasts.write_all(request.as_bytes()).unwrap();
    room.start_worker(0).unwrap();
    burst::eventually("it is served", || room.threads() == 1);
    room.threads.give_at_most(9);
    let is_over_now = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !more.is_empty()
                && !is_over_now.load(Ordering::Relaxed)
                && lasts.write_all(more.as_bytes()).is_ok()
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut other = connect(address);
        ask_on(&mut other, "/");
        is_next_answer(&mut other, "hello");
        is_over_now.store(true, Ordering::Relaxed);
    });
    drop(sender);
    is_over(&room);
}

#[test]
fn who_is_fed_there_does_not_keep_the_door_for_good() {
    does_not_keep_the_door_for_good("GET /fed HTTP/1.1\r\nHost: a\r\n\r\n", "");
}

#[test]
fn a_handler_that_goes_on_there_does_not_keep_the_door_for_good() {
    does_not_keep_the_door_for_good("GET /streamed HTTP/1.1\r\nHost: a\r\n\r\n", "");
}

#[test]
fn who_sends_all_the_time_there_does_not_keep_the_door_for_good() {
    does_not_keep_the_door_for_good("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", "x");
}

/// Nobody would be at the door for as long as it likes.
#[test]
fn a_connection_that_is_taken_over_ends_there() {
    let handler = |req: &mut Request<'_>| match req.path() {
        "/upgrade" => {
            Response::upgrade(http::HeaderValue::from_static("echo"), |_| panic!("nobody is there for it"))
        }
        _ => Response::text("hello"),
    };
    let (room, address) = alone(1, handler);
    room.start_worker(0).unwrap();
    let mut stream = connect(address);
    stream
        .write_all(b"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&answer));
    assert_eq!(room.cx.stats().shed, 1);
    let mut other = connect(address);
    ask_on(&mut other, "/");
    is_next_answer(&mut other, "hello");
    is_over(&room);
}

#[test]
fn a_client_that_asks_without_end_there_does_not_keep_the_door_from_others() {
    let (room, address) = alone(1, |_: &mut Request<'_>| "hello");
    room.start_worker(0).unwrap();
    while_asking_without_end(&connect(address), || {
        burst::eventually("it is answered", || room.cx.stats().requests > 1000);
        let mut other = connect(address);
        ask_on(&mut other, "/");
        is_next_answer(&mut other, "hello");
    });
    is_over(&room);
}

/// Requests that are there when a thread has yielded, that are not, and that come in parts.
#[test]
fn threads_that_yield_answer_as_others_do() {
    let (_burst, site) = Burst::at_the_door(0);
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let handler = Arc::new(|req: &mut Request<'_>| req.path().to_owned());
    let room = Workers::new(1, site.cx, handler, vec![site.listener]).unwrap();
    room.crowd.come();
    room.start_worker(0).unwrap();
    let mut kept: Vec<_> = (0..8).map(|_| connect(address)).collect();
    for round in 0..500 {
        let path = format!("/{round}");
        kept.iter_mut().for_each(|stream| ask_on(stream, &path));
        kept.iter_mut().for_each(|stream| is_next_answer(stream, &path));
    }
    let stream = &mut kept[0];
    stream.write_all(b"GET /parts HTTP/1.1\r\nHo").unwrap();
    is_answered_on(&mut connect(address), "/another");
    stream.write_all(b"st: a\r\n\r\n").unwrap();
    is_next_answer(stream, "/parts");
    is_answered_on(stream, "/next");
    assert!(
        room.crowd.samples() > 0,
        "each of them looks whether it is to yield, and some say how that went"
    );
    is_over(&room);
}
