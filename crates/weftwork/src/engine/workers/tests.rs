//! Does the door go from thread to thread, and is each thread counted once?

use std::sync::mpsc;

use super::*;
use crate::engine::burst::{self, Burst};

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
