//! Who is at the door, and when there has to be one thread more.

use std::time::{Duration, Instant};

use crate::engine::sync::{Condvar, Guard, Mutex, lock};
use crate::engine::thread_pool::REFUSED_FOR;

/// The pool's counters. One lock for all of them, held for a few additions: they only mean something together.
pub(in crate::engine) struct Roster {
    count: Mutex<Count>,
    /// Tells the thread-maker that a thread is wanted, or that the server stops.
    wanted: Condvar,
    /// Tells one of the bench that it is needed at the door.
    called: Condvar,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Limits {
    /// Threads that stay at the door when there is nothing to do.
    pub(in crate::engine) standby: usize,
    /// Others sit on the bench.
    pub(in crate::engine) at_door_max: usize,
    pub(in crate::engine) threads_max: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Count {
    pub(in crate::engine) threads: usize,
    /// Threads that wait for a connection, those included that are on their way there for the first time.
    pub(in crate::engine) at_door: usize,
    /// The maker was asked for a thread, and has not made it yet.
    pub(in crate::engine) line: bool,
    /// Threads that wait until nobody is at the door.
    pub(in crate::engine) on_bench: usize,
    /// Those that may go to the door, and are counted there already.
    called: usize,
    /// Connections that threads have left the door with, ever.
    pub(in crate::engine) taken: u32,
    /// Nobody is called to an empty door: it would only wait in the kernel's queue.
    are_cores_full: bool,
    /// The system has refused the last thread that it was asked for, and until then is not taken to have another.
    refused_until: Option<Instant>,
    closed: bool,
}

impl Roster {
    pub(in crate::engine) fn new(limits: Limits) -> Roster {
        Roster { count: Mutex::new(Count::default()), wanted: Condvar::new(), called: Condvar::new(), limits }
    }

    /// The first threads need no asking: this many are to be started, and are counted already.
    pub(in crate::engine) fn open(&self) -> usize {
        let mut count = lock(&self.count);
        count.threads += self.limits.standby;
        count.at_door += self.limits.standby;
        self.limits.standby
    }

    /// A thread has a connection. If nobody is left at the door, the maker is asked for one thread.
    pub(in crate::engine) fn leave_door(&self) {
        let mut count = lock(&self.count);
        count.at_door -= 1;
        count.taken = count.taken.wrapping_add(1);
        if !count.are_cores_full {
            self.call_if_empty(count);
        }
    }

    /// A thread has done what its connection asked for. True: there are more than enough at the door.
    pub(in crate::engine) fn come_to_door(&self) -> bool {
        let mut count = lock(&self.count);
        count.at_door += 1;
        count.at_door > self.limits.at_door_max
    }

    /// A thread makes room at the door, and waits until it is called there. False: it was not for long, and is counted out.
    pub(in crate::engine) fn sit_down(&self, patience: Duration) -> bool {
        let mut count = lock(&self.count);
        if count.at_door <= self.limits.at_door_max || count.closed {
            return true;
        }
        count.at_door -= 1;
        count.on_bench += 1;
        count = self.wait_until_called(count, patience);
        if count.called > 0 {
            count.called -= 1;
            return true;
        }
        count.on_bench -= 1;
        if count.closed || count.at_door < self.limits.standby {
            count.at_door += 1;
            return true;
        }
        count.threads -= 1;
        false
    }

    /// Requests wait, and nobody comes: one goes to the door. False: there is none, and there may be no more.
    pub(in crate::engine) fn call(&self) -> bool {
        let count = lock(&self.count);
        let may_come = count.at_door + count.on_bench > 0 || count.threads < count.threads_max(&self.limits);
        self.call_if_empty(count);
        may_come
    }

    /// What the [`CpuPressure`](crate::engine::cpu_pressure::CpuPressure) has found. As soon as they are not, somebody comes to an empty door.
    pub(in crate::engine) fn set_cores_full(&self, are_cores_full: bool) {
        let mut count = lock(&self.count);
        if std::mem::replace(&mut count.are_cores_full, are_cores_full) && !are_cores_full {
            self.call_if_empty(count);
        }
    }

    pub(in crate::engine) fn are_cores_full(&self) -> bool {
        lock(&self.count).are_cores_full
    }

    /// A thread has waited for long: true if the others at the door are enough, and it is counted out.
    pub(in crate::engine) fn retire(&self) -> bool {
        let mut count = lock(&self.count);
        if count.at_door <= self.limits.standby {
            return false;
        }
        count.at_door -= 1;
        count.threads -= 1;
        true
    }

    /// A thread has ended out of turn, or could not be started.
    pub(in crate::engine) fn lose(&self, was_at_door: bool) {
        let mut count = lock(&self.count);
        count.threads -= 1;
        count.at_door -= usize::from(was_at_door);
        self.call_if_empty(count);
    }

    fn call_if_empty(&self, mut count: Guard<'_, Count>) {
        if count.at_door > 0 {
            return;
        }
        if self.call_from_bench(&mut count) {
            return;
        }
        if count.threads < self.limits.threads_max && !count.line && !count.closed {
            count.line = true;
            drop(count);
            self.wanted.notify_one();
        }
    }

    fn call_from_bench(&self, count: &mut Count) -> bool {
        let is_there = count.on_bench > 0;
        if is_there {
            count.on_bench -= 1;
            count.called += 1;
            count.at_door += 1;
            self.called.notify_one();
        }
        is_there
    }

    /// The maker waits until it is asked. True: it has to start one thread, which is counted already.
    pub(in crate::engine) fn wait_until_asked(&self) -> bool {
        let mut count = lock(&self.count);
        while !count.line && !count.closed {
            count = self.sleep(count);
        }
        count.line = false;
        if count.closed {
            return false;
        }
        count.threads += 1;
        count.at_door += 1;
        true
    }

    /// The maker, when it has made a thread: true if it has to start another, which is counted already. There
    /// has to be one for each of those that wait, and one for the door.
    pub(in crate::engine) fn one_more(&self, waiting: usize) -> bool {
        let mut count = lock(&self.count);
        while count.at_door <= waiting && self.call_from_bench(&mut count) {}
        let more = count.at_door <= waiting && count.threads < self.limits.threads_max && !count.closed;
        count.threads += usize::from(more);
        count.at_door += usize::from(more);
        more
    }

    /// After the system has refused a thread: not again at once. Returns early when the server stops.
    #[cfg(not(loom))]
    pub(in crate::engine) fn pause(&self, pause: Duration) {
        let count = lock(&self.count);
        let waited = self.wanted.wait_timeout_while(count, pause, |count| !count.closed);
        drop(waited);
    }

    #[cfg(loom)]
    pub(in crate::engine) fn pause(&self, _: Duration) {}

    /// Nobody is at the door: no time to keep a thread waiting for a client.
    pub(in crate::engine) fn is_pressed(&self) -> bool {
        let count = lock(&self.count);
        count.at_door + count.on_bench == 0
    }

    /// Threads that have no connection, or may still be made: so many find one without waiting for others.
    pub(in crate::engine) fn free(&self) -> usize {
        let count = lock(&self.count);
        count.threads_max(&self.limits) - (count.threads - count.at_door - count.on_bench)
    }

    /// The system has refused a thread, which is counted out already. How many there are, when it is news.
    pub(in crate::engine) fn note_refusal(&self) -> Option<usize> {
        let mut count = lock(&self.count);
        let is_news = !count.is_short();
        if is_news {
            count.refused_until = Some(Instant::now() + REFUSED_FOR);
        }
        is_news.then_some(count.threads)
    }

    /// The system has given a thread.
    pub(in crate::engine) fn note_start(&self) {
        lock(&self.count).refused_until = None;
    }

    /// The last one was refused: nobody is taken in for whom another would have to be made.
    pub(in crate::engine) fn was_refused(&self) -> bool {
        lock(&self.count).refused_until.is_some()
    }

    /// The server stops: no more threads are made.
    pub(in crate::engine) fn close(&self) {
        lock(&self.count).closed = true;
        self.wanted.notify_all();
        self.called.notify_all();
    }

    pub(in crate::engine) fn count(&self) -> Count {
        *lock(&self.count)
    }

    /// No thread waits without an end: the maker looks up once a minute.
    #[cfg(not(loom))]
    fn sleep<'a>(&'a self, count: Guard<'a, Count>) -> Guard<'a, Count> {
        let waited = self.wanted.wait_timeout(count, Duration::from_secs(60));
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// loom has no clock.
    #[cfg(loom)]
    fn sleep<'a>(&'a self, count: Guard<'a, Count>) -> Guard<'a, Count> {
        self.wanted.wait(count).unwrap()
    }

    #[cfg(not(loom))]
    fn wait_until_called<'a>(&'a self, count: Guard<'a, Count>, patience: Duration) -> Guard<'a, Count> {
        let goes_on = |count: &mut Count| count.called == 0 && !count.closed;
        let waited = self.called.wait_timeout_while(count, patience, goes_on);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// loom has no clock.
    #[cfg(loom)]
    fn wait_until_called<'a>(&'a self, mut count: Guard<'a, Count>, _: Duration) -> Guard<'a, Count> {
        while count.called == 0 && !count.closed {
            count = self.called.wait(count).unwrap();
        }
        count
    }
}

impl Count {
    fn is_short(&self) -> bool {
        self.refused_until.is_some_and(|until| Instant::now() < until)
    }

    /// What the settings allow, or what the system gives just now.
    fn threads_max(&self, limits: &Limits) -> usize {
        if self.is_short() { self.threads } else { limits.threads_max }
    }
}
