//! How does a thread step onto a fiber's stack and back? One of the two files with `unsafe`.
//!
//! Invariant: `YIELDER` is null while the thread runs on its own stack, and otherwise points to the yielder of
//! the fiber that it runs, which lives at the base of that fiber's stack until the fiber has ended.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::overflow::{self, Guarded};
use crate::stack::GuardedStack;

thread_local! {
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A stack, and where on it a fiber stands.
pub(crate) struct Context {
    coroutine: Coroutine<(), (), (), DefaultStack>,
    guarded: Guarded,
}

impl Context {
    /// Prepares `body` to run on `stack`. A panic that leaves `body` ends there.
    pub(crate) fn new(stack: GuardedStack, body: impl FnOnce() + 'static) -> Self {
        let guarded = Guarded::new(stack.guard(), stack.usable_bytes());
        let coroutine = Coroutine::with_stack(stack.into_inner(), move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                // Only a destructor of a panic's own payload comes here; running it again could panic again.
                std::mem::forget(payload);
            }
        });
        Context { coroutine, guarded }
    }

    /// Runs the fiber until it suspends or ends; true if it has ended.
    ///
    /// # Panics
    ///
    /// When called from a fiber: fibers do not nest.
    pub(crate) fn resume(&mut self) -> bool {
        assert!(YIELDER.get().is_null(), "a fiber cannot run other fibers from its own stack");
        overflow::set_guarded(Some(self.guarded));
        let result = self.coroutine.resume(());
        overflow::set_guarded(None);
        YIELDER.set(ptr::null());
        matches!(result, CoroutineResult::Return(()))
    }

    /// The stack of a fiber that has ended.
    pub(crate) fn into_stack(self) -> GuardedStack {
        GuardedStack::from_inner(self.coroutine.into_stack())
    }
}

/// Leaves the running fiber's stack; returns once it is resumed.
///
/// # Panics
///
/// Outside a fiber.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a fiber can be suspended");
    // SAFETY: not null, so by the invariant above it is the yielder of the fiber that this thread runs now. It
    // stays valid during the call because it lives on the stack that the call suspends, and `Context` keeps
    // that stack until the fiber has ended.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

/// Runs `work` on the stack of the thread, which is large, and comes back to that of the fiber; outside a fiber it
/// just runs it. For what needs more stack than a fiber has: a decoder written in C, say.
///
/// ```
/// let sum = weftwork_fiber::run(|| {
///     weftwork_fiber::on_thread_stack(|| [1_u8; 256 << 10].iter().map(|&one| u64::from(one)).sum::<u64>())
/// })?;
/// assert_eq!(sum, 256 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// When `work` panics. What waits in it blocks the thread, as during unwinding: only a fiber's own stack can be left.
pub fn on_thread_stack<R>(work: impl FnOnce() -> R) -> R {
    /// What stays on its thread.
    struct Here<F>(F);
    // SAFETY: it changes its stack, and not its thread. corosensei asks for `Send` so that no reference to a yielder,
    // which is not `Sync`, comes along: only this module has those, and all are in `YIELDER`, which is null meanwhile.
    unsafe impl<F> Send for Here<F> {}
    impl<F: FnOnce() -> R, R> Here<F> {
        fn run(self) -> R {
            (self.0)()
        }
    }
    /// Puts the yielder back, also when `work` panics.
    struct Back(*const Yielder<(), ()>);
    impl Drop for Back {
        fn drop(&mut self) {
            YIELDER.set(self.0);
        }
    }
    let yielder = YIELDER.replace(ptr::null());
    let _back = Back(yielder);
    if yielder.is_null() {
        return work();
    }
    let work = Here(work);
    // SAFETY: not null, so by the invariant above it is the yielder of the fiber that this thread runs now, and
    // the thread's stack is where `resume` left it. Meanwhile `YIELDER` is null, so `work` cannot suspend the fiber
    // or resume another one over it.
    unsafe { (*yielder).on_parent_stack(move || work.run()) }
}

/// In a fiber: whether it runs on the stack of its thread.
pub(crate) fn is_lent() -> bool {
    YIELDER.get().is_null()
}
