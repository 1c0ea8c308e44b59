//! Does the door go from thread to thread, and is each thread counted once?

use std::sync::mpsc;

use super::*;
use crate::engine::burst::{self, Burst};
use crate::engine::client::{ask_on, connect, is_next_answer};
use crate::transport::address::Address;

/// Who has accepted a few gives the door away and serves a connection. Those at the door are not counted.
#[test]
fn the_door_goes_from_thread_to_thread() {
    let size = 3 * STARTS_MAX;
    let (burst, site) = Burst::at_the_door(size);
    let room = Workers::new(1, site.cx, site.handler, vec![site.listener]).unwrap();
    let (leaves, has_left) = mpsc::channel();
    let worker = {
        let room = room.clone();
        std::thread::spawn(move || {
            let job = room.keep_door(0);
            leaves.send(matches!(job, Some(Job::Serve { worker: 0, .. }))).unwrap();
            job.into_iter().for_each(|job| room.work(&Berth::new(), job));
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
    room.threads.given_max.set(0).unwrap();
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
