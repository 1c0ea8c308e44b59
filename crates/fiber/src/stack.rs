//! Stacks of fibers and a cache of unused ones.

use std::io;
use std::ops::Range;

use corosensei::stack::{DefaultStack, Stack};

/// The guarded stacks of one thread. The last one returned is used first, because it is still in the CPU cache.
#[derive(Debug)]
pub(crate) struct StackPool {
    free: Vec<GuardedStack>,
    stack_bytes: usize,
    kept_max: usize,
    may_map: fn(usize) -> bool,
}

/// A stack with a guard page below it.
pub(crate) struct GuardedStack(DefaultStack);

impl std::fmt::Debug for GuardedStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GuardedStack({:#x})", self.0.base())
    }
}

impl StackPool {
    pub(crate) fn new(stack_bytes: usize, kept_max: usize) -> Self {
        // No address space is that large. The kernel then returns an error, instead of an overflow here.
        let stack_bytes = stack_bytes.min(isize::MAX as usize);
        StackPool { free: Vec::new(), stack_bytes, kept_max, may_map: |_| true }
    }

    /// Asks this function before memory for a stack is requested.
    pub(crate) fn asking(self, may_map: fn(usize) -> bool) -> Self {
        StackPool { may_map, ..self }
    }

    /// Returns a used stack, or a new one.
    ///
    /// # Errors
    ///
    /// Fails if the kernel has no memory or no mappings (`vm.max_map_count`) left.
    pub(crate) fn take(&mut self) -> io::Result<GuardedStack> {
        match self.free.pop() {
            Some(stack) => Ok(stack),
            None if !(self.may_map)(self.stack_bytes) => Err(io::ErrorKind::OutOfMemory.into()),
            None => DefaultStack::new(self.stack_bytes).map(GuardedStack),
        }
    }

    /// Returns a stack to the pool. If the pool is full, the stack goes back to the kernel.
    pub(crate) fn put(&mut self, stack: GuardedStack) {
        if self.free.len() < self.kept_max {
            self.free.push(stack);
        }
    }
}

impl GuardedStack {
    /// Returns the address range of the guard page.
    pub(crate) fn guard(&self) -> Range<usize> {
        let low = self.0.limit().get();
        low..low + rustix::param::page_size()
    }

    /// Returns the number of bytes above the guard page.
    pub(crate) fn usable_bytes(&self) -> usize {
        self.0.base().get() - self.guard().end
    }

    pub(crate) fn inner(&mut self) -> &mut DefaultStack {
        &mut self.0
    }

    pub(crate) fn into_inner(self) -> DefaultStack {
        self.0
    }

    pub(crate) fn from_inner(stack: DefaultStack) -> Self {
        GuardedStack(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stack_given_back_is_the_next_taken() {
        let mut pool = StackPool::new(64 << 10, 2);
        let stacks: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let guards: Vec<_> = stacks.iter().map(GuardedStack::guard).collect();
        stacks.into_iter().for_each(|stack| pool.put(stack));
        assert_eq!(pool.free.len(), 2, "past the cap a stack is dropped");
        assert_eq!(pool.take().unwrap().guard(), guards[1]);
        assert_eq!(pool.take().unwrap().guard(), guards[0]);
    }

    #[test]
    fn a_stack_has_its_bytes_above_a_guard_page() {
        let stack = StackPool::new(100_000, 0).take().unwrap();
        assert_eq!(stack.guard().len(), rustix::param::page_size());
        assert!((100_000..100_000 + rustix::param::page_size()).contains(&stack.usable_bytes()));
    }
}
