//! Tests that a server which is started and stopped many times leaves nothing behind. It runs alone in its
//! process, so that it can count every descriptor and every thread.
#![cfg(target_os = "linux")]

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::time::Duration;

use support::{Client, ENGINES, eventually};
use weftwork::{Engine, Request, Server};

const CYCLES: usize = 1000;
fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("Linux has /proc").count()
}

fn cycle(engine: Engine, number: usize) {
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine);
    let running = server.start(|_: &mut Request| "hello").unwrap();
    // Some stop with a connection, some without, and some before they have begun.
    let mut client = (!number.is_multiple_of(3)).then(|| Client::connect(&running));
    if number % 3 == 2 {
        client.as_mut().unwrap().get("/").is(200, "hello");
    }
    match number % 2 {
        0 => drop(running),
        // The server would wait a second for the first request of an unused connection.
        _ => assert_eq!(running.shutdown(Duration::from_millis(20)).stuck, 0),
    }
}

#[test]
fn a_thousand_cycles_leak_nothing() {
    for &engine in ENGINES {
        (0..6).for_each(|number| cycle(engine, number));
        // A joined thread stays visible for a moment, so there may be fewer afterwards.
        let (files, threads) = (entries("/proc/self/fd"), entries("/proc/self/task"));
        (0..CYCLES).for_each(|number| cycle(engine, number));
        eventually(
            &format!("{engine} leaves no more than {files} descriptors and {threads} threads"),
            || entries("/proc/self/fd") <= files && entries("/proc/self/task") <= threads,
        );
    }
}
