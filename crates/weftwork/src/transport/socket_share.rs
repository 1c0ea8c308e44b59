//! Sockets of listeners that another process may hold too, and the list of them for a replacement of this process.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::socket_file::SocketFile;

/// What all sockets of one listener share: the first socket, and its siblings with queues of their own.
#[derive(Debug, Default)]
pub(crate) struct SocketShare {
    /// File of a Unix socket, owned by the listener that created it.
    file: Mutex<Option<SocketFile>>,
    /// Call of [`Server::bind`](crate::Server::bind) that made the listener. Absent for a socket of the program.
    bound: Option<Bound>,
    /// Whether the socket was made elsewhere. Other processes may hold it, so it is only closed.
    is_given: bool,
    /// Whether the process before or after this one holds the socket too.
    is_held_elsewhere: AtomicBool,
    /// Whether the listener accepts no more. A thread may still hold its socket.
    is_shut: AtomicBool,
    sockets: Mutex<Vec<Weak<OwnedFd>>>,
}

/// One call of `bind`. It makes several listeners if a name has several addresses.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) call: u64,
    /// The address as the program wrote it.
    pub(crate) address: Arc<str>,
}

impl Bound {
    pub(crate) fn new(address: &str) -> Bound {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        Bound { call: CALLS.fetch_add(1, Ordering::Relaxed), address: address.into() }
    }
}

/// Every listener of this process that was made by an address.
static SHARES: Mutex<Vec<Weak<SocketShare>>> = Mutex::new(Vec::new());

impl SocketShare {
    pub(super) fn new(bound: Option<Bound>, file: Option<SocketFile>, is_given: bool) -> Arc<SocketShare> {
        let share =
            Arc::new(SocketShare { file: Mutex::new(file), bound, is_given, ..SocketShare::default() });
        if share.bound.is_some() {
            let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
            shares.retain(|share| share.strong_count() > 0);
            shares.push(Arc::downgrade(&share));
        }
        share
    }

    /// Returns every listener that is open, in the order of the calls that made them.
    pub(crate) fn all() -> Vec<Arc<SocketShare>> {
        let shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<SocketShare>> = shares.iter().filter_map(Weak::upgrade).collect();
        all.retain(|share| !share.is_shut.load(Ordering::SeqCst) && !share.sockets().is_empty());
        all.sort_by_key(|share| share.bound.as_ref().map(|bound| bound.call));
        all
    }

    pub(super) fn add(&self, socket: OwnedFd) -> Arc<OwnedFd> {
        let socket = Arc::new(socket);
        lock(&self.sockets).push(Arc::downgrade(&socket));
        socket
    }

    /// Returns the sockets that are open.
    pub(crate) fn sockets(&self) -> Vec<Arc<OwnedFd>> {
        lock(&self.sockets).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// Returns whether the socket was made elsewhere, for good.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns whether another process may hold the socket now.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_given || self.is_held_elsewhere.load(Ordering::SeqCst)
    }

    pub(crate) fn hold_elsewhere(&self, is_held: bool) {
        self.is_held_elsewhere.store(is_held, Ordering::SeqCst);
    }

    pub(crate) fn has_file(&self) -> bool {
        lock(&self.file).is_some()
    }

    /// Leaves the file of a Unix socket to the process that has the socket from now on.
    pub(crate) fn leave_file(&self) {
        if let Some(file) = lock(&self.file).take() {
            file.leave();
        }
    }

    /// Notes that the listener accepts no more, and removes the file of a Unix socket.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
        drop(lock(&self.file).take());
    }

    /// Owns the file of a Unix socket from now on.
    pub(super) fn adopt_file(&self, file: Option<SocketFile>) {
        *lock(&self.file) = file;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
