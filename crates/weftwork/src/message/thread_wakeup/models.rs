//! Models of a thread that waits for a future, and of its wakers: no wake-up is lost.

use super::*;

/// loom has no `OnceLock`. In its models, a flag says whether the value is there.
pub(super) struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(super) fn new() -> OnceLock<T> {
        OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub(super) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(super) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}

/// Parking. That of loom also ends other waits of the thread.
pub(super) mod thread {
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};

    #[derive(Clone, Default)]
    pub(in super::super) struct Thread(Arc<(Mutex<bool>, Condvar)>);

    loom::thread_local! {
        static THREAD: Thread = Thread::default();
    }

    impl Thread {
        pub(in super::super) fn unpark(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_one();
        }
    }

    pub(in super::super) fn current() -> Thread {
        THREAD.with(Thread::clone)
    }

    pub(in super::super) fn park() {
        let Thread(token) = current();
        let mut is_unparked = token.0.lock().unwrap();
        while !std::mem::take(&mut *is_unparked) {
            is_unparked = token.1.wait(is_unparked).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::task::Waker;

    use loom::thread::{JoinHandle, spawn};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// A future of this thread that another thread completes. A third thread wakes it without a reason.
    struct Waiting {
        wakeup: Arc<ThreadWakeup>,
        /// Nothing but the wake-up makes the change visible.
        is_complete: Arc<AtomicBool>,
        wakers: [JoinHandle<()>; 2],
    }

    impl Waiting {
        fn begin() -> Waiting {
            let wakeup = Arc::new(ThreadWakeup::new(None));
            let is_complete = Arc::new(AtomicBool::new(false));
            let wakers = [false, true].map(|completes| {
                let (waker, is_complete) = (Waker::from(wakeup.clone()), is_complete.clone());
                spawn(move || {
                    if completes {
                        is_complete.store(true, Ordering::Relaxed);
                    }
                    waker.wake();
                })
            });
            Waiting { wakeup, is_complete, wakers }
        }

        fn poll_is_pending(&self) -> bool {
            !self.is_complete.load(Ordering::Relaxed)
        }

        fn end(self) {
            self.wakers.into_iter().for_each(|waker| waker.join().unwrap());
        }
    }

    fn is_readable(pipe: &WakePipe) -> bool {
        let fd = pipe.as_fd();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    /// The thread parks while the future is completed. loom reports a deadlock if the thread parks for ever.
    #[test]
    fn loom_wait_loses_no_wake_up() {
        loom::model(|| {
            let waiting = Waiting::begin();
            while waiting.poll_is_pending() {
                waiting.wakeup.park();
                waiting.wakeup.clear();
            }
            waiting.end();
        });
    }

    /// The thread opens its pipe and waits for it while the future is completed.
    #[test]
    fn loom_wait_sees_its_pipe_readable() {
        loom::model(|| {
            let waiting = Waiting::begin();
            let (wakeup, is_complete) = (waiting.wakeup.clone(), waiting.is_complete.clone());
            let pipe = wakeup.pipe().unwrap();
            let sleeps = !wakeup.is_woken();
            waiting.end();
            assert!(!sleeps || is_readable(pipe));
            wakeup.clear();
            assert!(is_complete.load(Ordering::Relaxed));
        });
    }

    /// The byte of an earlier wake-up is there, or comes late, while the thread waits for the next one.
    #[test]
    fn loom_wait_is_not_misled_by_an_old_byte() {
        loom::model(|| {
            let waiting = Waiting::begin();
            let wakeup = waiting.wakeup.clone();
            let pipe = wakeup.pipe().unwrap();
            wakeup.park();
            wakeup.clear();
            if !waiting.poll_is_pending() {
                return waiting.end();
            }
            let mut sleeps = !wakeup.is_woken();
            if sleeps && is_readable(pipe) {
                pipe.clear();
                sleeps = !wakeup.is_woken();
            }
            waiting.end();
            assert!(!sleeps || is_readable(pipe));
        });
    }
}
