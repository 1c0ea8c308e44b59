//! Sleeping and timeouts.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::scheduler::{self, Core, Location};
use crate::slab::Key;
use crate::task::ElapsedUnwind;

/// The time of [`timeout`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the timeout has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Suspends the fiber for at least `duration`. Outside a fiber, and in a fiber that unwinds, the thread sleeps.
///
/// The poller counts in milliseconds and rounds up.
pub fn sleep(duration: Duration) {
    let Location::Fiber(core, fiber) = scheduler::location() else { return std::thread::sleep(duration) };
    core.sleep_until(fiber, deadline_after(duration));
}

/// Returns the end of `duration`. If the clock cannot represent it, a century is used.
fn deadline_after(duration: Duration) -> Instant {
    let now = Instant::now();
    let century = Duration::from_secs(100 * 365 * 24 * 3_600);
    now.checked_add(duration).unwrap_or_else(|| now + century)
}

/// Runs `f` in this fiber. After `duration`, unwinds it at its suspension point.
///
/// Destructors in `f` run. As with [`cancel`](crate::JoinHandle::cancel), code that catches the unwinding is
/// unwound again at its next wait, and a value that `f` returns anyway counts. If `f` never waits, it is never
/// interrupted. If an event comes in time and the thread notices it too late, it is not lost. Timeouts nest.
///
/// Do not suspend a coroutine of your own inside `f` and resume it elsewhere, because the fiber is interrupted,
/// not the coroutine. Values that `f` borrows may be left half-changed, as after a caught panic.
///
/// ```
/// use std::time::Duration;
/// use weftwork_fiber::{Elapsed, run, sleep, timeout};
///
/// let late = run(|| timeout(Duration::from_millis(5), || sleep(Duration::from_secs(60))))?;
/// assert_eq!(late, Err(Elapsed));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// [`Elapsed`] if `f` was interrupted.
///
/// # Panics
///
/// Panics if `f` panics. Also panics outside a fiber, because nothing could interrupt `f`. In a fiber that
/// unwinds, `f` runs without a limit.
pub fn timeout<T>(duration: Duration, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    let (core, fiber) = match scheduler::location() {
        Location::Fiber(core, fiber) => (core, fiber),
        Location::Unwinding => return Ok(f()),
        Location::Thread => {
            panic!("weftwork_fiber::timeout outside a fiber: nothing could interrupt the closure")
        }
    };
    let scope = Scope { id: core.open_scope(fiber, deadline_after(duration)), core, fiber };
    let result = catch_unwind(AssertUnwindSafe(f));
    let id = scope.id;
    drop(scope);
    result.or_else(|payload| match payload.downcast_ref::<ElapsedUnwind>() {
        Some(elapsed) if elapsed.0 == id => Err(Elapsed),
        _ => resume_unwind(payload),
    })
}

struct Scope {
    id: u64,
    core: Rc<Core>,
    fiber: Key,
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.core.close_scope(self.fiber, self.id);
    }
}
