//! Waits for signals while the server runs, and stops it.

use std::time::{Duration, Instant};

use super::process::maintenance::Maintenance;
use super::process::signals::{SignalEvent, Signals};
use super::process::{descriptors, notify, predecessor, replacement};
use super::{Running, ServerStatus};
use crate::error::{Error, Result};
use crate::shutdown::ShutdownReport;
use crate::transport::log_queue::{LogThread, log_line};

/// Signals within this time count as one. `timeout` and some supervisors signal the process and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

impl Running {
    /// Serves until SIGTERM or SIGINT, then stops as [`Server::run`](super::Server::run) does.
    ///
    /// # Errors
    /// The system does not allow waiting for the signals.
    pub fn wait(self, signals: Signals) -> Result<ShutdownReport> {
        self.wait_and_stop(signals).map(|(report, _log)| report)
    }

    /// Returns also the logging thread, for a line about the report.
    pub(super) fn wait_and_stop(mut self, mut signals: Signals) -> Result<(ShutdownReport, LogThread)> {
        let mut maintenance = Maintenance::new(std::mem::take(&mut self.reload_hooks));
        descriptors::warn_of_unused();
        // The process before tells systemd of this one.
        if !predecessor::ready() {
            notify::notify(notify::READY);
        }
        self.serve(&mut signals, &mut maintenance)?;
        let stop_started = Instant::now();
        let (delay, timeout) = (self.cx.settings.drain_delay, self.cx.settings.drain_timeout);
        let successor = replacement::successor();
        match successor {
            // New clients, and those of the side listener, must go to the new process at once.
            Some(_) => replacement::leave(timeout),
            None => {
                self.announce_stop();
                replacement::cancel();
                notify::notify(notify::STOPPING);
            }
        }
        match successor {
            Some(pid) => {
                log_line!(
                    Info,
                    "replaced by process {pid}: requests in flight may finish, a signal cuts them"
                );
            }
            None => log_line!(Info, "stopping: requests in flight may finish, a second signal cuts them"),
        }
        let delay = if successor.is_some() { Duration::ZERO } else { delay };
        let mut must_end = move || {
            let Ok(Some(event)) = signals.wait(Some(Duration::from_millis(1))) else { return false };
            maintenance.handle(event);
            event == SignalEvent::Stop && stop_started.elapsed() >= ONE_SIGNAL
        };
        let report = self.stop(delay, timeout, &mut must_end);
        if successor.is_some() {
            // Other servers of this process finish too.
            while replacement::has_clients() && stop_started.elapsed() < timeout && !must_end() {}
        }
        Ok((report, self.log.clone()))
    }

    /// Returns when the server must stop.
    fn serve(&self, signals: &mut Signals, maintenance: &mut Maintenance) -> Result<()> {
        let refused = |error| Error::io("cannot wait for signals", error);
        let watchdog = notify::watchdog_interval();
        loop {
            match signals.wait(watchdog).map_err(refused)? {
                Some(SignalEvent::Stop) => return Ok(()),
                Some(SignalEvent::Replace) => {
                    replacement::begin(
                        self.cx.settings.replacement_timeout,
                        signals.waker().map_err(refused)?,
                    );
                }
                Some(SignalEvent::Woken) if replacement::successor().is_some() => return Ok(()),
                Some(event) => maintenance.handle(event),
                None => {}
            }
            if watchdog.is_some() {
                notify::notify(notify::WATCHDOG);
            }
        }
    }

    /// Returns the status of the server, for use while the server is waited for. [`Server::status`](super::Server::status)
    /// returns it before the start.
    pub fn status(&self) -> ServerStatus {
        self.status.clone()
    }
}
