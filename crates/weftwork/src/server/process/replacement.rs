//! Replaces this process by a new one with the same sockets (SIGUSR2).
//!
//! The new process gets the listening sockets. When it is ready, all servers of this process stop accepting and finish what
//! they have. If it does not get ready, this process goes on as before.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::channel::{self, GO, Passed, READY, VARIABLE};
use super::signals::Waker;
use super::{notify, program};
use crate::engine::EngineHandle;
use crate::transport::context::Context;
use crate::transport::log_queue::log_line;
use crate::transport::socket_share::SocketShare;

/// Interval at which the new process is looked at.
const TICK: Duration = Duration::from_millis(20);
/// Time for a new process that did not get ready to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Several servers of this process see the same signal within this time.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Servers of this process that are running. One signal replaces all of them.
static SERVERS: Mutex<Vec<RunningServer>> = Mutex::new(Vec::new());
static STATE: Mutex<State> =
    Mutex::new(State { progress: Progress::Idle, is_cancelled: false, wakers: Vec::new() });

type RunningServer = (Weak<Context>, Weak<dyn EngineHandle>);

struct State {
    progress: Progress,
    /// Whether this process stops before its replacement is ready.
    is_cancelled: bool,
    wakers: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Idle,
    /// A process is starting since that time.
    Starting(Instant, Option<u32>),
    Done(u32),
}

/// Why this process was not replaced.
#[derive(Debug)]
enum Failure {
    Refused(&'static str),
    Start(String, io::Error),
    Ended(ExitStatus),
    TimedOut(Duration),
    Cancelled,
    Channel(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(why) => f.write_str(why),
            Failure::Start(path, error) => write!(f, "cannot start {path}: {error}"),
            Failure::Ended(status) => write!(f, "the new process ended before it was ready: {status}"),
            Failure::TimedOut(limit) => {
                write!(
                    f,
                    "the new process was not ready within {limit:?} (replacement_timeout), and was ended"
                )
            }
            Failure::Cancelled => f.write_str("this process was told to stop meanwhile"),
            Failure::Channel(error) => write!(f, "the new process cannot be talked to: {error}"),
        }
    }
}

/// Adds a server that stops accepting when the process was replaced.
pub(crate) fn register(cx: &Arc<Context>, handle: &Arc<dyn EngineHandle>) {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.retain(|(cx, _)| cx.strong_count() > 0);
    servers.push((Arc::downgrade(cx), Arc::downgrade(handle)));
}

/// Begins to replace this process. `waker` is used when that is done or has failed.
pub(crate) fn begin(timeout: Duration, mut waker: Waker) {
    let mut state = state();
    match state.progress {
        Progress::Done(_) => {
            // Another server of this process saw the signal first.
            drop(state);
            return waker.wake();
        }
        Progress::Starting(since, _) if since.elapsed() > ONE_SIGNAL => warn_of_second(),
        Progress::Starting(..) | Progress::Idle => {}
    }
    state.wakers.push(waker);
    if state.progress != Progress::Idle {
        return;
    }
    (state.progress, state.is_cancelled) = (Progress::Starting(Instant::now(), None), false);
    drop(state);
    let thread = Builder::new().name("weft-replace".into()).spawn(move || replace_and_tell(timeout));
    if let Err(error) = thread {
        finish(Progress::Idle);
        log_line!(Error, "SIGUSR2: the system refuses a thread, this process goes on: {error}");
    }
}

/// The caller waits for signals, and the log may be stuck.
fn warn_of_second() {
    let warn = || log_line!(Warn, "SIGUSR2: a new process is starting already");
    // Without a thread, the line is left out.
    let _ = Builder::new().name("weft-replace".into()).spawn(warn);
}

/// Returns the process that has replaced this one.
pub(crate) fn successor() -> Option<u32> {
    match state().progress {
        Progress::Done(pid) => Some(pid),
        _ => None,
    }
}

/// Ends a new process that is not ready, because this process stops.
pub(crate) fn cancel() {
    let mut state = state();
    if let Progress::Starting(_, pid) = state.progress {
        state.is_cancelled = true;
        pid.into_iter().for_each(terminate);
    }
}

/// Lets every server of this process stop accepting. Its requests are finished, for at most `timeout`.
pub(crate) fn leave(timeout: Duration) {
    for (cx, handle) in servers() {
        cx.begin_drain(timeout);
        handle.wake();
    }
}

/// Returns whether a server of this process has clients, or may be about to accept one. The order matters, because a
/// connection counts before its thread stops accepting.
pub(crate) fn has_clients() -> bool {
    servers().iter().any(|(cx, handle)| handle.is_accepting() || cx.counters.has_clients())
}

fn servers() -> Vec<(Arc<Context>, Arc<dyn EngineHandle>)> {
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.iter().filter_map(|(cx, handle)| Some((cx.upgrade()?, handle.upgrade()?))).collect()
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn finish(progress: Progress) {
    let wakers = {
        let mut state = state();
        state.progress = progress;
        std::mem::take(&mut state.wakers)
    };
    wakers.into_iter().for_each(|mut waker| waker.wake());
}

/// The stop of this process comes before log lines, because the log may be stuck.
fn replace_and_tell(timeout: Duration) {
    notify::notify(&notify::reloading());
    match replace(timeout) {
        Ok(pid) => {
            // Otherwise systemd takes the end of this process for the end of the service.
            notify::notify(&format!("MAINPID={pid}\n{}", notify::READY));
            finish(Progress::Done(pid));
        }
        Err(failure) => {
            finish(Progress::Idle);
            notify::notify(notify::READY);
            log_line!(Error, "SIGUSR2: this process goes on and was not replaced: {failure}");
        }
    }
}

fn replace(timeout: Duration) -> Result<u32, Failure> {
    check(std::process::id())?;
    let shares = SocketShare::all();
    // From the start of the new process on, the sockets must not be shut down here.
    shares.iter().for_each(|share| share.hold_elsewhere(true));
    let result = start(&shares).and_then(|(child, channel)| wait_until_ready(child, &channel, timeout));
    match result {
        Ok((pid, channel)) => {
            shares.iter().for_each(|share| share.leave_file());
            // If the new process has died in this moment, a supervisor must start it again.
            let _ = (&channel).write_all(GO);
            Ok(pid)
        }
        Err(failure) => {
            shares.iter().for_each(|share| share.hold_elsewhere(false));
            Err(failure)
        }
    }
}

/// Refuses if the end of this process would end the new one too.
fn check(pid: u32) -> Result<(), Failure> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if pid == 1 {
        return Err(Failure::Refused(
            "it is PID 1 of a container, which ends with this process: start another container and then stop this one",
        ));
    }
    if is_set("INVOCATION_ID") && !is_set("NOTIFY_SOCKET") && is_started_by_systemd() {
        return Err(Failure::Refused(
            "systemd would end the service together with this process: set Type=notify in its unit",
        ));
    }
    Ok(())
}

/// Also true under the systemd of a user.
fn is_started_by_systemd() -> bool {
    let Some(parent) = rustix::process::getppid() else { return false };
    let name = std::fs::read_to_string(format!("/proc/{}/comm", parent.as_raw_nonzero()));
    parent.is_init() || name.is_ok_and(|name| name.trim_end() == "systemd")
}

fn start(shares: &[Arc<SocketShare>]) -> Result<(Child, UnixStream), Failure> {
    let (channel, theirs) = UnixStream::pair().map_err(Failure::Channel)?;
    let sockets: Vec<Vec<Arc<OwnedFd>>> = shares.iter().map(|share| share.sockets()).collect();
    let passed = shares.iter().zip(&sockets).filter_map(|(share, sockets)| {
        let bound = share.bound().filter(|_| !sockets.is_empty())?;
        Some(Passed {
            call: bound.call,
            address: bound.address.to_string(),
            is_given: share.is_given(),
            has_file: share.has_file(),
            sockets: sockets.iter().map(|socket| socket.as_fd()).collect(),
        })
    });
    let stdin = channel::stdin().map_err(Failure::Channel)?;
    channel::send(&channel, stdin.as_fd(), ticket_keys(), &passed.collect::<Vec<_>>())
        .map_err(Failure::Channel)?;
    let (mut command, path) = program::again();
    command.stdin(Stdio::from(OwnedFd::from(theirs))).env(VARIABLE, std::process::id().to_string());
    for variable in ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_PID"] {
        command.env_remove(variable);
    }
    // The state is locked, so that a stop of this process sees the new one.
    let mut state = state();
    if state.is_cancelled {
        return Err(Failure::Cancelled);
    }
    let child = command.spawn().map_err(|error| Failure::Start(path.display().to_string(), error))?;
    state.progress = Progress::Starting(Instant::now(), Some(child.id()));
    Ok((child, channel))
}

#[cfg(feature = "_tls")]
fn ticket_keys() -> channel::TicketKeys {
    crate::tls::to_hand_over()
}

#[cfg(not(feature = "_tls"))]
fn ticket_keys() -> channel::TicketKeys {
    Vec::new()
}

fn wait_until_ready(
    mut child: Child,
    channel: &UnixStream,
    timeout: Duration,
) -> Result<(u32, UnixStream), Failure> {
    let started = Instant::now();
    let failure = loop {
        match said_ready(channel) {
            Ok(true) => match channel.try_clone() {
                Ok(channel) if !state().is_cancelled => return Ok((child.id(), channel)),
                Ok(_) => break Failure::Cancelled,
                Err(error) => break Failure::Channel(error),
            },
            Ok(false) => {}
            // The other end is closed: the process ends, or has closed its input.
            Err(_) => sleep(TICK),
        }
        match child.try_wait() {
            Ok(Some(status)) => return Err(Failure::Ended(status)),
            Ok(None) if state().is_cancelled => break Failure::Cancelled,
            Ok(None) if started.elapsed() >= timeout => break Failure::TimedOut(timeout),
            Ok(None) => {}
            Err(error) => break Failure::Channel(error),
        }
    };
    end(child);
    Err(failure)
}

/// Waits a moment for the message of the new process.
fn said_ready(channel: &UnixStream) -> io::Result<bool> {
    channel.set_read_timeout(Some(TICK))?;
    let mut byte = [0];
    match (&*channel).read(&mut byte) {
        Ok(1) => Ok(byte == *READY),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Ends a new process that is not ready. It may serve requests already, so it gets time to finish them.
fn end(mut child: Child) {
    terminate(child.id());
    let told = Instant::now();
    while told.elapsed() < END_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(TICK);
    }
    // It has ended meanwhile, or is ended now.
    let _ = child.kill();
    let _ = child.wait();
}

fn terminate(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the tests may not create a process namespace.
    #[test]
    fn the_first_process_of_a_container_is_not_replaced() {
        let refused = check(1).unwrap_err().to_string();
        assert!(refused.starts_with("it is PID 1 of a container"), "{refused}");
    }
}
