//! Provides `blocking` and `sleep`, with which a handler announces a wait in every engine.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::message::thread_wakeup::ThreadWakeup;

/// A blocking operation that may run on another thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// How the engine of a thread runs blocking work. A thread without a hook just runs it.
pub(crate) trait BlockingHook {
    /// Runs `work`, here or elsewhere, and returns when it is done.
    fn blocking(&self, work: Work);
    /// Waits this long.
    fn sleep(&self, duration: Duration);
    /// Waits until a future wants to be polled.
    fn park(&self, wakeup: &ThreadWakeup) {
        wakeup.park();
    }
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn BlockingHook>>> = const { RefCell::new(None) };
}

/// Restores the previous hook when dropped, also if the thread unwinds.
#[must_use]
pub(crate) struct EnterGuard(Option<Rc<dyn BlockingHook>>);

/// Sets the hook of the thread. Engines do so once for each thread, not for each call.
pub(crate) fn enter(hook: Rc<dyn BlockingHook>) -> EnterGuard {
    EnterGuard(HOOK.with(|current| current.replace(Some(hook))))
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        let before = self.0.take();
        // When the thread ends there may be no hook to put back.
        let _ = HOOK.try_with(|current| current.replace(before));
    }
}

pub(super) fn hook() -> Option<Rc<dyn BlockingHook>> {
    HOOK.with(|current| current.borrow().clone())
}

/// Runs `f`, which blocks, for example on a file, a database or another server. The engine first makes sure that
/// other requests go on.
///
/// | engine | what happens |
/// |---|---|
/// | adaptive | the event loop is handed to another thread, then `f` runs here |
/// | fibers | the fiber is suspended, and `f` runs on another thread, of at most [`threads_max`](crate::Settings::threads_max) |
/// | reactor, workers, pool | `f` runs here; in the reactor its loop waits |
/// | outside of a handler | `f` runs here |
///
/// Values that `f` uses are moved into it, since `f` may run on another thread: clone an `Arc` for shared values, and
/// pass owned text for parts of the request.
///
/// A handler need not use this function: the adaptive engine notices a blocked handler after one to five
/// milliseconds. A panic in `f` is a panic of its caller. In fibers, if [`queue_max`](crate::Settings::queue_max)
/// calls wait for a thread already, the handler is unwound from here, and the request gets 503. If the system gives
/// no thread at all, `f` runs here, and the log says so.
///
/// ```
/// use weftwork::{Request, blocking};
///
/// fn report(_: &mut Request) -> std::io::Result<String> {
///     blocking(|| std::fs::read_to_string("report.txt"))
/// }
/// ```
pub fn blocking<T, F>(f: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(hook) = hook() else { return f() };
    let done = Arc::new(Mutex::new(None));
    let theirs = done.clone();
    hook.blocking(Box::new(move || {
        let value = f();
        *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }));
    let value = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    value.unwrap_or_else(|| unreachable!("a hook returns when the work is done, or passes its panic on"))
}

/// Sleeps for this long, as [`blocking`] waits. Use it in handlers instead of [`std::thread::sleep`].
pub fn sleep(duration: Duration) {
    match hook() {
        Some(hook) => hook.sleep(duration),
        None => std::thread::sleep(duration),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[derive(Default)]
    struct Counting(Cell<u32>);

    impl BlockingHook for Counting {
        fn blocking(&self, work: Work) {
            self.0.set(self.0.get() + 1);
            work();
        }
        fn sleep(&self, _: Duration) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn without_a_hook_it_just_runs() {
        assert_eq!(blocking(|| 7), 7);
        sleep(Duration::ZERO);
    }

    #[test]
    fn the_innermost_hook_is_called() {
        let (outer, inner) = (Rc::new(Counting::default()), Rc::new(Counting::default()));
        let _outer = enter(outer.clone());
        {
            let _inner = enter(inner.clone());
            assert_eq!(blocking(|| 7), 7);
        }
        sleep(Duration::from_secs(3600));
        assert_eq!((outer.0.get(), inner.0.get()), (1, 1));
    }

    #[test]
    fn a_panic_passes_and_restores_the_hook() {
        let outer = Rc::new(Counting::default());
        let _outer = enter(outer.clone());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _inner = enter(Rc::new(Counting::default()));
            blocking(|| panic!("as it should"))
        }));
        assert!(panicked.is_err());
        sleep(Duration::from_secs(3600));
        assert_eq!(outer.0.get(), 1);
    }
}
