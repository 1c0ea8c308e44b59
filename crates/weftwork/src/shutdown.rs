//! Shutdown of a server: its signals, and the report at its end.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Error, Result};

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Connections that were open when the shutdown began, and closed regularly.
    pub drained: usize,
    /// Connections that were cut at the deadline.
    pub cut: usize,
    /// Threads left in a handler that did not return, or in a call of `weftwork::blocking`. The shutdown waits for them
    /// for at most a second.
    pub stuck: usize,
    /// Duration of the shutdown.
    pub took: Duration,
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShutdownReport { drained, cut, stuck, took } = self;
        write!(f, "stopped in {took:.1?}: {drained} connections drained, {cut} cut")?;
        match *stuck {
            0 => Ok(()),
            1 => f.write_str(", 1 thread still in a handler"),
            _ => write!(f, ", {stuck} threads still in handlers"),
        }
    }
}

/// Counters that were not 0 after a server was abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakReport {
    leaks: Vec<(&'static str, usize)>,
}

impl LeakReport {
    /// Returns an error if any of these counters is not 0.
    pub(crate) fn unless_all_zero(counters: Vec<(&'static str, usize)>) -> Result<(), LeakReport> {
        let wrong: Vec<_> = counters.into_iter().filter(|(_, count)| *count > 0).collect();
        if wrong.is_empty() { Ok(()) } else { Err(LeakReport { leaks: wrong }) }
    }

    /// Returns each counter that is not 0: what it counts, and its value.
    pub fn leaks(&self) -> &[(&'static str, usize)] {
        &self.leaks
    }
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server was abandoned and left behind")?;
        for (index, (what, count)) in self.leaks.iter().enumerate() {
            let joint = if index == 0 { ": " } else { ", " };
            write!(f, "{joint}{count} {what}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LeakReport {}

/// Redirects SIGTERM and SIGINT to the server while this value lives. After the last one is dropped, the signals end
/// the process again, even if the process handled them in another way before.
///
/// [`Server::run`](crate::Server::run) installs the signals. If you call [`wait`](crate::Running::wait) instead,
/// install them before the server starts, so that no signal arrives in between.
///
/// ```no_run
/// # use weftwork::prelude::*;
/// let signals = weftwork::Signals::install()?;
/// let running = Server::bind("127.0.0.1:8080")?.start(|_: &mut Request| "hello")?;
/// println!("listening at {:?}", running.local_addr());
/// let report = running.wait(signals)?;
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "signals end the process again when this is dropped: give it to `Running::wait`"]
pub struct Signals {
    // Dropped before the actions. Without the actions and without the default, a signal would be lost.
    _guard: InstallGuard,
    _actions: Actions,
    pipe: UnixStream,
}

impl Signals {
    /// Installs handlers for SIGTERM and SIGINT.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn install() -> Result<Signals> {
        Signals::try_install()
            .map_err(|error| Error::io("cannot install handlers for SIGTERM and SIGINT", error))
    }

    fn try_install() -> io::Result<Signals> {
        let (pipe, written) = UnixStream::pair()?;
        InstallGuard::set_up()?;
        let actions = Actions::register(&written)?;
        // Last, because from then on only the actions handle a signal.
        Ok(Signals { _guard: InstallGuard::begin(), _actions: actions, pipe })
    }

    /// Waits for a signal, for at most `timeout`. Returns true if a signal arrived.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            self.pipe.set_read_timeout(left)?;
            match self.pipe.read(&mut [0]) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Actions that write each signal to a pipe.
#[derive(Debug)]
struct Actions(Vec<SigId>);

impl Actions {
    fn register(written: &UnixStream) -> io::Result<Actions> {
        let mut actions = Actions(Vec::new());
        for signal in [SIGTERM, SIGINT] {
            actions.0.push(signal_hook::low_level::pipe::register(signal, written.try_clone()?)?);
        }
        Ok(actions)
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Whether the signals end the process, because no [`Signals`] lives.
static IS_DEFAULT: AtomicBool = AtomicBool::new(true);
static INSTALLED: Mutex<Installed> = Mutex::new(Installed { count: 0, is_set_up: false });

struct Installed {
    count: usize,
    is_set_up: bool,
}

/// Counts one living [`Signals`]. Unregistering an action does not restore the default, and the process would then
/// ignore the signals.
#[derive(Debug)]
struct InstallGuard;

impl InstallGuard {
    /// Registers the default before the actions, because the first action removes a signal's default, even if a later
    /// step fails.
    fn set_up() -> io::Result<()> {
        let mut installed = installed();
        if !installed.is_set_up {
            for signal in [SIGTERM, SIGINT] {
                signal_hook::flag::register_conditional_default(signal, &IS_DEFAULT)?;
            }
            installed.is_set_up = true;
        }
        Ok(())
    }

    fn begin() -> InstallGuard {
        let mut installed = installed();
        installed.count += 1;
        IS_DEFAULT.store(false, Ordering::SeqCst);
        InstallGuard
    }
}

impl Drop for InstallGuard {
    fn drop(&mut self) {
        let mut installed = installed();
        installed.count -= 1;
        IS_DEFAULT.store(installed.count == 0, Ordering::SeqCst);
    }
}

fn installed() -> MutexGuard<'static, Installed> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    //! Tests that run in a process of their own, because signals affect the whole process.

    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    const CHILD: &str = "WEFTWORK_TEST_SIGNALS";
    const READY: &str = "the signals are set";

    #[test]
    fn signals_end_the_process_again_without_a_waiter() {
        if let Ok(role) = std::env::var(CHILD) {
            return play(&role);
        }
        for (role, ends) in [("dropped", true), ("dropped twice", true), ("one is left", false)] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let name = "shutdown::tests::signals_end_the_process_again_without_a_waiter";
            child.args(["--exact", name, "--nocapture"]).env(CHILD, role);
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(io::Result::ok);
            assert!(said.any(|line| line.contains(READY)), "{role}");
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            // A process that has not ended reads the end of its input, and then exits.
            drop(child.stdin.take());
            let status = child.wait().unwrap();
            let expected = if ends { Some(SIGTERM) } else { None };
            assert_eq!((status.signal(), status.success()), (expected, !ends), "{role}: {status}");
        }
    }

    /// The drop of the signals is stopped halfway, at the lock. The actions must still be there.
    #[test]
    fn the_default_is_back_before_the_actions_go() {
        let signals = Signals::install().unwrap();
        let mut pipe = signals.pipe.try_clone().unwrap();
        let lock = installed();
        let dropped = std::thread::spawn(move || drop(signals));
        pipe.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let read = pipe.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(io::ErrorKind::WouldBlock), "the last action holds the other end");
        drop(lock);
        dropped.join().unwrap();
        pipe.set_read_timeout(None).unwrap();
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0, "now it is gone");
    }

    fn play(role: &str) {
        let first = Signals::install().unwrap();
        let left = (role == "one is left").then(|| Signals::install().unwrap());
        drop(first);
        if role == "dropped twice" {
            drop(Signals::install().unwrap());
        }
        println!("{READY}");
        io::stdout().flush().unwrap();
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        if let Some(mut left) = left {
            assert!(left.wait(Some(Duration::from_secs(10))).unwrap());
        }
    }
}
