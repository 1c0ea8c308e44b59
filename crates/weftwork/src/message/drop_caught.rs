//! Drops values of the user, whose destructors may panic.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;

use http::Extensions;

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

/// Calls code of the user. A panic becomes what `recover` makes of its payload, which is dropped without another panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T, recover: impl FnOnce(&(dyn Any + Send)) -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let recovered = recover(&*panic);
        drop_payload(panic);
        recovered
    })
}

/// Drops several values, because a second panic while the first one unwinds would end the process. The first panic goes on at
/// the end.
#[derive(Default)]
pub(crate) struct DropEach(Option<Box<dyn Any + Send>>);

impl DropEach {
    pub(crate) fn drop_value<T>(&mut self, value: T) {
        if let Err(panic) = drop_caught(value)
            && let Some(before) = self.0.replace(panic)
        {
            drop_payload(before);
        }
    }

    /// Drops all that `values` gives.
    pub(crate) fn drop_all<T>(&mut self, values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(|value| self.drop_value(value));
    }
}

impl Drop for DropEach {
    fn drop(&mut self) {
        let Some(panic) = self.0.take() else { return };
        if std::thread::panicking() {
            drop_payload(panic);
        } else {
            resume_unwind(panic);
        }
    }
}

/// A value whose destructor may panic, beside code that may panic.
pub(crate) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Guarded<T> {
        Guarded(Some(value))
    }

    /// Takes the value out. Later calls return None.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| unreachable!("the value is there until it is dropped"))
    }
}

impl<T> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap_or_else(|| unreachable!("the value is there until it is dropped"))
    }
}

impl<T> Drop for Guarded<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            DropEach::default().drop_value(value);
        }
    }
}

/// Values of the user in a request or response. Most have none, so the map is made for the first: the destructor of an empty
/// map takes 1 % of a small request.
#[derive(Debug, Default)]
pub(crate) struct GuardedExtensions(Option<Box<Extensions>>);

static NO_EXTENSIONS: LazyLock<Extensions> = LazyLock::new(Extensions::new);

impl GuardedExtensions {
    /// Takes the values out.
    pub(crate) fn take(&mut self) -> Extensions {
        self.0.take().map(|values| *values).unwrap_or_default()
    }

    /// Removes a value, without making a map.
    pub(crate) fn remove<T: Send + Sync + 'static>(&mut self) -> Option<T> {
        self.0.as_mut()?.remove()
    }
}

impl Deref for GuardedExtensions {
    type Target = Extensions;

    fn deref(&self) -> &Extensions {
        self.0.as_deref().unwrap_or_else(|| &NO_EXTENSIONS)
    }
}

impl DerefMut for GuardedExtensions {
    fn deref_mut(&mut self) -> &mut Extensions {
        self.0.get_or_insert_default()
    }
}

impl Drop for GuardedExtensions {
    #[inline]
    fn drop(&mut self) {
        if let Some(values) = self.0.take() {
            drop_extensions(values);
        }
    }
}

#[cold]
fn drop_extensions(values: Box<Extensions>) {
    DropEach::default().drop_value(values);
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

    #[test]
    fn of_several_panics_one_goes_on() {
        let dropped = catch_unwind(|| DropEach::default().drop_all([Mine, Mine, Mine]));
        assert!(dropped.is_err());
        drop_payload(dropped.unwrap_err());
        let beside = catch_unwind(|| {
            let _mine = Guarded::new(Mine);
            panic!("as asked");
        });
        assert!(beside.is_err());
    }
}
