//! Signals of the process, for a server that waits for them.

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

/// Redirects signals to the server while this value lives. After the last value is dropped, the signals end the process
/// again, even if the process handled them in another way before.
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
#[must_use = "signals end the process again when this is dropped: give it to `Running::wait`"]
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
}

/// Ends a wait for signals.
pub(crate) struct Waker(UnixStream);

impl Waker {
    pub(crate) fn wake(&mut self) {
        // The server may have stopped waiting.
        let _ = self.0.write_all(&[0]);
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
        Ok(Waker(self.written.try_clone()?))
    }

    fn take(&self) -> Option<SignalEvent> {
        let Flags { stop, hup, usr1, usr2 } = &*self.flags;
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
        came(usr2).then_some(SignalEvent::Replace)
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
            for signal in group {
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
            let name = "server::process::signals::tests::signals_end_the_process_again_without_a_waiter";
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

    /// Returns whether this process ignores the signal, as far as the system tells.
    fn is_ignored(signal: Signal) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        (ignored >> (signal.as_raw() - 1)) & 1 == 1
    }

    /// [`Server::run`](crate::Server::run) handles all signals, unless the setting leaves some to the program.
    #[test]
    fn a_server_goes_on_after_signals_of_operators() {
        if let Ok(setting) = std::env::var(CHILD) {
            let server = crate::Server::bind("127.0.0.1:0").unwrap().set("maintenance_signals", &setting);
            let server = server.unwrap();
            println!("{READY} {}", server.addresses()[0]);
            return server.run(|_: &mut crate::Request<'_>| "hello").unwrap();
        }
        for (setting, signal) in [
            ("on", Signal::HUP),
            ("on", Signal::USR1),
            ("off", Signal::HUP),
            ("off", Signal::USR1),
            ("off", Signal::USR2),
        ] {
            if setting == "off" && is_ignored(signal) {
                println!(
                    "not checked: {signal:?} is ignored here, as by nohup(1), and a child inherits that"
                );
                continue;
            }
            let mut child = Command::new(std::env::current_exe().unwrap());
            let name = "server::process::signals::tests::a_server_goes_on_after_signals_of_operators";
            child.args(["--exact", name, "--nocapture"]).env(CHILD, setting);
            let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(io::Result::ok);
            let line = said.find(|line| line.contains(READY)).unwrap();
            let address = line.rsplit(' ').next().unwrap();
            // The signals are handled before the server listens.
            while std::net::TcpStream::connect(address).is_err() {
                assert!(child.try_wait().unwrap().is_none());
                std::thread::yield_now();
            }
            kill_process(Pid::from_child(&child), signal).unwrap();
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            let status = child.wait().unwrap();
            let expected = if setting == "on" { None } else { Some(signal.as_raw()) };
            assert_eq!(
                (status.signal(), status.success()),
                (expected, setting == "on"),
                "{setting} {signal:?}"
            );
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
            assert_eq!(left.wait(Some(Duration::from_secs(10))).unwrap(), Some(SignalEvent::Stop));
        }
    }
}
