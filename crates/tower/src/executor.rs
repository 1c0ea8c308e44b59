//! Polls futures that no connection polls: bodies of responses, and requests whose client has left.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls `task` on the thread of this crate, which is started with the first one and lives as long as the process.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        let queue = Arc::new(Queue::default());
        let polled = queue.clone();
        let thread = std::thread::Builder::new().name("weft-tower".to_owned());
        // Without a thread, tasks are dropped, which cuts their responses.
        queue.lock().is_closed = thread.spawn(move || polled.run()).is_err();
        queue
    });
    let task: Task = Box::pin(task);
    let job = Arc::new(Job {
        task: Mutex::new(Some(task)),
        is_queued: AtomicBool::new(false),
        queue: queue.clone(),
    });
    job.wake();
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    woken: VecDeque<Arc<Job>>,
    is_closed: bool,
}

/// A task and its waker.
struct Job {
    /// None after its end.
    task: Mutex<Option<Task>>,
    is_queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                match state.woken.pop_front() {
                    Some(job) => break job,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            // A panic is reported by the panic hook, and costs its own response.
            let _ = catch_unwind(AssertUnwindSafe(|| job.poll()));
        }
    }
}

impl Job {
    fn poll(self: &Arc<Job>) {
        // A wake-up during the poll asks for another one.
        self.is_queued.store(false, Ordering::SeqCst);
        let mut place = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that panics is dropped.
        let Some(mut task) = place.take() else { return };
        let waker = Waker::from(self.clone());
        if task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
            *place = Some(task);
        }
    }
}

impl Wake for Job {
    fn wake(self: Arc<Self>) {
        if self.is_queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let queue = self.queue.clone();
        let mut state = queue.lock();
        // Dropped without the lock, as a task is a value of the user.
        let unwanted = if state.is_closed {
            Some(self)
        } else {
            state.woken.push_back(self);
            None
        };
        drop(state);
        queue.changed.notify_one();
        drop(unwanted);
    }
}
