//! Runs code on a larger stack than that of the fiber.

use std::cell::Cell;
use std::io;

use corosensei::on_stack;

use crate::overflow::{self, Guarded, Owner};
use crate::stack::{GuardedStack, StackPool};

/// The same size as the stack of a std thread.
const LARGE_STACK_BYTES: usize = 2 << 20;

thread_local! {
    /// The large stack of the last call, kept for the next.
    static CACHED: Cell<Option<GuardedStack>> = const { Cell::new(None) };
}

/// Runs `work` on a stack of 2 MiB. Outside a fiber, `work` runs directly. Use it for code that needs more
/// stack than a fiber has, for example a decoder written in C. A nested call gets its own stack.
///
/// A wait in `work` suspends the fiber as usual, and the stack stays in use meanwhile. Each thread keeps one
/// stack for calls that do not wait.
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
/// Panics if `work` panics. In a fiber, also panics before `work` starts if the kernel has no memory for the
/// stack.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    if !crate::in_fiber() {
        return call_outlined(work);
    }
    match LargeStack::take() {
        Ok(stack) => stack.run(work),
        Err(error) => panic!("no memory for a large stack: {error}"),
    }
}

/// Calls `work` with its own stack frame. If it were inlined, its locals would be in the frame of a caller that
/// runs it elsewhere.
#[inline(never)]
pub(crate) fn call_outlined<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Runs `work` like [`on_large_stack`], or on the current stack if the kernel has no memory for another.
pub(crate) fn on_large_stack_if_possible<R>(work: impl FnOnce() -> R) -> R {
    if !crate::in_fiber() {
        return call_outlined(work);
    }
    match LargeStack::take() {
        Ok(stack) => stack.run(work),
        Err(_) => call_outlined(work),
    }
}

/// A stack in use by one call. The call may wait, and so may a coroutine of the user around it.
struct LargeStack {
    stack: Option<GuardedStack>,
    /// The stack that the call came from.
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
        // A thread that ends keeps no stack.
        let _ = CACHED.try_with(|cached| cached.set(self.stack.take()));
    }
}
