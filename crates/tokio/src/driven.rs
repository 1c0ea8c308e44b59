//! Notices a current-thread runtime that no thread drives.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ::tokio::runtime::{Handle, RuntimeFlavor};

/// Time for a runtime to show that it is driven. Programs prepare things before they await.
const PATIENCE: Duration = Duration::from_secs(5);

/// Logs an error if no thread drives the runtime within some seconds.
pub(crate) fn check(handle: &Handle) {
    if handle.runtime_flavor() != RuntimeFlavor::CurrentThread {
        return;
    }
    let (driven, is_driven) = mpsc::channel();
    handle.spawn(async move { driven.send(()) });
    // Without a thread there is no check.
    let _ = thread::Builder::new().name("weft-tokio-check".to_owned()).spawn(move || {
        if let Err(mpsc::RecvTimeoutError::Timeout) = is_driven.recv_timeout(PATIENCE) {
            log::error!("{UNDRIVEN}");
        }
    });
}

const UNDRIVEN: &str = "the current-thread runtime of tokio is not driven: its timers and sockets never wake. Its thread is busy, \
                        perhaps in Server::run. In an async main, write server.start(site)?.stopped().await, or use a multi-thread runtime";
