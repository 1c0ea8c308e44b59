//! Tests that a log which panics, and panics again in the line about that, costs no listener, no loop and not
//! the process.

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::time::Duration;

use support::{Client, EngineCase, Site, eventually, panic_at, traps};
use weftwork::Settings;

fn start(engine: &str, change: impl FnOnce(Settings) -> Settings) -> Site {
    EngineCase { engine: engine.parse().expect("an engine"), lacks: &[] }.start_with(change)
}

/// One test, because the panicking lines belong to the whole process.
#[test]
fn a_panicking_logger_ends_only_the_connection_of_the_line() {
    panic_at_the_connection_limit();
    panic_on_the_last_thread();
    panic_while_the_leader_refuses();
}

fn panic_at_the_connection_limit() {
    panic_at("accepted_max is 5");
    panic_at("this is a bug of weftwork");
    let site = start("workers:1", |settings| settings.accepted_max(5));
    let mut served: Vec<Client> = (0..5).map(|_| site.client()).collect();
    served.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    site.client().ends();
    drop(served);
    eventually("all have left", || site.running.stats().connections == 0);
    // A thread that has served a connection also accepts. Not all engines here have such a thread.
    let mut clients: Vec<Client> = (0..5).map(|_| site.client()).collect();
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
}

/// Starts with one thread left, the leader's. One client requests a route that is known to be quick, and the
/// call of another holds the other thread.
fn start_with_one_thread_left(change: impl FnOnce(Settings) -> Settings) -> (Site, Client, Client) {
    let site = start("adaptive:1", |settings| change(settings.standby_kept(1).threads_max(2)));
    // A route that is known to be quick needs no second thread.
    let mut quick = site.client();
    (0..100).for_each(|_| quick.get("/").is(200, "hello"));
    let mut held = site.client();
    held.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    (site, quick, held)
}

/// As the thread unwinds, it has a loop to hand over and no thread to take it.
fn panic_on_the_last_thread() {
    let (site, _quick, mut held) = start_with_one_thread_left(|settings| settings);
    panic_at("all threads are busy (threads_max is 2,");
    // That line comes once a second, and it may have come when the handler of the other client blocked.
    eventually("every line came that was to panic", || {
        let mut victim = site.client();
        panic_at(&victim.name());
        victim.send("bad\r\n\r\n");
        assert!(victim.rest().is_empty(), "it was refused without a line in the log");
        // Lines about clients are limited, too.
        std::thread::sleep(Duration::from_millis(200));
        traps() == 0
    });
    site.inside.gate.open();
    held.answer().is(200, "passed");
    site.client().get("/").is(200, "hello");
}

/// The leader refuses a request that has neither a thread nor space in the queue.
fn panic_while_the_leader_refuses() {
    let (site, mut quick, mut held) = start_with_one_thread_left(|settings| settings.queue_max(0));
    let mut victim = site.client();
    panic_at(&victim.name());
    victim.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    victim.rest();
    eventually("the line came that was to panic", || traps() == 0);
    quick.get("/").is(200, "hello");
    site.client().get("/").is(200, "hello");
    site.inside.gate.open();
    held.answer().is(200, "passed");
}
