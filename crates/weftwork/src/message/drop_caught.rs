//! Drops values of the user, whose destructors may panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value.
///
/// # Errors
/// Its destructor has panicked, with this payload. What else it held is dropped.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

/// Drops the payload of a panic, which is a value of the user too.
pub(crate) fn drop_payload(panic: Box<dyn Any + Send>) {
    // A payload whose destructor panics is leaked. It could do so again without end.
    drop_caught(panic).unwrap_or_else(std::mem::forget);
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct Mine;

    impl Drop for Mine {
        fn drop(&mut self) {
            panic_any(Mine);
        }
    }

    #[test]
    fn a_payload_that_panics_as_it_is_dropped_is_leaked() {
        drop_payload(drop_caught(Mine).unwrap_err());
        assert!(drop_caught("fine").is_ok());
    }
}
