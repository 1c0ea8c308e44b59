//! The runtime of programs that have none.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::tokio::runtime::{Builder, Handle, Runtime};
use weftwork::Result;

/// Ends in the background: the last user may be a thread of a runtime, where a wait for its end is not allowed.
#[derive(Debug)]
pub(crate) struct Shared {
    runtime: Option<Runtime>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// Returns the shared runtime and its handle. The runtime ends when it is no longer held.
pub(crate) fn runtime() -> Result<(Handle, Arc<Shared>)> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(held) = shared.upgrade()
        && let Some(runtime) = &held.runtime
    {
        return Ok((runtime.handle().clone(), held));
    }
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("weft-tokio").enable_all().build()?;
    let (handle, held) = (runtime.handle().clone(), Arc::new(Shared { runtime: Some(runtime) }));
    *shared = Arc::downgrade(&held);
    Ok((handle, held))
}
