//! Tests of the engine `workers`: each connection has a thread, and no connection waits forever if the system refuses
//! threads.

use std::io::{Read, Write};
use std::net::SocketAddr;

use super::*;
use crate::engine::testing::burst::{self, Burst};
use crate::engine::testing::client::{
    ask_on, connect, is_answered_on, is_next_answer, while_asking_without_end,
};
use crate::message::{Feed, FeedLimits, Request, Response};
use crate::transport::address::Address;

/// Creates an engine of one acceptor with one thread. The system refuses more threads.
fn alone(handler: impl Handler) -> (Arc<Workers>, SocketAddr) {
    let (_burst, site) = Burst::pending(0);
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let engine = Workers::new(1, site.cx, Arc::new(handler), vec![site.listener]).unwrap().0;
    engine.threads.give_at_most(1);
    (engine, address)
}

fn is_over(engine: &Workers) {
    engine.cx.enter(Stage::Closing);
    engine.wake();
    assert_eq!(engine.join(burst::TIMEOUT), 0);
    assert_eq!(engine.threads(), 0);
}

#[test]
fn each_connection_of_a_burst_has_a_thread() {
    for acceptors in 1..=2 {
        let size = 24;
        let (burst, site) = Burst::pending(size);
        let engine = Workers::new(acceptors, site.cx, site.handler, vec![site.listener]).unwrap().0;
        engine.open(None).unwrap();
        burst.wait_until_all_run();
        // An extra thread may start for a job that another thread takes.
        assert!((size..size + size / 4).contains(&engine.threads()), "{}", engine.threads());
        burst.finish();
        is_over(&engine);
    }
}

/// An idle connection ends, and its thread serves a waiting connection.
#[test]
fn one_thread_serves_more_connections_than_there_are_threads() {
    let (engine, address) = alone(|_: &mut Request<'_>| "hello");
    engine.open(None).unwrap();
    let mut kept: Vec<_> = (0..3).map(|_| connect(address)).collect();
    kept.iter_mut().for_each(|stream| ask_on(stream, "/"));
    kept.iter_mut().for_each(|stream| is_next_answer(stream, "hello"));
    assert_eq!(engine.threads(), 1);
    is_over(&engine);
}

#[test]
fn connections_that_wait_are_served_while_the_server_drains() {
    let (engine, address) = alone(|_: &mut Request<'_>| "hello");
    let mut kept: Vec<_> = (0..3).map(|_| connect(address)).collect();
    kept.iter_mut().for_each(|stream| ask_on(stream, "/"));
    engine.open(None).unwrap();
    is_next_answer(&mut kept[0], "hello");
    burst::eventually("the others are accepted", || engine.cx.stats().connections == 3);
    engine.cx.enter(Stage::Draining);
    engine.wake();
    kept[1..].iter_mut().for_each(|stream| is_next_answer(stream, "hello"));
    burst::eventually("all of them are over", || engine.cx.stats().connections == 0);
    is_over(&engine);
}

/// Checks that a waiting connection gets a thread as soon as the system allows threads again, while another
/// connection holds the only thread. `more` is the text that the client of the first connection then sends.
#[track_caller]
fn does_not_keep_others_out(request: &str, more: &str) {
    let (sender, feed) = Feed::new(FeedLimits::default());
    let feed = std::sync::Mutex::new(Some(feed));
    let handler = move |req: &mut Request<'_>| match req.path() {
        "/fed" => feed.lock().unwrap().take().map_or(Response::text("it is taken"), Response::feed),
        "/streamed" => Response::stream(|out| {
            while out.pause(burst::TIMEOUT)? {}
            Ok(())
        }),
        "/upgrade" => Response::upgrade(http::HeaderValue::from_static("echo"), |mut upgraded| {
            upgraded.read_exact(&mut [0])?;
            Ok(())
        }),
        _ => Response::text("hello"),
    };
    let (engine, address) = alone(handler);
    engine.open(None).unwrap();
    let mut lasts = connect(address);
    lasts.write_all(request.as_bytes()).unwrap();
    burst::eventually("it is served", || engine.pool.stats().idle == 0);
    let mut other = connect(address);
    ask_on(&mut other, "/");
    burst::eventually("the other one waits", || engine.pool.has_queue());
    engine.threads.give_at_most(9);
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !more.is_empty()
                && !is_answered.load(Ordering::Relaxed)
                && lasts.write_all(more.as_bytes()).is_ok()
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        is_next_answer(&mut other, "hello");
        is_answered.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.cx.stats().shed, 0);
    drop((sender, lasts));
    is_over(&engine);
}

#[test]
fn a_feed_does_not_keep_others_out() {
    does_not_keep_others_out("GET /fed HTTP/1.1\r\nHost: a\r\n\r\n", "");
}

#[test]
fn a_stream_does_not_keep_others_out() {
    does_not_keep_others_out("GET /streamed HTTP/1.1\r\nHost: a\r\n\r\n", "");
}

#[test]
fn a_client_that_sends_slowly_does_not_keep_others_out() {
    does_not_keep_others_out("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", "x");
}

#[test]
fn an_upgraded_connection_does_not_keep_others_out() {
    let request = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    does_not_keep_others_out(request, "");
}

#[test]
fn a_client_that_asks_without_end_does_not_keep_others_out() {
    let (engine, address) = alone(|_: &mut Request<'_>| "hello");
    engine.open(None).unwrap();
    while_asking_without_end(&connect(address), || {
        burst::eventually("it is answered", || engine.cx.stats().requests > 1000);
        let mut other = connect(address);
        ask_on(&mut other, "/");
        burst::eventually("the other one waits", || engine.pool.has_queue());
        engine.threads.give_at_most(9);
        is_next_answer(&mut other, "hello");
    });
    is_over(&engine);
}

/// The requests have arrived already, arrive later, or arrive in parts.
#[test]
fn kept_connections_are_answered() {
    let (_burst, site) = Burst::pending(0);
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let handler = Arc::new(|req: &mut Request<'_>| req.path().to_owned());
    let engine = Workers::new(1, site.cx, handler, vec![site.listener]).unwrap().0;
    engine.open(None).unwrap();
    let mut kept: Vec<_> = (0..8).map(|_| connect(address)).collect();
    for round in 0..100 {
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
    is_over(&engine);
}
