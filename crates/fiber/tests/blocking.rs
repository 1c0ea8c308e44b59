//! Does the pool for blocking calls keep to its cap? In a process of its own, since the cap is the process's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weftwork_fiber::{blocking, run, set_blocking_threads_max, spawn};

#[test]
fn no_more_calls_run_at_once_than_threads_are_allowed_and_all_come_back() {
    set_blocking_threads_max(2);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    run(move || {
        for _ in 0..50 {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            spawn(move || {
                blocking(move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            });
        }
    })
    .unwrap();
    assert!((1..=2).contains(&seen.load(Ordering::SeqCst)), "{seen:?}");
}
