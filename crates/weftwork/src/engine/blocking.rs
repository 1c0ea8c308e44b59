//! `blocking` and `sleep`: a handler says that it is about to wait, by the same call in every engine.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Work that waits, on its way to where it may.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// What the room that a thread is in does about work that waits. A thread without one just does it.
pub(crate) trait BlockingHook {
    /// Runs `work`, here or elsewhere, and returns when it is done.
    fn blocking(&self, work: Work);
    /// Waits this long.
    fn sleep(&self, duration: Duration);
}

thread_local! {
    static HOOK: RefCell<Option<Rc<dyn BlockingHook>>> = const { RefCell::new(None) };
}

/// Puts the hook that was there before back, however the thread leaves this one.
#[must_use]
pub(crate) struct EnterGuard(Option<Rc<dyn BlockingHook>>);

/// From now on this is the hook of the thread. Engines enter once in a thread, not for each call.
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

fn hook() -> Option<Rc<dyn BlockingHook>> {
    HOOK.with(|current| current.borrow().clone())
}

/// Runs `f`, which waits: for a file, a database, another server. The engine makes room for that first.
///
/// | engine | what happens |
/// |---|---|
/// | adaptive | the event loop is handed to another thread, then `f` runs here |
/// | fibers | the fiber is suspended, and `f` runs on another thread, of at most [`threads_max`](crate::Settings::threads_max) |
/// | reactor, workers, pool | `f` runs here; in the reactor its loop waits |
/// | outside of a handler | `f` runs here |
///
/// What `f` takes along is moved into it, since it may run on another thread: a clone of an `Arc` for what is shared,
/// an owned text for a part of the request.
///
/// A handler need not say so: the adaptive engine finds out by itself, after one millisecond to five. A panic in `f` is a
/// panic of its caller. Where [`queue_max`](crate::Settings::queue_max) calls wait for a thread in fibers already, the
/// handler is unwound from here, and the request gets 503. Where the system gives them no thread at all, `f` runs here, and the
/// log says so.
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

/// Waits this long, as [`blocking`] waits; use it in handlers instead of [`std::thread::sleep`].
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
    fn without_a_ground_it_just_runs() {
        assert_eq!(blocking(|| 7), 7);
        sleep(Duration::ZERO);
    }

    #[test]
    fn the_innermost_ground_is_asked() {
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
    fn a_panic_passes_and_leaves_the_ground_as_it_was() {
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
