//! Signals of the process, for a server that waits for them.

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::error::{Error, Result};

/// Signals that operators send to a server that goes on.
const MAINTENANCE: [i32; 3] = [SIGHUP, SIGUSR1, SIGUSR2];
const STOP: [i32; 2] = [SIGTERM, SIGINT];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalEvent {
    /// SIGTERM or SIGINT, or SIGHUP after the terminal of the process has gone.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    ReopenLogs,
    /// SIGUSR2.
    Replace,
    /// A [`Waker`] was used, or a signal has been seen already.
    Woken,
}

/// Redirects signals to the server while this value lives. After the last value is dropped, SIGTERM and SIGINT end the
/// process again, even if the process handled them in another way before. SIGUSR1 and SIGUSR2 have no effect then, because
/// they may come late. The same is true of SIGHUP, unless stderr is a terminal.
///
/// | signal | effect |
/// |---|---|
/// | SIGTERM, SIGINT | stops the server, as [`Server::run`](crate::Server::run) describes |
/// | SIGHUP | reopens log files and [reloads](crate::Server::on_reload). If stderr was a terminal that has gone, it stops the server |
/// | SIGUSR1 | reopens log files ([`LogFile`](crate::LogFile)) |
/// | SIGUSR2 | starts the program again, with the same arguments and the listening sockets. When the new process is ready, this one stops. If the new process fails, this one goes on, and the log says why |
///
/// For SIGUSR2, both processes must name their addresses in the same way in [`Server::bind`](crate::Server::bind). A process
/// is ready when it waits for signals, so bind and start all servers before.
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
#[must_use = "SIGTERM and SIGINT end the process again when this is dropped: give it to `Running::wait`"]
pub struct Signals {
    // Dropped before the actions. Without the actions and without the default, a signal would be lost.
    _guards: Vec<InstallGuard>,
    _actions: Actions,
    pipe: UnixStream,
    written: UnixStream,
    flags: Arc<Flags>,
    /// Whether stderr was a terminal at the start.
    had_terminal: bool,
}

/// Signals that have arrived and were not looked at.
#[derive(Debug, Default)]
struct Flags {
    stop: Arc<AtomicBool>,
    hup: Arc<AtomicBool>,
    usr1: Arc<AtomicBool>,
    usr2: Arc<AtomicBool>,
    /// Set by a [`Waker`]. One read of the pipe may take its byte together with that of a signal.
    woken: Arc<AtomicBool>,
}

/// Ends a wait for signals.
pub(crate) struct Waker {
    woken: Arc<AtomicBool>,
    written: UnixStream,
}

impl Waker {
    pub(crate) fn wake(&mut self) {
        self.woken.store(true, Ordering::SeqCst);
        // The server may have stopped waiting.
        let _ = self.written.write_all(&[0]);
    }
}

impl Signals {
    /// Installs handlers for all signals of the table.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn install() -> Result<Signals> {
        Signals::try_install(&[&STOP, &MAINTENANCE])
            .map_err(|error| Error::io("cannot install handlers for signals", error))
    }

    /// Installs handlers for SIGTERM and SIGINT, and leaves the other signals to the program.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn stop_only() -> Result<Signals> {
        Signals::try_install(&[&STOP])
            .map_err(|error| Error::io("cannot install handlers for SIGTERM and SIGINT", error))
    }

    fn try_install(groups: &[&'static [i32]]) -> io::Result<Signals> {
        super::program::remember();
        let (pipe, written) = UnixStream::pair()?;
        let flags = Arc::<Flags>::default();
        let mut actions = Actions(Vec::new());
        for group in groups {
            InstallGuard::set_up(group)?;
            actions.register(group, &flags, &written)?;
        }
        // Last, because from then on only the actions handle a signal.
        let guards = groups.iter().map(|group| InstallGuard::begin(group)).collect();
        let had_terminal = io::stderr().is_terminal();
        Ok(Signals { _guards: guards, _actions: actions, pipe, written, flags, had_terminal })
    }

    /// Waits for a signal, for at most `timeout`. Returns nothing if no signal arrived.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<SignalEvent>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.pipe.set_read_timeout(left)?;
            match self.pipe.read(&mut [0; 64]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(Some(self.take().unwrap_or(SignalEvent::Woken))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Ok(Waker { woken: self.flags.woken.clone(), written: self.written.try_clone()? })
    }

    fn take(&self) -> Option<SignalEvent> {
        let Flags { stop, hup, usr1, usr2, woken } = &*self.flags;
        let came = |flag: &AtomicBool| flag.swap(false, Ordering::SeqCst);
        if came(stop) {
            return Some(SignalEvent::Stop);
        }
        if came(hup) {
            // After a hangup, the terminal is no terminal any more (tcgetattr gives EIO).
            let has_gone = self.had_terminal && !io::stderr().is_terminal();
            return Some(if has_gone { SignalEvent::Stop } else { SignalEvent::Reload });
        }
        if came(usr1) {
            return Some(SignalEvent::ReopenLogs);
        }
        if came(usr2) {
            return Some(SignalEvent::Replace);
        }
        came(woken).then_some(SignalEvent::Woken)
    }
}

/// Actions that note each signal and write to a pipe.
#[derive(Debug)]
struct Actions(Vec<SigId>);

impl Actions {
    fn register(&mut self, group: &[i32], flags: &Flags, written: &UnixStream) -> io::Result<()> {
        for signal in group {
            let flag = match *signal {
                SIGHUP => &flags.hup,
                SIGUSR1 => &flags.usr1,
                SIGUSR2 => &flags.usr2,
                _ => &flags.stop,
            };
            // The flag comes first, so that the reader of the pipe sees it.
            self.0.push(signal_hook::flag::register(*signal, flag.clone())?);
            self.0.push(signal_hook::low_level::pipe::register(*signal, written.try_clone()?)?);
        }
        Ok(())
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Returns whether a signal ends the process if no server waits for signals. Operators send the others to running servers,
/// and such a signal may arrive just after the stop.
fn ends_process(signal: i32) -> bool {
    match signal {
        SIGUSR1 | SIGUSR2 => false,
        SIGHUP => io::stderr().is_terminal(),
        _ => true,
    }
}

/// Whether the signals of a group end the process, because no [`Signals`] of the group lives.
static ARE_DEFAULT: [AtomicBool; 2] = [AtomicBool::new(true), AtomicBool::new(true)];
static INSTALLED: Mutex<[Installed; 2]> = Mutex::new([Installed::NONE, Installed::NONE]);

struct Installed {
    count: usize,
    is_set_up: bool,
}

impl Installed {
    const NONE: Installed = Installed { count: 0, is_set_up: false };
}

/// Counts one living [`Signals`] of a group. Unregistering an action does not restore the default, and the process would
/// then ignore the signals.
#[derive(Debug)]
struct InstallGuard {
    group: usize,
}

impl InstallGuard {
    /// Registers the default before the actions, because the first action removes a signal's default, even if a later
    /// step fails.
    fn set_up(group: &[i32]) -> io::Result<()> {
        let index = index_of(group);
        let installed = &mut installed()[index];
        if !installed.is_set_up {
            for signal in group.iter().filter(|signal| ends_process(**signal)) {
                signal_hook::flag::register_conditional_default(*signal, &ARE_DEFAULT[index])?;
            }
            installed.is_set_up = true;
        }
        Ok(())
    }

    fn begin(group: &[i32]) -> InstallGuard {
        let group = index_of(group);
        let installed = &mut installed()[group];
        installed.count += 1;
        ARE_DEFAULT[group].store(false, Ordering::SeqCst);
        InstallGuard { group }
    }
}

impl Drop for InstallGuard {
    fn drop(&mut self) {
        let installed = &mut installed()[self.group];
        installed.count -= 1;
        ARE_DEFAULT[self.group].store(installed.count == 0, Ordering::SeqCst);
    }
}

fn index_of(group: &[i32]) -> usize {
    usize::from(group.contains(&SIGHUP))
}

fn installed() -> MutexGuard<'static, [Installed; 2]> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}
