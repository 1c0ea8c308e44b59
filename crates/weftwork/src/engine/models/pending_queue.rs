//! The waitlist: does everybody on it have a thread, once?

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::engine::pending_queue::PendingQueue;

/// What is rung wakes one thread, and is one event however often it was rung before that.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Two come to the list while two threads go to sleep, and are rung for by what may be one event: each has a thread.
#[test]
fn loom_pending_queue_is_not_slept_over() {
    /// As a thread waits in the set, which calls the next one where there is more.
    fn attend(list: &PendingQueue<u32>, bell: &Bell) -> u32 {
        loop {
            let look = || {
                list.first().or_else(|| {
                    bell.wait();
                    None
                })
            };
            if let (Some(item), _) = list.sleep(look) {
                if list.len() > 0 {
                    list.call(|| bell.ring());
                }
                return item;
            }
        }
    }
    loom::model(|| {
        let shared = Arc::new((PendingQueue::new(), Bell::default()));
        let threads = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || attend(&shared.0, &shared.1))
        });
        for item in [1, 2] {
            assert!(shared.0.put(item, 2).is_ok());
            shared.0.call(|| shared.1.ring());
        }
        let [first, second] = threads.map(|thread| thread.join().unwrap());
        assert_eq!(first + second, 3, "each has one");
    });
}

/// A thread finds nothing to wait for while somebody comes, and goes: whoever has rung for it is not left on the list.
#[test]
fn loom_pending_queue_is_not_left_by_who_was_called() {
    loom::model(|| {
        let list = Arc::new(PendingQueue::new());
        let thread = {
            let list = list.clone();
            thread::spawn(move || {
                let nobody = list.sleep(|| list.len() == 0).0;
                // Awake, it is called no more; it was, perhaps.
                nobody && list.len() == 0
            })
        };
        assert!(list.put((), 1).is_ok());
        let mut is_called = false;
        list.call(|| is_called = true);
        assert!(!(is_called && thread.join().unwrap()), "called, and gone");
    });
}

/// All are sent home while one comes and a thread takes the first: each is somewhere, once.
#[test]
fn loom_pending_queue_has_everybody_once() {
    loom::model(|| {
        let list = Arc::new(PendingQueue::new());
        assert!(list.put(1, 2).is_ok());
        let comes = {
            let list = list.clone();
            thread::spawn(move || list.put(2, 2).is_ok())
        };
        let taken = {
            let list = list.clone();
            thread::spawn(move || list.first())
        };
        let mut all: Vec<u32> = list.take_all().into();
        all.extend(taken.join().unwrap());
        assert!(comes.join().unwrap(), "there was room");
        all.extend(list.take_all());
        assert_eq!(list.len(), 0);
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
