//! How does a fiber wait for time to pass, or give up after a while?

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::scheduler::{self, Core, Location};
use crate::slab::Key;
use crate::task::ElapsedUnwind;

/// The time given to [`timeout`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time given has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Suspends the fiber for at least `duration`. Outside a fiber, and in one that unwinds, the thread sleeps.
///
/// The poller counts in milliseconds and rounds up.
pub fn sleep(duration: Duration) {
    let Location::Fiber(core, fiber) = scheduler::location() else { return std::thread::sleep(duration) };
    core.sleep_until(fiber, deadline_after(duration));
}

/// A century stands for durations that the clock cannot count.
fn deadline_after(duration: Duration) -> Instant {
    let now = Instant::now();
    let century = Duration::from_secs(100 * 365 * 24 * 3_600);
    now.checked_add(duration).unwrap_or_else(|| now + century)
}

/// Runs `f` in this fiber, and unwinds it at its suspension point when `duration` has passed.
///
/// Destructors in `f` run. As with [`cancel`](crate::JoinHandle::cancel), code that catches the unwinding meets it
/// again at its next wait, and a value that `f` returns all the same stands. `f` that never waits is never
/// interrupted; what it waited for, if that came in time, is not lost where the thread looks at it too late. Timeouts nest.
/// A coroutine of your own may not be suspended inside `f` and go on elsewhere: it is the fiber that is interrupted. What `f`
/// borrows may be left half-changed, as after a caught panic.
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
/// [`Elapsed`], if `f` was interrupted.
///
/// # Panics
///
/// As `f` does; and outside a fiber, where nothing could interrupt `f`. In a fiber that unwinds nothing can either,
/// and `f` just runs.
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
