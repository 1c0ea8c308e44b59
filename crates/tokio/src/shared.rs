//! The runtime of programs that have none.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::tokio::runtime::{Builder, Runtime};
use weftwork::{Error, Result};

static SHARED: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());

/// Returns the shared runtime, which ends when it is no longer held.
pub(crate) fn runtime() -> Result<Arc<Runtime>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = shared.upgrade() {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread().worker_threads(1).thread_name("weft-tokio").enable_all().build();
    let runtime = built.map(Arc::new).map_err(Error::from)?;
    *shared = Arc::downgrade(&runtime);
    Ok(runtime)
}
