//! The end of a server as a future, for programs with an async `main`.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::{fmt, thread};

use super::Running;
use super::process::signals::Signals;
use crate::error::{Error, Result};
use crate::shutdown::ShutdownReport;

impl Running {
    /// Serves until SIGTERM or SIGINT, as [`wait`](Running::wait) does, and is a future. Use it in an async `main`, whose
    /// thread must not block. A thread waits for the signals. Dropping the future does not stop the server.
    ///
    /// ```no_run
    /// use weftwork::prelude::*;
    ///
    /// async fn serve() -> Result<()> {
    ///     let running = Server::bind("127.0.0.1:8080")?.start(|_: &mut Request| "hello\n")?;
    ///     let report = running.stopped().await?;
    ///     println!("{report}");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The system does not allow waiting for the signals, or refuses a thread. The server then stops.
    pub fn stopped(self) -> impl Future<Output = Result<ShutdownReport>> + Send + 'static {
        let (reported, report) = channel();
        let waker = Arc::new(Mutex::new(None));
        let stopped = Stopped { report, waker: waker.clone() };
        let failed = reported.clone();
        let signals = match self.settings().maintenance_signals {
            true => Signals::install(),
            false => Signals::stop_only(),
        };
        let waited = move || {
            let _ = reported.send(signals.and_then(|signals| self.wait(signals)));
            let waker: Option<Waker> = waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        if let Err(error) = thread::Builder::new().name("weft-signals".to_owned()).spawn(waited) {
            let _ = failed.send(Err(Error::io("no thread waits for signals", error)));
        }
        stopped
    }
}

struct Stopped {
    report: Receiver<Result<ShutdownReport>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Future for Stopped {
    type Output = Result<ShutdownReport>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<ShutdownReport>> {
        // Before the look, so that a report after the look wakes.
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        match self.report.try_recv() {
            Ok(report) => Poll::Ready(report),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => {
                Poll::Ready(Err(Error::internal("the thread that waits for signals has panicked")))
            }
        }
    }
}

impl fmt::Debug for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").finish_non_exhaustive()
    }
}
