//! Work that signals ask for while the server goes on: log files are opened again, and the program reloads.
//!
//! A thread of its own does the work, because a log or a hook may block, and a signal that stops the server must be seen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use super::notify;
use super::signals::SignalEvent;
use crate::error::Result;
use crate::message::drop_caught::caught;
use crate::transport::log_file::LogFile;
use crate::transport::log_queue::log_line;

/// Functions of the program that a reload calls.
#[derive(Clone, Default)]
pub(crate) struct ReloadHooks(Vec<Arc<dyn Fn() -> Result<()> + Send + Sync>>);

impl ReloadHooks {
    pub(crate) fn push(&mut self, hook: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.0.push(Arc::new(hook));
    }
}

impl fmt::Debug for ReloadHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions", self.0.len())
    }
}

/// Work that the thread has not begun. Several signals of a kind ask for the same.
#[derive(Default)]
struct Wanted {
    reload: AtomicBool,
    reopen_logs: AtomicBool,
}

/// Sends the work to its thread, which starts at the first signal.
pub(crate) struct Maintenance {
    hooks: ReloadHooks,
    wanted: Arc<Wanted>,
    thread: Option<SyncSender<()>>,
}

impl Maintenance {
    pub(crate) fn new(hooks: ReloadHooks) -> Maintenance {
        Maintenance { hooks, wanted: Arc::default(), thread: None }
    }

    /// Begins the work of SIGHUP or SIGUSR1. Other events need none.
    pub(crate) fn handle(&mut self, event: SignalEvent) {
        match event {
            SignalEvent::Reload => &self.wanted.reload,
            SignalEvent::ReopenLogs => &self.wanted.reopen_logs,
            _ => return,
        }
        .store(true, Ordering::SeqCst);
        if self.thread.is_none() {
            let (sender, wakes) = sync_channel(1);
            let (hooks, wanted) = (self.hooks.clone(), self.wanted.clone());
            let started =
                Builder::new().name("weft-reload".into()).spawn(move || work(&hooks, &wanted, &wakes));
            self.thread = started.is_ok().then_some(sender);
        }
        if let Some(thread) = &self.thread {
            // If it is full, the thread looks again after what it does now.
            let _ = thread.try_send(());
        }
    }
}

fn work(hooks: &ReloadHooks, wanted: &Wanted, wakes: &Receiver<()>) {
    for () in wakes {
        if wanted.reopen_logs.swap(false, Ordering::SeqCst) {
            reopen("SIGUSR1");
        }
        if !wanted.reload.swap(false, Ordering::SeqCst) {
            continue;
        }
        notify::notify(&notify::reloading());
        reopen("SIGHUP");
        for hook in &hooks.0 {
            match caught(|| Some(hook()), |_| None) {
                Some(Ok(())) => log_line!(Info, "SIGHUP: reloaded"),
                Some(Err(error)) => {
                    log_line!(Error, "SIGHUP: cannot reload, the server goes on as before: {error}")
                }
                None => log_line!(Error, "SIGHUP: the reload panicked, the server goes on"),
            }
        }
        notify::notify(notify::READY);
    }
}

fn reopen(signal: &str) {
    match LogFile::reopen_all() {
        Ok(()) => log_line!(Info, "{signal}: log files are open again"),
        Err(error) => log_line!(Error, "{signal}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::Error;
    use crate::transport::log_file::REOPENS;

    /// A hook that fails or panics keeps no other hook from its call, and no later reload.
    #[test]
    fn a_reload_calls_each_function_of_the_program() {
        let _alone = REOPENS.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, called) = channel();
        let mut hooks = ReloadHooks::default();
        for name in ["fails", "panics", "succeeds"] {
            let calls = calls.clone();
            hooks.push(move || {
                calls.send(name).unwrap();
                match name {
                    "fails" => Err(Error::usage("as expected by the test")),
                    "panics" => panic!("as expected by the test"),
                    _ => Ok(()),
                }
            });
        }
        let mut maintenance = Maintenance::new(hooks);
        for _ in 0..2 {
            maintenance.handle(SignalEvent::ReopenLogs);
            maintenance.handle(SignalEvent::Reload);
            for name in ["fails", "panics", "succeeds"] {
                assert_eq!(called.recv_timeout(Duration::from_secs(20)), Ok(name));
            }
        }
        drop((maintenance, calls));
        assert!(called.recv().is_err(), "SIGUSR1 calls none");
    }

    /// What a reload reads may have changed after it has begun.
    #[test]
    fn a_signal_during_a_reload_asks_for_another() {
        let _alone = REOPENS.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, called) = channel();
        let (lets, may) = channel::<()>();
        let (mut hooks, may) = (ReloadHooks::default(), std::sync::Mutex::new(may));
        hooks.push(move || {
            calls.send(()).unwrap();
            may.lock().unwrap().recv().unwrap();
            Ok(())
        });
        let mut maintenance = Maintenance::new(hooks);
        maintenance.handle(SignalEvent::Reload);
        called.recv_timeout(Duration::from_secs(20)).unwrap();
        for event in
            [SignalEvent::ReopenLogs, SignalEvent::ReopenLogs, SignalEvent::Reload, SignalEvent::Reload]
        {
            maintenance.handle(event);
        }
        lets.send(()).unwrap();
        called.recv_timeout(Duration::from_secs(20)).expect("the second reload");
        lets.send(()).unwrap();
        drop(maintenance);
        assert!(called.recv().is_err(), "and no third one");
    }
}
