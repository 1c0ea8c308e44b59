//! The scheduler of one thread: run queue, timers, and what ends a fiber's wait.
//!
//! Invariant: no `RefCell` here stays borrowed while a fiber or a destructor of a user's value runs.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::context::{self, Context};
use crate::overflow::{self, SignalStack};
use crate::poller::{Interest, Poller, Ready};
use crate::remote::{Message, Remote};
use crate::slab::{Key, Slab};
use crate::stack::StackPool;
use crate::task::{Body, Detached, Scope, Stage, Task, catch_panic};
use crate::timers::{TimerEntry, TimerKey, Timers};
use crate::wait::{Signal, block_thread};

/// Maximum number of fibers that run between two polls. A poll costs about as much as ten switches.
const RESUMES_A_POLL_MAX: usize = 256;

/// Maximum number of socket calls that succeed at once before the fiber yields. A peer that always has bytes
/// ready must not occupy a thread.
const CALLS_A_SLICE_MAX: u32 = 128;

thread_local! {
    static CURRENT: RefCell<Weak<Core>> = const { RefCell::new(Weak::new()) };
    /// Created before the first fiber runs, and thus dropped after the thread-locals of fibers.
    static SENTINEL: Sentinel = const { Sentinel };
}

struct Sentinel;

impl Drop for Sentinel {
    // Without a destructor, the value would never be gone.
    fn drop(&mut self) {}
}

/// The context of the caller, which determines how it can wait.
pub(crate) enum Location {
    /// In a fiber, which suspends.
    Fiber(Rc<Core>, Key),
    /// In a fiber that unwinds. std counts panics by thread, so another fiber must not run now.
    Unwinding,
    /// Outside a fiber. The thread waits.
    Thread,
}

/// State of one thread's runtime.
pub(crate) struct Core {
    tasks: RefCell<Slab<Task>>,
    queue: RefCell<VecDeque<Key>>,
    timers: RefCell<Timers>,
    pub(crate) poller: RefCell<Poller>,
    stacks: RefCell<StackPool>,
    remote: Remote,
    current: Cell<Option<Key>>,
    calls_left: Cell<u32>,
    closing: Cell<bool>,
    scope_id: Cell<u64>,
    _signal_stack: SignalStack,
}

/// Returns the runtime of this thread, if it has one.
pub(crate) fn current() -> Option<Rc<Core>> {
    CURRENT.try_with(|core| core.borrow().upgrade()).ok().flatten()
}

pub(crate) fn location() -> Location {
    let Some(core) = current() else { return Location::Thread };
    match core.current.get() {
        None => Location::Thread,
        Some(_) if std::thread::panicking() => Location::Unwinding,
        Some(fiber) => Location::Fiber(core, fiber),
    }
}

/// Runs `work` as if no fiber ran. Its waits block the thread, and nothing interrupts them. `work` must not
/// panic.
pub(crate) fn outside_fibers(work: impl FnOnce()) {
    let Some(core) = current() else { return work() };
    let fiber = core.current.take();
    work();
    core.current.set(fiber);
}

impl Core {
    pub(crate) fn new(config: &Config) -> io::Result<Rc<Core>> {
        if current().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this thread already has a fiber runtime",
            ));
        }
        let signal_stack = overflow::install()?;
        let (poller, waker) = Poller::new(config.events_max)?;
        let core = Rc::new(Core {
            tasks: RefCell::new(Slab::new()),
            queue: RefCell::default(),
            timers: RefCell::default(),
            poller: RefCell::new(poller),
            stacks: RefCell::new(
                StackPool::new(config.stack_bytes, config.stacks_kept_max).asking(config.may_map),
            ),
            remote: Remote::new(waker),
            current: Cell::new(None),
            calls_left: Cell::new(0),
            closing: Cell::new(false),
            scope_id: Cell::new(0),
            _signal_stack: signal_stack,
        });
        CURRENT.set(Rc::downgrade(&core));
        Ok(core)
    }

    pub(crate) fn remote(&self) -> Remote {
        self.remote.clone()
    }

    pub(crate) fn in_fiber(&self) -> bool {
        self.current.get().is_some()
    }

    pub(crate) fn fibers(&self) -> usize {
        self.tasks.borrow().len()
    }

    pub(crate) fn has_runnable(&self) -> bool {
        !self.queue.borrow().is_empty() || self.remote.is_notified()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.borrow().next_deadline()
    }

    /// Creates a fiber that will run in a later turn. Returns the body if the runtime is closing.
    pub(crate) fn spawn(&self, body: Box<dyn Body>) -> Result<Key, Box<dyn Body>> {
        if self.closing.get() {
            return Err(body);
        }
        let fiber = self.tasks.borrow_mut().insert(Task::new(body));
        self.queue.borrow_mut().push_back(fiber);
        Ok(fiber)
    }

    /// Adds a fiber to the run queue, unless it is queued or gone.
    pub(crate) fn wake(&self, fiber: Key) {
        if let Some(task) = self.tasks.borrow_mut().get_mut(fiber)
            && !task.queued
        {
            task.queued = true;
            self.queue.borrow_mut().push_back(fiber);
        }
    }

    /// Grants a fiber what it waits for and wakes it. Returns false if it is gone.
    pub(crate) fn grant(&self, fiber: Key) -> bool {
        let found = self.tasks.borrow_mut().get_mut(fiber).map(|task| task.granted = true).is_some();
        self.wake(fiber);
        found
    }

    /// Takes a grant, if there is one.
    pub(crate) fn take_grant(&self, fiber: Key) -> bool {
        self.tasks.borrow_mut().get_mut(fiber).is_some_and(|task| std::mem::take(&mut task.granted))
    }

    /// Suspends the running fiber until it is woken, perhaps for another reason than its own. Unwinds if the
    /// fiber was cancelled or a `timeout` around it has elapsed.
    pub(crate) fn park(&self, fiber: Key) {
        self.suspend(fiber);
        self.unwind_if_interrupted(fiber);
    }

    /// Suspends like [`park`](Core::park), but leaves an elapsed `timeout` to the caller. An event that came in
    /// time counts, even if the fiber runs later.
    pub(crate) fn suspend(&self, fiber: Key) {
        self.unwind_if_interrupted(fiber);
        context::suspend();
        if self.tasks.borrow().get(fiber).is_some_and(|task| task.cancelled) {
            self.unwind_if_interrupted(fiber);
        }
    }

    pub(crate) fn unwind_if_interrupted(&self, fiber: Key) {
        if let Some(payload) = self.interruption(fiber) {
            resume_unwind(payload);
        }
    }

    /// Unwinds unless the wait was over at `moment`, before the interruption. The fiber may run later than
    /// that.
    fn unwind_if_interrupted_by(&self, fiber: Key, moment: Option<Instant>) {
        let payload = self.tasks.borrow().get(fiber).and_then(|task| task.interruption(moment));
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }

    fn interruption(&self, fiber: Key) -> Option<Box<dyn Any + Send>> {
        self.tasks.borrow().get(fiber).and_then(|task| task.interruption(None))
    }

    /// Lets other fibers run.
    pub(crate) fn yield_now(&self, fiber: Key) {
        self.wake(fiber);
        self.park(fiber);
    }

    /// Counts one socket call of the running fiber. Yields after its last allowed call.
    pub(crate) fn count_call(&self, fiber: Key) {
        match self.calls_left.get() {
            0 => self.yield_now(fiber),
            left => self.calls_left.set(left - 1),
        }
    }

    pub(crate) fn sleep_until(&self, fiber: Key, at: Instant) {
        let timer = self.timers.borrow_mut().insert(at, TimerEntry { fiber, scope: None });
        let _waiting = TimerGuard { core: self, timer: Some(timer) };
        loop {
            self.suspend(fiber);
            if !self.timers.borrow().is_pending(timer) {
                return self.unwind_if_interrupted_by(fiber, Some(at));
            }
            self.unwind_if_interrupted(fiber);
        }
    }

    /// Suspends until `source` is ready.
    ///
    /// # Errors
    ///
    /// `TimedOut` at the deadline, `Interrupted` by the signal, or the error of the poller.
    pub(crate) fn wait_source(
        &self,
        fiber: Key,
        fd: BorrowedFd<'_>,
        source: Key,
        interest: Interest,
        deadline: Option<Instant>,
        signal: Option<&Signal>,
    ) -> io::Result<()> {
        self.poller.borrow_mut().add_waiter(source, interest, fiber)?;
        let _waiter = WaiterGuard { core: self, source, interest, fiber };
        let timer = deadline.map(|at| self.timers.borrow_mut().insert(at, TimerEntry { fiber, scope: None }));
        let _timer = TimerGuard { core: self, timer };
        loop {
            self.suspend(fiber);
            if !self.poller.borrow_mut().is_waiting(source, interest, fiber) {
                return Ok(());
            }
            // The sockets may not have been polled for longer than a `timeout` or the deadline. An event that
            // came in time counts.
            if self.interruption(fiber).is_some() && block_thread(fd, interest, Some(Instant::now())).is_ok()
            {
                return Ok(());
            }
            let is_over = timer.is_some_and(|timer| !self.timers.borrow().is_pending(timer));
            self.unwind_if_interrupted_by(fiber, deadline.filter(|_| is_over));
            if signal.is_some_and(Signal::is_set) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if is_over {
                return block_thread(fd, interest, deadline);
            }
        }
    }

    /// Starts a `timeout` of the running fiber. Returns its number.
    pub(crate) fn open_scope(&self, fiber: Key, at: Instant) -> u64 {
        let id = self.scope_id.get() + 1;
        self.scope_id.set(id);
        let timer = self.timers.borrow_mut().insert(at, TimerEntry { fiber, scope: Some(id) });
        if let Some(task) = self.tasks.borrow_mut().get_mut(fiber) {
            task.scopes.push(Scope { id, at, timer, elapsed: false });
        }
        id
    }

    pub(crate) fn close_scope(&self, fiber: Key, id: u64) {
        if let Some(task) = self.tasks.borrow_mut().get_mut(fiber)
            && let Some(at) = task.scopes.iter().rposition(|scope| scope.id == id)
        {
            self.timers.borrow_mut().remove(task.scopes.remove(at).timer);
        }
    }

    /// Cancels a fiber: at once if it has not started, otherwise by unwinding it when it is next suspended.
    pub(crate) fn cancel(&self, fiber: Key) {
        let unstarted = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(fiber) else { return };
            task.cancelled = true;
            if matches!(task.stage, Stage::Spawned(_)) { tasks.remove(fiber) } else { None }
        };
        match unstarted {
            Some(task) => drop(task),
            None => self.wake(fiber),
        }
    }

    /// Runs runnable fibers, polls for events, and runs the fibers that the events woke. Waits for events only
    /// if nothing ran.
    pub(crate) fn turn(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let ran = self.run_ready();
        // The caller may wait only for what just ran.
        let look = ran || self.has_runnable();
        let timeout = if look { Some(Duration::ZERO) } else { self.until_next_timer(timeout) };
        let mut woken = Vec::new();
        self.poller.borrow_mut().poll(timeout, &mut woken, ready)?;
        woken.into_iter().for_each(|fiber| self.wake(fiber));
        self.run_due();
        Ok(())
    }

    /// Runs runnable fibers after checking timers and messages of other threads. Returns false if nothing ran.
    pub(crate) fn run_due(&self) -> bool {
        self.read_messages();
        self.fire_timers();
        self.run_ready()
    }

    pub(crate) fn until_next_timer(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(next) = self.next_deadline() else { return timeout };
        let left = next.saturating_duration_since(Instant::now());
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }

    fn read_messages(&self) {
        for message in self.remote.take() {
            match message {
                Message::Wake(fiber) => self.wake(fiber),
                Message::Spawn(f) => drop(self.spawn(Box::new(Detached::new(f)))),
            }
        }
    }

    fn fire_timers(&self) {
        if self.next_deadline().is_none() {
            return;
        }
        let now = Instant::now();
        loop {
            let Some(entry) = self.timers.borrow_mut().pop(now) else { return };
            if let Some(id) = entry.scope
                && let Some(task) = self.tasks.borrow_mut().get_mut(entry.fiber)
            {
                task.scopes.iter_mut().filter(|scope| scope.id == id).for_each(|scope| scope.elapsed = true);
            }
            self.wake(entry.fiber);
        }
    }

    /// Returns false if nothing ran. Stops after a fiber that used its whole slice, because that took much
    /// longer than a poll.
    fn run_ready(&self) -> bool {
        let _ = SENTINEL.try_with(|_| {});
        for ran in 0..RESUMES_A_POLL_MAX {
            let Some(fiber) = self.queue.borrow_mut().pop_front() else { return ran > 0 };
            self.calls_left.set(CALLS_A_SLICE_MAX);
            self.run(fiber);
            if self.calls_left.get() == 0 {
                return true;
            }
        }
        true
    }

    fn run(&self, fiber: Key) {
        let Some(mut context) = self.check_out(fiber) else { return };
        self.current.set(Some(fiber));
        let ended = context.resume();
        self.current.set(None);
        if ended {
            self.stacks.borrow_mut().put(context.into_stack());
            self.tasks.borrow_mut().remove(fiber);
        } else if let Some(task) = self.tasks.borrow_mut().get_mut(fiber) {
            task.stage = Stage::Suspended(context);
        }
    }

    /// Takes the context of a fiber that runs next. `None` if the fiber is gone or cannot get a stack.
    fn check_out(&self, fiber: Key) -> Option<Context> {
        let stage = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.get_mut(fiber)?;
            task.queued = false;
            std::mem::replace(&mut task.stage, Stage::Running)
        };
        let body = match stage {
            Stage::Suspended(context) => return Some(context),
            Stage::Spawned(body) => body,
            Stage::Running => return None,
        };
        let stack = self.stacks.borrow_mut().take();
        match stack {
            Ok(stack) => Some(Context::new(stack, move || body.run())),
            Err(error) => {
                self.tasks.borrow_mut().remove(fiber);
                // The captured values are dropped there.
                catch_panic(|| body.refuse(error));
                None
            }
        }
    }

    /// Cancels and unwinds every fiber, and rejects new ones. If the thread is already dropping its
    /// thread-locals, the fibers are leaked, because they may have borrowed one that is gone.
    pub(crate) fn close(self: &Rc<Self>) {
        self.closing.set(true);
        if SENTINEL.try_with(|_| {}).is_err() {
            std::mem::forget(Rc::clone(self));
            return;
        }
        // A panic in one drop must not prevent the unwinding of other fibers.
        self.remote.close().into_iter().for_each(|message| catch_panic(|| drop(message)));
        while self.fibers() > 0 {
            let fibers = self.tasks.borrow().keys();
            fibers.into_iter().for_each(|fiber| catch_panic(|| self.cancel(fiber)));
            // Runs all cancelled fibers. Otherwise they would all be cancelled again.
            while self.run_ready() {}
        }
    }
}

struct TimerGuard<'a> {
    core: &'a Core,
    timer: Option<TimerKey>,
}

impl Drop for TimerGuard<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.core.timers.borrow_mut().remove(timer);
        }
    }
}

struct WaiterGuard<'a> {
    core: &'a Core,
    source: Key,
    interest: Interest,
    fiber: Key,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut poller = self.core.poller.borrow_mut();
        let has_taken = !poller.remove_waiter(self.source, self.interest, self.fiber);
        if has_taken && std::thread::panicking() {
            // The fiber is cancelled, and the watcher of the descriptor has not seen the event.
            poller.report_again(self.source);
        }
    }
}
