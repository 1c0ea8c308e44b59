//! Ends a child process on every path: it is asked first, then killed, by pid, and waited for.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::usage;
use crate::failure::{Failure, Result};

/// How long a server may take to end when asked.
const END_TIMEOUT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct ChildGuard(Child);

impl ChildGuard {
    pub(crate) fn spawn(mut command: Command, what: &str) -> Result<Self> {
        command.spawn().map(ChildGuard).map_err(|error| Failure::step(format!("starting {what}"), error))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its status, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    fn ends_within(&mut self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        loop {
            match self.0.try_wait() {
                Ok(None) if Instant::now() < end => thread::sleep(LOOK),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.ends_within(Duration::ZERO) {
            return;
        }
        // Its workers, should it not take them along.
        let tree = usage::tree(self.id());
        signal(self.id(), Signal::TERM);
        if self.ends_within(END_TIMEOUT) {
            return;
        }
        for process in tree {
            signal(process.pid as u32, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
