//! Futures that need a tokio runtime, in handlers of [`weftwork`]: `sqlx`, `reqwest`, `tonic` and most async clients.
//!
//! [`weftwork::wait`] and [`Response::when`] poll a future on a thread of the server. The timers and sockets of tokio ask
//! for the context of a runtime in each poll, and a [`Tokio`] enters that context. The runtime drives its timers and
//! sockets, and no request runs on its threads.
//!
//! ```
//! use std::time::Duration;
//! use weftwork::prelude::*;
//! use weftwork_tokio::Tokio;
//!
//! fn site(tokio: Tokio) -> Router {
//!     Router::new().get("/wait", wait).get("/when", when).state(tokio)
//! }
//!
//! // The thread waits, and other requests go on. The future may borrow.
//! fn wait(State(tokio): State<Tokio>) -> &'static str {
//!     tokio.wait(|| tokio::time::sleep(Duration::from_millis(1)));
//!     "waited\n"
//! }
//!
//! // No thread waits. The future is dropped if the client leaves.
//! fn when(State(tokio): State<Tokio>) -> Response {
//!     tokio.when(|| async {
//!         tokio::time::sleep(Duration::from_millis(1)).await;
//!         "waited\n"
//!     })
//! }
//!
//! # fn main() -> weftwork::Result<()> {
//! let running = Server::bind("127.0.0.1:0")?.start(site(Tokio::shared()?))?;
//! # running.shutdown(Duration::ZERO);
//! # Ok(())
//! # }
//! ```
//!
//! | the program | its runtime |
//! |---|---|
//! | has `#[tokio::main]` | [`Tokio::current`] within `main`, and `running.stopped().await` instead of `run` |
//! | has a runtime of its own | [`Tokio::new`] with its handle |
//! | has no runtime | [`Tokio::shared`] |
//!
//! `main` of a program with `#[tokio::main]`:
//!
//! ```
//! # use weftwork::prelude::*;
//! # use weftwork_tokio::Tokio;
//! # fn site(_: Tokio) -> Router { Router::new() }
//! #[tokio::main]
//! async fn main() -> weftwork::Result<()> {
//!     let site = site(Tokio::current()?);
//!     # if true { return Ok(()) }
//!     let running = Server::bind("127.0.0.1:8080")?.start(site)?;
//!     running.stopped().await?;
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]

mod driven;
mod shared;
mod within;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::tokio::runtime::Handle;
use weftwork::{Error, IntoResponse, Response, Result};

pub use within::{Within, within};

/// The runtime whose context futures get. Clones are of the same runtime.
#[derive(Clone, Debug)]
pub struct Tokio {
    handle: Handle,
    /// Keeps the shared runtime.
    _runtime: Option<Arc<shared::Shared>>,
}

impl Tokio {
    /// Takes a runtime of the program.
    ///
    /// It must be driven: a multi-thread one, or a current-thread one whose thread is in `block_on`, and awaits something
    /// there. If a current-thread runtime is not driven within 5 seconds, an error in the log says so. Timers and sockets do
    /// not work without that.
    pub fn new(handle: Handle) -> Tokio {
        driven::check(&handle);
        Tokio { handle, _runtime: None }
    }

    /// Takes the runtime of this thread. See [`new`](Tokio::new).
    ///
    /// # Errors
    /// No runtime runs on this thread.
    pub fn current() -> Result<Tokio> {
        let handle = Handle::try_current();
        handle.map(Tokio::new).map_err(|_| {
            Error::internal("Tokio::current is for a thread of a runtime, as in #[tokio::main]: elsewhere, see Tokio::shared")
        })
    }

    /// Takes a runtime that is made at the first call, with one thread. It ends with the last clone. The server drops the
    /// clones of its handlers after it has stopped, so pending futures are finished before.
    ///
    /// # Errors
    /// The system refuses a thread or a descriptor.
    pub fn shared() -> Result<Tokio> {
        let (handle, runtime) = shared::runtime()?;
        Ok(Tokio { handle, _runtime: Some(runtime) })
    }

    /// Returns the handle of the runtime, for example to spawn a task.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a future as [`weftwork::wait`] does. `make` is called within the context, because the timers of tokio need
    /// it when they are made.
    pub fn wait<F: Future>(&self, make: impl FnOnce() -> F) -> F::Output {
        weftwork::wait(self.within(make))
    }

    /// Returns the response of a future as [`Response::when`] does. See [`wait`](Tokio::wait) for `make`.
    pub fn when<F>(&self, make: impl FnOnce() -> F) -> Response
    where
        F: Future + Send + 'static,
        F::Output: IntoResponse,
    {
        Response::when(self.within(make))
    }

    /// Returns the response of a future, or `otherwise` after `timeout`, as [`Response::when_within`] does.
    pub fn when_within<F>(
        &self,
        timeout: Duration,
        otherwise: impl IntoResponse,
        make: impl FnOnce() -> F,
    ) -> Response
    where
        F: Future + Send + 'static,
        F::Output: IntoResponse,
    {
        Response::when_within(timeout, otherwise, self.within(make))
    }

    /// Makes a future in the context, and wraps it so that each poll enters the context.
    pub fn within<F: Future>(&self, make: impl FnOnce() -> F) -> Within<F> {
        let guard = self.handle.enter();
        let future = make();
        drop(guard);
        within(self.handle.clone(), future)
    }
}

/// Takes a runtime of the program. See [`Tokio::new`].
impl From<Handle> for Tokio {
    fn from(handle: Handle) -> Tokio {
        Tokio::new(handle)
    }
}
