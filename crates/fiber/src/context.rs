//! Switches between the stack of a thread and the stacks of fibers. One of the two files with `unsafe`.
//!
//! Invariant: `YIELDER` is null while the thread runs on its own stack. Otherwise it points to the yielder of
//! the running fiber, which lives at the base of that fiber's stack until the fiber has ended.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::overflow::{self, Guarded, Owner};
use crate::stack::GuardedStack;

thread_local! {
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A stack with a suspended fiber.
pub(crate) struct Context {
    coroutine: Coroutine<(), (), (), DefaultStack>,
}

impl Context {
    /// Prepares `body` to run on `stack`. A panic that leaves `body` ends there.
    pub(crate) fn new(stack: GuardedStack, body: impl FnOnce() + 'static) -> Self {
        let guarded = Guarded::new(&stack, Owner::Fiber);
        let coroutine = Coroutine::with_stack(stack.into_inner(), move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            overflow::set_guarded(Some(guarded));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                // Only a destructor of a panic's payload gets here. Running it again could panic again.
                std::mem::forget(payload);
            }
        });
        Context { coroutine }
    }

    /// Runs the fiber until it suspends or ends. Returns true if it has ended.
    ///
    /// # Panics
    ///
    /// Panics if called from a fiber, because fibers do not nest.
    pub(crate) fn resume(&mut self) -> bool {
        assert!(YIELDER.get().is_null(), "a fiber cannot run other fibers from its own stack");
        let result = self.coroutine.resume(());
        overflow::set_guarded(None);
        YIELDER.set(ptr::null());
        matches!(result, CoroutineResult::Return(()))
    }

    /// Returns the stack of a fiber that has ended.
    pub(crate) fn into_stack(self) -> GuardedStack {
        GuardedStack::from_inner(self.coroutine.into_stack())
    }
}

/// Leaves the current stack of the running fiber: its own, or one for a single call. Returns when the fiber is
/// resumed.
///
/// # Panics
///
/// Panics outside a fiber.
pub(crate) fn suspend() {
    let (yielder, guarded) = (YIELDER.get(), overflow::guarded());
    assert!(!yielder.is_null(), "only a fiber can be suspended");
    // SAFETY: not null, so by the invariant above it is the yielder of the fiber that this thread runs now. It
    // stays valid during the call because it lives at the base of the fiber's own stack, which `Context` keeps
    // until the fiber has ended.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
    overflow::set_guarded(guarded);
}
