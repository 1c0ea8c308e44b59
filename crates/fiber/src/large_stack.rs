//! Where does a fiber run work that needs more stack than it has?

use std::cell::Cell;
use std::io;

use corosensei::on_stack;

use crate::overflow::{self, Guarded, Owner};
use crate::stack::{GuardedStack, StackPool};

/// As much as std gives a thread.
const LARGE_STACK_BYTES: usize = 2 << 20;

thread_local! {
    /// The large stack of the last call, for the next.
    static CACHED: Cell<Option<GuardedStack>> = const { Cell::new(None) };
}

/// Runs `work` on a stack of 2 MiB, and comes back to that of the fiber; outside a fiber it just runs it. For what
/// needs more stack than a fiber has: a decoder written in C, say. Calls within `work` get a stack each.
///
/// What waits in it suspends the fiber, as elsewhere. The stack is its own meanwhile; a thread keeps one for all calls that
/// do not wait.
///
/// ```
/// let sum = weftwork_fiber::run(|| {
///     weftwork_fiber::on_large_stack(|| [1_u8; 256 << 10].iter().map(|&one| u64::from(one)).sum::<u64>())
/// })?;
/// assert_eq!(sum, 256 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// When `work` panics; and in a fiber, before `work` has begun, when the kernel has no memory for the stack.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    if !crate::in_fiber() {
        return call_outlined(work);
    }
    match LargeStack::take() {
        Ok(stack) => stack.run(work),
        Err(error) => panic!("there was no memory for a large stack: {error}"),
    }
}

/// Calls `work` with a frame of its own: inlined, its locals would lie in the frame of a caller that is to run it elsewhere.
#[inline(never)]
pub(crate) fn call_outlined<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// As [`on_large_stack`]; on the stack that the caller stands on where the kernel has no memory for another.
pub(crate) fn on_large_stack_if_possible<R>(work: impl FnOnce() -> R) -> R {
    if !crate::in_fiber() {
        return call_outlined(work);
    }
    match LargeStack::take() {
        Ok(stack) => stack.run(work),
        Err(_) => call_outlined(work),
    }
}

/// A stack while it is in use: that of one call, which may wait, and so may a coroutine of the user's own around it.
struct LargeStack {
    stack: Option<GuardedStack>,
    /// What the call came from.
    around: Option<Guarded>,
}

impl LargeStack {
    fn take() -> io::Result<LargeStack> {
        let stack = match CACHED.try_with(Cell::take).ok().flatten() {
            Some(cached) => cached,
            None => StackPool::new(LARGE_STACK_BYTES, 0).take()?,
        };
        let around = overflow::guarded();
        overflow::set_guarded(Some(Guarded::new(&stack, Owner::Call)));
        Ok(LargeStack { stack: Some(stack), around })
    }

    fn run<R>(mut self, work: impl FnOnce() -> R) -> R {
        match &mut self.stack {
            Some(stack) => on_stack(stack.inner(), work),
            None => unreachable!("it goes back when the call is over"),
        }
    }
}

impl Drop for LargeStack {
    fn drop(&mut self) {
        overflow::set_guarded(self.around);
        // A thread that ends keeps none.
        let _ = CACHED.try_with(|cached| cached.set(self.stack.take()));
    }
}
